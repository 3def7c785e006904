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


@command.command("memory-page")
@click.option(
    "--examples",
    type=FilePath(),
    help="CSV of what the guides claim: id, line, claimed, recomputed, verdict.  [default: as on the page at --out]",
)
@click.option("--out", required=True, type=FilePath(), help="The Markdown file to write; what it claims is kept.")
def memory_page_command(examples: Path | None, out: Path) -> int:
    """Write the page on the memory model: formulas, and the worked examples of widely read guides recomputed."""
    from calibrate.memory_page import known_claims, memory_page  # noqa: PLC0415  imported once the command runs
    from headcount.cli.out_files import check_out_file, write_whole  # noqa: PLC0415

    check_out_file("--out", out, example="memory.md")
    if examples is not None and not examples.is_file():
        raise ValueError(f"--examples: no file {examples}")
    write_whole(out, memory_page(known_claims(examples, out)))
    click.echo(f"wrote {out}")
    return 0


@command.command("fidelity-report")
@click.argument("results", nargs=-1, required=True, type=FilePath())
@click.option("--out", required=True, type=FilePath(), help="The Markdown file to write.")
def fidelity_report_command(results: tuple[Path, ...], out: Path) -> int:
    """Write the page on what was compared with vLLM from saved results of check-scheduler and check-engine --json."""
    from calibrate.conformance.fidelity_report import check_result, fidelity_page  # noqa: PLC0415  imported once the command runs
    from headcount.cli.json_output import read_json_object  # noqa: PLC0415
    from headcount.cli.out_files import check_out_file, write_whole  # noqa: PLC0415

    check_out_file("--out", out, example="fidelity.md")
    found = [read_json_object(path) for path in results]
    for path, result in zip(results, found, strict=True):
        check_result(path, result)
    page = fidelity_page(
        [result for result in found if "pairs" in result], [result for result in found if "attention" in result]
    )
    write_whole(out, page)
    click.echo(f"wrote {out}")
    return 0


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
