"""`headcount whatif`: grids over traffic, users and settings."""

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
from headcount.inputs.search import SweepInput
from headcount.queries.whatif import whatif


@click.command("whatif", cls=QuestionCommand)
@inputs(SweepInput, without=("router",))
@deployment_options(has_log=False, tensor_parallel_size="the best that fits")
@inputs(GPUPriceInput)
@traffic_options
@slo_options
@scheduler_options(inputs(SweepInput, "router"))
@study_options
def command(given: Given) -> int:
    """Run a parameter sweep: what a longer context, more users or another setting changes.

    Example: --vary context=x1,x2,x4 --vary users=250,500. Each combination is simulated with the same random numbers
    and compared with the first one. With users, the answer is GPUs and dollars, else users at 95 % confidence.
    """
    return ask(whatif, given, counts="cells")
