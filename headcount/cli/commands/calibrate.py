"""`headcount calibrate`: beside the real vLLM."""

from pathlib import Path

import click

from headcount.cli.command_group import NearestGroup
from headcount.cli.commands.calibrate_checks import COMMANDS as CHECKS
from headcount.cli.commands.calibrate_fit import check_command, fit_command
from headcount.cli.commands.calibrate_record import record_command
from headcount.cli.option_types import FilePath


@click.group("calibrate", cls=NearestGroup)
def command() -> None:
    """Compare with the real vLLM, fit to it."""


for each in (fit_command, check_command, record_command, *CHECKS):
    command.add_command(each)


@command.command("read")
@click.argument("files", nargs=-1, required=True, type=FilePath())
@click.option("--format", "format_name", help="Of all files: a name, or module:Name.  [default: by their content]")
@click.option("--before", type=FilePath(), help="The /metrics snapshot from before the run.")
@click.option("--out", type=FilePath(), help="All requests as a table: .csv or .parquet.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def read_command(
    files: tuple[Path, ...], format_name: str | None, before: Path | None, out: Path | None, as_json: bool
) -> int:
    """Say what benchmark results, traces, logs and metrics of real servers hold.

    Tool, load, latencies from the requests beside the tool's own figures, what was left out and why; figures that
    differ by more than 1 % are said.
    """
    from headcount.cli.json_output import print_json  # noqa: PLC0415
    from headcount.text import calibrate_text  # noqa: PLC0415  imported once the command runs

    if out is not None:
        calibrate_text.check_out(out)
    found = calibrate_text.read_files(files, format_name, before)
    written = None if out is None else calibrate_text.write_requests(found, out)
    if as_json:
        print_json({"schema_version": 1, "files": [file.to_json() for file in found]})
    else:
        calibrate_text.print_files(found)
    if written is not None:
        click.echo(f"wrote {written:,} requests to {out}", err=True)
    return 0
