"""`headcount capacity`: users per GPU count."""

from dataclasses import fields

import click

from files.errors import HeadcountError
from headcount.cli.command import QuestionCommand
from headcount.cli.given import Given
from headcount.cli.options import (
    deployment_options,
    inputs,
    scheduler_options,
    slo_options,
    study_options,
    traffic_options,
)
from headcount.cli.output import ask
from headcount.inputs.disaggregation import LinkInput, PoolsInput
from headcount.inputs.prices import GPUPriceInput
from headcount.inputs.routing import RoutingInput
from headcount.inputs.search import CapacitySearch
from headcount.queries.capacity import capacity
from headcount.queries.disaggregation import disaggregated_capacity


@click.command("capacity", cls=QuestionCommand)
@deployment_options(tensor_parallel_size="all that fit")
@inputs(CapacitySearch)
@inputs(GPUPriceInput)
@inputs(PoolsInput)
@inputs(LinkInput)
@traffic_options
@inputs(RoutingInput, "flow_control", "tenants")
@slo_options
@scheduler_options(inputs(RoutingInput, "router"))
@study_options
def command(given: Given) -> int:
    """Find how many concurrent users each GPU count serves within the SLO.

    Users are active sessions, thinking or waiting. For each GPU count, every tensor-parallel size that holds the model
    is tried. Loads around the capacity are simulated repeatedly until it is known to --precision, at most 300 times.
    Exit code 3 if that is not enough.

    With --pools the answer is for disaggregated prefill/decode: some engines compute prompts, others compute answers.
    """
    if given.input(PoolsInput).pools is None:
        given.input(LinkInput).check_alone()
        return ask(capacity, given, counts="users per GPU count")
    _check_pools(given)
    return ask(disaggregated_capacity, given, counts="the search")


def _check_pools(given: Given) -> None:
    """Raise HeadcountError for what goes with GPU counts alone."""
    search, routing, default = given.input(CapacitySearch), given.input(RoutingInput), CapacitySearch()
    alone = [item.name for item in fields(CapacitySearch) if item.name not in ("precision", "replications")]
    wrong = [name for name in alone if getattr(search, name) != getattr(default, name)]
    wrong += [name for name in ("flow_control", "tenants") if getattr(routing, name) is not None]
    wrong += ["startup_log"] if given.engine.startup_log is not None else []
    if wrong:
        raise HeadcountError(f"--{wrong[0].replace('_', '-')} goes with GPU counts; leave it out, or leave --pools out")
