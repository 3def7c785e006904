"""`headcount capacity`: users per GPU count."""

from functools import partial
from typing import Any

import click

from headcount.cli.command import Command, section
from headcount.cli.option_types import OutPath, flag, option
from headcount.cli.options import (
    deployment_options,
    output_options,
    scheduler_options,
    slo_options,
    study_options,
    workload_options,
)
from simulator.engines.values import IntegerList, Share, Text, WholeNumber


@click.command("capacity", cls=Command)
@deployment_options(tensor_parallel_size="all that fit")
@section(
    "Search",
    option("--gpus", IntegerList(), "GPU counts to answer for.", default="1,2,4,8"),
    option("--precision", Share(), "Half of the sampling interval, as a share of the users.", default="3%"),
    option(
        "--replications", WholeNumber(2, 10_000), "Independent runs of a load.  [default: as many as --precision takes]"
    ),
    option(
        "--hours-met",
        Share(),
        "Share of clock hours that have to meet the SLO, such as 95%; runs are an hour long.  [default: the long run]",
    ),
    flag("--lifts", "Also try what gains most: one setting changed at a time, simulated with the same users."),
)
@section(
    "Traffic",
    option(
        "--workload", Text(may_be_path=True), "A preset, or a trace file (Azure CSV, Mooncake JSONL).", default="chat"
    ),
    workload_options,
)
@slo_options
@scheduler_options
@study_options
@section(
    "Output",
    option("--report", OutPath(suffixes=(".html",), is_report=True), "Also write an HTML report to this file."),
)
@output_options
def command(**values: Any) -> int:
    """Find how many concurrent users each GPU count serves within the SLO.

    Users are active sessions, thinking or waiting. For each GPU count every tensor-parallel size that holds the
    model is tried. Loads around the capacity are simulated again and again, until it is known to --precision, but no
    more than 200 times; the exit code is 3 where that does not suffice.
    """
    from headcount.answers.capacity import capacity  # noqa: PLC0415  imported once the command runs
    from headcount.cli.output import show, show_interrupted, write_report  # noqa: PLC0415
    from headcount.cli.progress import watched  # noqa: PLC0415

    report, as_json = values.pop("report"), values.pop("as_json")
    times = {"ttft_s": values.pop("ttft"), "tpot_s": values.pop("tpot"), "think_time_s": values.pop("think_time")}
    values["store"] = not values.pop("no_store")
    interrupted = partial(show_interrupted, as_json=as_json)
    with watched("users per GPU count", interrupted=interrupted) as progress:
        answer = capacity(slo=values.pop("slo_name"), **values, **times, progress=progress)
    code = show(answer, as_json=as_json)
    write_report(answer, report, as_json=as_json)
    return code
