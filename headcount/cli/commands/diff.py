"""`headcount diff`: what two answers differ by."""

from pathlib import Path

import click

from headcount.cli.command import Command
from headcount.cli.option_types import Reads, json_option
from headcount.cli.options import report_options
from simulator.engines.values import FilePath


@click.command("diff", cls=Command)
@click.argument("before", metavar="BEFORE", type=Reads(FilePath()))
@click.argument("after", metavar="AFTER", type=Reads(FilePath()))
@report_options
@json_option
def command(before: Path, after: Path, report: Path | None, as_json: bool) -> int:
    """Compare two saved answers: what changed in the question, and what changed in the answer.

    Both are files that --json or --report wrote. Nothing is simulated.
    """
    from headcount.cli.output import finish  # noqa: PLC0415
    from headcount.queries.diff import diff  # noqa: PLC0415  imported once the command runs

    return finish(diff(before, after), report, as_json=as_json)
