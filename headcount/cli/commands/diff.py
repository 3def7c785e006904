"""`headcount diff`: what two answers differ by."""

import click

from headcount.cli.command import QuestionCommand
from headcount.cli.given import Given
from headcount.cli.option_types import Reads, json_option
from headcount.cli.options import report_options
from headcount.cli.output import finish
from headcount.queries.diff import diff
from simulator.engines.values import FilePath


@click.command("diff", cls=QuestionCommand)
@click.argument("before", metavar="BEFORE", type=Reads(FilePath()))
@click.argument("after", metavar="AFTER", type=Reads(FilePath()))
@report_options
@json_option
def command(given: Given) -> int:
    """Compare two saved answers: what changed in the question, and what changed in the answer.

    Both are files that --json or --report wrote. Nothing is simulated.
    """
    return finish(diff(**given.arguments(diff)), given)
