"""`headcount fleet`: users of pools of different GPUs behind one router."""

from typing import Any

import click

from headcount.cli.command import Command, section
from headcount.cli.option_types import option
from headcount.cli.options import (
    ROUTERS,
    argument_options,
    model_option,
    output_options,
    precision_options,
    report_options,
    slo_options,
    strict_option,
    study_options,
    traffic_options,
    vllm_args_option,
)
from simulator.engines.argument import MEMORY, SCHEDULER, STEP_TIME
from simulator.engines.values import ROUTER, GPUCounts


@click.command("fleet", cls=Command)
@section(
    "Deployment",
    model_option,
    option(
        "--pools", GPUCounts(), "GPUs of each pool, such as h100-sxm=4,l40s=8; see 'headcount gpus'.", required=True
    ),
    argument_options(MEMORY, default_text={"tensor_parallel_size": "the best that fits, pool by pool"}),
)
@vllm_args_option
@strict_option
@section("Search", precision_options(precision="3%"))
@traffic_options
@slo_options
@section(
    "Scheduler",
    argument_options(SCHEDULER),
    option("--router", ROUTER, ROUTERS, default="shortest-expected-delay"),
)
@section("Step times", argument_options(STEP_TIME))
@study_options
@report_options
@output_options
def command(**values: Any) -> int:
    """Find how many users pools of different GPUs serve together, such as old servers beside new ones.

    Each pool is searched alone first, as `headcount capacity` does, then all of them behind one router. Unless
    --router says otherwise it sends a request where the fewest are outstanding for what an engine serves.
    """
    from headcount.cli.output import ask_study  # noqa: PLC0415  imported once the command runs

    return ask_study("headcount.queries.heterogeneous_fleet:fleet", values, "searches")
