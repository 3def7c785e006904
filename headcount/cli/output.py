"""An answer as a command shows it: text or JSON on stdout, warnings and errors on stderr, a report, the exit code."""

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final

import click

from headcount.cli.progress import listener, watched
from headcount.cli.rendered_output import Shown, json_text, shown
from headcount.cli.saved_answers import repeatable
from headcount.queries.result import Result
from headcount.text.blocks import Table
from headcount.views.report import document
from headcount.views.shown import blocks
from headcount.views.terminal.drawing import draw

DURATIONS: Final = ("ttft", "tpot", "think_time", "response_time")  # options that Python names with their unit


def print_json(value: dict[str, Any]) -> None:
    """One object on stdout."""
    print(json_text(value))


def show(answer: Result, *, as_json: bool) -> int:
    """Print an answer, or hand it to who listens; its exit code."""
    return finish(answer, None, as_json=as_json)


def finish(
    answer: Result,
    report: Path | None,
    *,
    as_json: bool,
    told: Sequence[str] = (),
    kept: Callable[[Shown], Shown] = lambda found: found,
) -> int:
    """The same, with the report that was asked for, if any; `kept` keeps what is shown for the next time."""
    if (heard := listener()) is not None:
        heard.answered(answer)
        return int(answer.verdict)
    asked = replace(answer, asked=command_line())
    found = kept(shown(asked, is_whole=as_json or report is not None, told=told))
    return show_with_report(found, found.show, report, as_json=as_json)


def show_with_report(found: Shown, show: Callable[..., int], report: Path | None, *, as_json: bool) -> int:
    """Print an answer, then write its report, if any, also where the reader of the output has had enough."""
    try:
        return show(as_json=as_json)
    finally:
        if report is not None and found.whole is not None:
            answer = json.loads(found.whole)
            answer["report"]["asked"] = command_line()
            document.write(report, answer)
            click.echo(f"report: {report}", err=as_json)


def show_interrupted(answer: Result, *, as_json: bool) -> None:
    """What was found before Ctrl-C, on stdout."""
    if as_json:
        print_json({**answer.to_json(), "interrupted": True})
    elif answer.rows():
        draw(blocks(answer))


def ask_study(ask: str, values: dict[str, Any], what: str) -> int:
    """Ask a question whose loads are simulated, `module:function`, with a command's values; the exit code.

    A question that was asked before is answered from the cache folder, as JSON and as a report if it was one of both
    then. Progress counts `what`. Ctrl-C shows what was found by then.
    """
    report, as_json = values.pop("report"), values.pop("as_json")
    values |= {"store": not values.pop("no_store"), "slo": values.pop("slo_name")}
    values |= {f"{name}_s": values.pop(name) for name in DURATIONS if name in values}
    asked = None
    if values["store"] and listener() is None:
        asked = repeatable(click.get_current_context(), ask, values)
    is_whole = as_json or report is not None
    if asked and (known := asked.find()) and (known.whole is not None or not is_whole):
        return show_with_report(known, known.show_again, report, as_json=as_json)
    told: list[str] = []
    interrupted = partial(show_interrupted, as_json=as_json)
    with watched(what, interrupted=interrupted, told=told) as progress, asked.watched() if asked else nullcontext():
        answer: Result = resolve_name(ask)(**values, progress=progress)
        if is_whole:
            answer.complete()
    if asked is None:
        return finish(answer, report, as_json=as_json)
    return finish(answer, report, as_json=as_json, told=told, kept=asked.kept)


def command_line(arguments: list[str] | None = None) -> str:
    """The command that repeats this run, ready for a shell; by default this process's."""
    return shlex.join(["headcount", *(sys.argv[1:] if arguments is None else arguments)])


def listing(
    what: str, found: list[dict[str, Any]], columns: Sequence[str], rows: Sequence[Sequence[str]], *, as_json: bool
) -> int:
    """Print what is known, as JSON or as a plain table; the exit code."""
    if as_json:
        print_json({"schema_version": 1, what: found})
    else:
        draw([Table(columns=tuple(columns), rows=rows, text_columns=tuple(range(len(columns))))])
    return 0
