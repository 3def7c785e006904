"""An answer as a command shows it: text or JSON on stdout, warnings and errors on stderr, a report, the exit code."""

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from headcount.cli.given import Given
from headcount.cli.progress import listener, watched
from headcount.cli.saved_answers import Shown, json_text, repeatable, shown
from headcount.inputs.question import input_groups
from headcount.inputs.run import RunInput
from headcount.queries.result import Result
from headcount.text.blocks import Table
from headcount.version import SCHEMA_VERSION
from headcount.views.shown import blocks
from headcount.views.terminal.drawing import draw


def print_json(value: dict[str, object]) -> None:
    """One object on stdout."""
    print(json_text(value))


def finish(
    answer: Result, given: Given, *, told: Sequence[str] = (), kept: Callable[[Shown], Shown] = lambda found: found
) -> int:
    """Print an answer, or hand it to who listens, with the report that was asked for, if any; its exit code.

    `kept` keeps what is shown for the next time.
    """
    if (heard := listener()) is not None:
        heard.answered(answer)
        return int(answer.verdict)
    report, as_json, asked = given.path("report"), given.is_on("as_json"), replace(answer, asked=command_line())
    found = kept(shown(asked, is_whole=as_json or report is not None, told=told))
    return show_with_report(found, found.show, report, as_json=as_json)


def show_with_report(found: Shown, show: Callable[..., int], report: Path | None, *, as_json: bool) -> int:
    """Print an answer, then write its report, if any, also where the reader of the output has had enough."""
    try:
        return show(as_json=as_json)
    finally:
        if report is not None and found.whole is not None:
            from headcount.views.report import document  # noqa: PLC0415  imported where one is asked for

            document.write(report, json.loads(found.whole))
            click.echo(f"report: {report}", err=as_json)


def show_interrupted(answer: Result, *, as_json: bool) -> None:
    """What was found before Ctrl-C, on stdout."""
    if as_json:
        print_json({**answer.to_json(), "interrupted": True})
    elif answer.rows():
        draw(blocks(answer))


def ask(
    question: Callable[..., Result],
    given: Given,
    *,
    counts: str,
    then: Callable[[Result], None] | None = None,
    **more: object,
) -> int:
    """Ask a question with what a command was given, and `more`; the exit code.

    Progress counts what `counts` says. A question that simulates a study and was asked before is answered from the
    cache folder, as JSON and as a report if it was one of both then; not where `then` takes the answer once it is
    shown. Ctrl-C shows what was found by then.
    """
    report, as_json = given.path("report"), given.is_on("as_json")
    is_whole, told = as_json or report is not None, list[str]()
    saved = None
    if RunInput in input_groups(question).values() and not given.is_on("no_store") and listener() is None:
        saved = repeatable(click.get_current_context(), question.__name__, given)
    if saved and not then and (known := saved.find()) and (known.whole is not None or not is_whole):
        known = known.asked_by(command_line())
        return show_with_report(known, known.show_again, report, as_json=as_json)
    interrupted = partial(show_interrupted, as_json=as_json)
    with watched(counts, interrupted=interrupted, told=told) as progress, saved.watched() if saved else nullcontext():
        answer = question(**given.arguments(question, progress=progress, **more))
        if is_whole:
            answer.complete()
    code = finish(answer, given, told=told, kept=saved.kept) if saved else finish(answer, given)
    if then is not None and listener() is None:
        then(answer)
    return code


def command_line(arguments: list[str] | None = None) -> str:
    """The command that repeats this run, ready for a shell; by default this process's."""
    return shlex.join(["headcount", *(sys.argv[1:] if arguments is None else arguments)])


def listing(
    what: str, found: list[dict[str, object]], columns: Sequence[str], rows: Sequence[Sequence[str]], *, as_json: bool
) -> int:
    """Print what is known, as JSON or as a plain table; the exit code."""
    if as_json:
        print_json({"schema_version": SCHEMA_VERSION, what: found})
    else:
        draw([Table(columns=tuple(columns), rows=rows, text_columns=tuple(range(len(columns))))])
    return 0
