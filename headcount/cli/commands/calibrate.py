"""`headcount calibrate`: fit to a real server, and compare with it."""

from pathlib import Path

import click

from headcount.cli.command import OTHER, QuestionCommand, all_of, section
from headcount.cli.command_group import NearestGroup
from headcount.cli.commands.calibrate_check_scheduler import check_scheduler_command
from headcount.cli.commands.calibrate_record import record_command
from headcount.cli.given import Given
from headcount.cli.option_types import Reads, flag, json_option, option
from headcount.cli.options import (
    answer_options,
    cold_start_option,
    engine_argument_options,
    inputs,
    scheduler_options,
)
from headcount.cli.output import ask, finish
from headcount.cli.progress import watched
from headcount.inputs.measured import MeasuredInput
from headcount.inputs.out_path import OutPath
from headcount.inputs.routing import RoutingInput
from simulator.engines.values import Duration, FilePath, Text

_measured = all_of(
    section("Measurements", click.argument("paths", nargs=-1, required=True, type=Reads(FilePath()))),
    inputs(
        MeasuredInput,
        "format_name",
        "length_spread",
        "warmup_s",
        "until_s",
        "prefix_hit_rate",
        "sent",
        "trace_block_size",
        "before",
        "rate",
        "concurrency",
        "duration_s",
    ),
    section("Measurements", cold_start_option),
    inputs(MeasuredInput, "model", "gpu"),
    engine_argument_options(),
    scheduler_options(inputs(RoutingInput, "router")),
)


@click.command("fit", cls=QuestionCommand)
@_measured
@section(
    "Output",
    option("--out", OutPath(example="profile.toml"), "The latency profile to write (TOML).", required=True),
    option("--name", Text(), "Name of the profile.  [default: the file's]"),
    flag("--force", "Write the profile even if it does not match the data that it was fitted to."),
)
@answer_options
def fit_command(given: Given) -> int:
    """Fit step times to measurements of a deployment; writes a profile for --latency-profile.

    PATHS are recordings of engine steps (headcount calibrate record), or results of benchmark clients, or folders of
    them. Options given here override the server settings in the files. Overloaded runs are left out.
    """
    from headcount.queries.calibrate.fit import fit  # noqa: PLC0415  imported once the command runs

    out = given.path("out") or Path()
    with watched("fit") as progress:
        name = given.values["name"] or out.stem
        answer = fit(**given.arguments(fit, name=name, engine=given.engine_given, progress=progress))
    return finish(answer.save(out), given)


@click.command("check", cls=QuestionCommand)
@_measured
@section(
    "Limits",
    option(
        "--ttft",
        Duration(),
        "Limit on the mean time to first token. The check compares the load that reaches it.  [default: 1s]",
    ),
    option("--tpot", Duration(), "Limit on the mean time per output token.  [default: 50ms]"),
)
@answer_options
def check_command(given: Given) -> int:
    """Simulate measured runs as they were sent, and check whether the server is as fast as expected.

    PATHS are results of benchmark clients, server logs, or recordings of engine steps (headcount calibrate record).
    For a recording, the time of each recorded batch is compared with the simulated one.

    Each simulated latency is compared with the measured one. If the error is larger than servers usually differ, the
    runs are simulated again with eager mode, other GPUs, formats and limits, and the best explanation is shown.

    Overloaded runs (failed requests, a growing queue, a rate that was not reached) are listed separately and excluded
    from the averages.
    """
    from headcount.queries.calibrate.check import check  # noqa: PLC0415  imported once the command runs

    ttft_s, tpot_s = given.values["ttft"], given.values["tpot"]
    return ask(check, given, counts="runs", engine=given.engine_given, ttft_s=ttft_s, tpot_s=tpot_s)


@click.group("calibrate", cls=NearestGroup)
def command() -> None:
    """Fit step times to a real server, and check answers against it."""


for each in (fit_command, check_command, record_command, check_scheduler_command):
    command.add_command(each)


@command.command("read", cls=QuestionCommand)
@click.argument("files", nargs=-1, required=True, type=Reads(FilePath()))
@inputs(MeasuredInput, "format_name", "before", heading=OTHER)
@option("--out", OutPath(suffixes=(".csv", ".parquet")), "Write all requests as a table: .csv or .parquet.")
@json_option
def read_command(given: Given) -> int:
    """Show what benchmark results, traces, logs and metrics of real servers contain; - is standard input.

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
