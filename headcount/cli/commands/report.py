"""`headcount report`: a report of an answer that was kept."""

from pathlib import Path

import click

from headcount.cli.command import Command, section
from headcount.cli.option_types import REPORT_PATH, Reads, option
from simulator.engines.values import FilePath


@click.command("report", cls=Command)
@click.argument("answer", metavar="ANSWER", type=Reads(FilePath()))
@section("Output", option("--out -o", REPORT_PATH, "The report to write.", required=True))
def command(answer: Path, out: Path) -> int:
    """Write a report of a saved answer: a file from --json or --report FILE.json, or an .html report.

    The file extension sets the format: .html, .md, .pdf, .csv, .json, or .svg for the first chart. Nothing is
    simulated.
    """
    from headcount.views.report.source import report_file  # noqa: PLC0415  imported once the command runs

    report_file(answer, out)
    click.echo(f"report: {out}")
    return 0
