"""`headcount capacity`: users per GPU count."""

from typing import Any

import click

from files.errors import HeadcountError
from headcount.cli.command import Command, section
from headcount.cli.option_types import flag, option
from headcount.cli.options import (
    apart_options,
    deployment_options,
    gateway_options,
    output_options,
    precision_options,
    report_options,
    scheduler_options,
    slo_options,
    study_options,
    traffic_options,
)
from simulator.engines.values import IntegerList, Share

_GPUS = "1,2,4,8"
_OF_GPU_COUNTS = {
    "gpus": IntegerList().read(_GPUS), "hours_met": None, "suggestions": False, "startup_log": None,
    "flow_control": None, "tenants": None,
}  # fmt: skip


@click.command("capacity", cls=Command)
@deployment_options(tensor_parallel_size="all that fit")
@section(
    "Search",
    option("--gpus", IntegerList(), "GPU counts to answer for.", default=_GPUS),
    precision_options(precision="3%"),
    option(
        "--hours-met",
        Share(),
        "Share of clock hours that have to meet the SLO, such as 95%; runs are an hour long.  [default: the long run]",
    ),
    flag("--lifts", "Also try what gains most: one setting changed at a time, simulated with the same users."),
)
@apart_options
@traffic_options
@gateway_options
@slo_options
@scheduler_options
@study_options
@report_options
@output_options
def command(**values: Any) -> int:
    """Find how many concurrent users each GPU count serves within the SLO.

    Users are active sessions, thinking or waiting. For each GPU count every tensor-parallel size that holds the
    model is tried. Loads around the capacity are simulated again and again, until it is known to --precision, but no
    more than 300 times; the exit code is 3 where that does not suffice.

    With --pools the answer is for those engines: some compute prompts, the others compute answers.
    """
    from headcount.cli.output import ask_study  # noqa: PLC0415  imported once the command runs
    from headcount.inputs.disaggregation import check_alone  # noqa: PLC0415  the same

    if values["pools"] is None:
        del values["pools"]
        check_alone(*(values.pop(name) for name in ("kv_transfer_rate", "dispatch_s", "kv_transfer", "decider")))
        return ask_study("headcount.queries.capacity:capacity", values, "users per GPU count")
    for name, default in _OF_GPU_COUNTS.items():
        if values.pop(name) != default:
            raise HeadcountError(f"--{name.replace('_', '-')} goes with GPU counts; leave it out, or leave --pools out")
    return ask_study("headcount.queries.disaggregation:capacity_apart", values, "the search")
