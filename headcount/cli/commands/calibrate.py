"""`headcount calibrate`: fit to a real server, and compare with it."""

import click

from headcount.cli.command import OTHER, QuestionCommand
from headcount.cli.command_group import NearestGroup
from headcount.cli.commands.calibrate_check_scheduler import check_scheduler_command
from headcount.cli.commands.calibrate_fit import check_command, fit_command
from headcount.cli.commands.calibrate_record import record_command
from headcount.cli.given import Given
from headcount.cli.option_types import Reads, json_option, option
from headcount.cli.options import inputs
from headcount.cli.output import finish
from headcount.inputs.measured import MeasuredInput
from headcount.inputs.out_path import OutPath
from simulator.engines.values import FilePath


@click.group("calibrate", cls=NearestGroup)
def command() -> None:
    """Fit step times to a real server, and check answers against it."""


for each in (fit_command, check_command, record_command, check_scheduler_command):
    command.add_command(each)


@command.command("read", cls=QuestionCommand)
@click.argument("files", nargs=-1, required=True, type=Reads(FilePath()))
@inputs(MeasuredInput, "format_name", heading=OTHER)
@option("--before", FilePath(), "The /metrics snapshot from before the run.")
@option("--out", OutPath(suffixes=(".csv", ".parquet")), "Write all requests as a table: .csv or .parquet.")
@json_option
def read_command(given: Given) -> int:
    """Show what benchmark results, traces, logs and metrics of real servers contain.

    The output lists the tool, the load, and the latencies computed from the requests and as reported by the tool. It
    also lists what was left out and why, and figures that differ by more than 1 %.
    """
    from headcount.queries.calibrate.read import check_table, read  # noqa: PLC0415  imported once the command runs

    if (out := given.path("out")) is not None:
        check_table(out)
    answer = read(**given.arguments(read, paths=given.values["files"]))
    written = None if out is None else answer.save_requests(out)
    code = finish(answer, given)
    if written is not None:
        click.echo(f"wrote {written:,} requests to {out}", err=True)
    return code
