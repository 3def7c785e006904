"""`headcount optimize`: the engine arguments that serve the most users."""

import click

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
from headcount.inputs.prices import GPUPriceInput
from headcount.inputs.search import OptimizeSearch
from headcount.queries.optimize import optimize


@click.command("optimize", cls=QuestionCommand)
@inputs(OptimizeSearch, without=("router",))
@deployment_options(has_log=False, always_none=True, tensor_parallel_size="the best that fits")
@inputs(GPUPriceInput)
@traffic_options
@slo_options
@scheduler_options(inputs(OptimizeSearch, "router"), always_none=True)
@study_options
def command(given: Given) -> int:
    """Search for the engine arguments that serve the most users. Arguments that you give stay fixed.

    Optuna proposes candidates, which are screened by an estimate. The best are simulated with the same users: briefly
    at first, then those that are close with more replications. The output shows the best arguments, the command that
    starts the server, and the Pareto frontier of users, TTFT and TPOT. Needs headcount[optimize].
    """
    return ask(optimize, given, counts="choices")
