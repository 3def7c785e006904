"""`headcount calibrate`: fit to a real server, and compare with it."""

from pathlib import Path

import click

from headcount.cli.command import OTHER, Command
from headcount.cli.command_group import NearestGroup
from headcount.cli.commands.calibrate_check_scheduler import check_scheduler_command
from headcount.cli.commands.calibrate_fit import check_command, fit_command
from headcount.cli.commands.calibrate_record import record_command
from headcount.cli.option_types import Reads, json_option, option
from headcount.cli.options import inputs
from headcount.inputs.measured import MeasuredInput
from headcount.inputs.out_path import OutPath
from simulator.engines.values import FilePath


@click.group("calibrate", cls=NearestGroup)
def command() -> None:
    """Fit step times to a real server, and check answers against it."""


for each in (fit_command, check_command, record_command, check_scheduler_command):
    command.add_command(each)


@command.command("read", cls=Command)
@click.argument("files", nargs=-1, required=True, type=Reads(FilePath()))
@inputs(MeasuredInput, "format_name", heading=OTHER)
@option("--before", FilePath(), "The /metrics snapshot from before the run.")
@option("--out", OutPath(suffixes=(".csv", ".parquet")), "Write all requests as a table: .csv or .parquet.")
@json_option
def read_command(
    files: tuple[Path, ...], format_name: str | None, before: Path | None, out: Path | None, as_json: bool
) -> int:
    """Show what benchmark results, traces, logs and metrics of real servers contain.

    The output lists the tool, the load, and the latencies computed from the requests and as reported by the tool. It
    also lists what was left out and why, and figures that differ by more than 1 %.
    """
    from headcount.cli.output import show  # noqa: PLC0415
    from headcount.queries.calibrate.read import check_table, read  # noqa: PLC0415  imported once the command runs

    if out is not None:
        check_table(out)
    answer = read(files, format_name=format_name, before=before)
    written = None if out is None else answer.save_requests(out)
    code = show(answer, as_json=as_json)
    if written is not None:
        click.echo(f"wrote {written:,} requests to {out}", err=True)
    return code
