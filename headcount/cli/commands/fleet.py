"""`headcount fleet`: users of pools of different GPUs behind one router."""

import click

from headcount.cli.command import QuestionCommand, section
from headcount.cli.given import Given
from headcount.cli.option_types import option
from headcount.cli.options import (
    argument_options,
    inputs,
    model_option,
    scheduler_options,
    slo_options,
    strict_option,
    study_options,
    traffic_options,
    vllm_args_option,
)
from headcount.cli.output import ask
from headcount.inputs.prices import GPUPriceInput
from headcount.inputs.search import HeterogeneousSearch
from headcount.queries.heterogeneous_fleet import fleet
from simulator.engines.argument import MEMORY
from simulator.engines.values import GPUCounts


@click.command("fleet", cls=QuestionCommand)
@section(
    "Deployment",
    model_option,
    option(
        "--pools", GPUCounts(), "GPUs of each pool, such as h100-sxm=4,l40s=8. See 'headcount gpus'.", required=True
    ),
    argument_options(MEMORY, default_text={"tensor_parallel_size": "the best that fits, pool by pool"}),
)
@vllm_args_option
@strict_option
@inputs(HeterogeneousSearch, "precision", "replications")
@inputs(GPUPriceInput)
@traffic_options
@slo_options
@scheduler_options(inputs(HeterogeneousSearch, "router"))
@study_options
def command(given: Given) -> int:
    """Find how many users a heterogeneous fleet serves: pools of different GPUs, such as old and new servers.

    Each pool is searched alone first, as with `headcount capacity`, then all of them behind one router. The default
    router sends a request to the engine with the fewest outstanding requests relative to its capacity.
    """
    return ask(fleet, given, counts="searches")
