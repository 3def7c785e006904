"""`headcount compare`: layouts side by side."""

from typing import Any

import click

from headcount.cli.command import Command, section
from headcount.cli.option_types import flag, option
from headcount.cli.options import (
    between_options,
    decider_option,
    kv_transfer_option,
    listed_deployment_options,
    output_options,
    precision_options,
    report_options,
    slo_options,
    study_options,
    traffic_options,
)
from simulator.engines.values import Text
from simulator.fleet.pool_sizes import ComparedPools


@click.command("compare", cls=Command)
@listed_deployment_options(gpus="8")
@section(
    "Prefill and decode apart",
    option(
        "--pools",
        ComparedPools(),
        "prefill=1,decode=3, or together: --gpus that do both. May be repeated.",
        multiple=True,
    ),
)
@kv_transfer_option(multiple=True)
@between_options
@decider_option(multiple=True)
@section(
    "Ranking",
    option("--sort", Text(), "Rank by: cost (per user), users, ttft, tpot, or month (cost per month).", default="cost"),
    flag("--all simulate_all", "Also simulate layouts that are far behind by their estimate."),
    precision_options(precision="5%"),
)
@traffic_options
@slo_options
@study_options
@report_options
@output_options
def command(**values: Any) -> int:
    """Compare layouts: --gpu, --gpus, --router and every engine option may be a list, such as -tp 1,2,4.

    Every combination is screened by an estimate; those that are not far behind are simulated with the same users and
    requests in each. The first value of every list is the base. The output shows what each change from the base to the
    best layout gains.
    """
    from headcount.cli.output import ask_study  # noqa: PLC0415  imported once the command runs

    return ask_study("headcount.queries.compare:compare", values, "layouts")
