"""An answer as a command shows it: text or JSON on stdout, warnings and errors on stderr, the exit code."""

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from boundary.names import one_line
from headcount.answers.answer import Answer
from headcount.answers.notes import Severity
from headcount.cli.progress import listener, watched
from headcount.text.blocks import Table
from headcount.text.drawing import draw
from headcount.text.units import finite

DURATIONS: Final = ("ttft", "tpot", "think_time", "response_time")  # options that Python names with their unit


def print_json(value: dict[str, Any]) -> None:
    """One object on stdout; what is not finite becomes null, since JSON has no word for it."""
    print(json.dumps(finite(value), indent=2, allow_nan=False))


def show(answer: Answer, *, as_json: bool) -> int:
    """Print an answer, or hand it to who listens; its exit code."""
    if (heard := listener()) is not None:
        heard.answered(answer)
        return int(answer.verdict)
    if as_json:
        print_json(answer.to_json())
    else:
        draw(answer.blocks())
    for note in answer.alerts:
        prefix = "" if note.severity is Severity.ERROR else f"{note.severity}: "
        click.echo(f"headcount: {prefix}{one_line(str(note))}", err=True)
    return int(answer.verdict)


def show_interrupted(answer: Answer, *, as_json: bool) -> None:
    """What was found before Ctrl-C, on stdout."""
    if as_json:
        print_json({**answer.to_json(), "interrupted": True})
    elif answer.rows():
        draw(answer.blocks())


def ask_study(ask: Callable[..., Answer], values: dict[str, Any], what: str) -> int:
    """Ask a question whose loads are simulated, with a command's values; the exit code.

    Progress counts `what`. Ctrl-C shows what was found by then.
    """
    report, as_json = values.pop("report"), values.pop("as_json")
    values |= {"store": not values.pop("no_store"), "slo": values.pop("slo_name")}
    values |= {f"{name}_s": values.pop(name) for name in DURATIONS if name in values}
    with watched(what, interrupted=partial(show_interrupted, as_json=as_json)) as progress:
        answer = ask(**values, progress=progress)
    code = show(answer, as_json=as_json)
    write_report(answer, report, as_json=as_json)
    return code


def command_line(arguments: list[str] | None = None) -> str:
    """The command that repeats this run, ready for a shell; by default this process's."""
    return shlex.join(["headcount", *(sys.argv[1:] if arguments is None else arguments)])


def write_report(answer: Answer, path: Path | None, *, as_json: bool) -> None:
    """Write the report that was asked for, if any."""
    if path is not None:
        answer.report(path, command=command_line())
        click.echo(f"report: {path}", err=as_json)


def listing(
    what: str, found: list[dict[str, Any]], columns: Sequence[str], rows: Sequence[Sequence[str]], *, as_json: bool
) -> int:
    """Print what is known, as JSON or as a plain table; the exit code."""
    if as_json:
        print_json({"schema_version": 1, what: found})
    else:
        draw([Table(columns=tuple(columns), rows=rows, text_columns=tuple(range(len(columns))))])
    return 0
