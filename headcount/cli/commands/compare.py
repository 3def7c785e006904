"""`headcount compare`: layouts side by side."""

from functools import partial
from typing import Any

import click

from headcount.cli.command import Command, section
from headcount.cli.option_types import OutPath, flag, option
from headcount.cli.options import (
    listed_deployment_options,
    output_options,
    slo_options,
    study_options,
    workload_options,
)
from simulator.engines.values import Share, Text, WholeNumber


@click.command("compare", cls=Command)
@listed_deployment_options(gpus="8")
@section(
    "Ranking",
    option("--sort", Text(), "Rank by: cost (per user), users, ttft, tpot, or month (cost per month).", default="cost"),
    flag("--all simulate_all", "Also simulate layouts that are far behind by their estimate."),
    option("--precision", Share(), "Half of the sampling interval, as a share of the users.", default="5%"),
    option(
        "--replications", WholeNumber(2, 10_000), "Independent runs of a load.  [default: as many as --precision takes]"
    ),
)
@section(
    "Traffic",
    option(
        "--workload", Text(may_be_path=True), "A preset, or a trace file (Azure CSV, Mooncake JSONL).", default="chat"
    ),
    workload_options,
)
@slo_options
@study_options
@section(
    "Output",
    option("--report", OutPath(suffixes=(".html",), is_report=True), "Also write an HTML report to this file."),
)
@output_options
def command(**values: Any) -> int:
    """Compare layouts: --gpu, --gpus, --router and every engine option may be a list, such as -tp 1,2,4.

    Every combination is screened by an estimate; those that are not far behind are simulated with the same users and
    requests in each. The first value of every list is the base, over which the best layout's gain is told change by
    change.
    """
    from headcount.answers.varied.compare import compare  # noqa: PLC0415  imported once the command runs
    from headcount.cli.output import show, show_interrupted, write_report  # noqa: PLC0415
    from headcount.cli.progress import watched  # noqa: PLC0415

    report, as_json = values.pop("report"), values.pop("as_json")
    times = {"ttft_s": values.pop("ttft"), "tpot_s": values.pop("tpot"), "think_time_s": values.pop("think_time")}
    values["store"] = not values.pop("no_store")
    with watched("layouts", interrupted=partial(show_interrupted, as_json=as_json)) as progress:
        answer = compare(slo=values.pop("slo_name"), **values, **times, progress=progress)
    code = show(answer, as_json=as_json)
    write_report(answer, report, as_json=as_json)
    return code
