"""`headcount compare`: layouts side by side."""

import click

from headcount.cli.command import QuestionCommand
from headcount.cli.given import Given
from headcount.cli.options import inputs, listed_deployment_options, slo_options, study_options, traffic_options
from headcount.cli.output import ask
from headcount.inputs.disaggregation import ComparedPoolsInput
from headcount.inputs.prices import GPUPriceInput
from headcount.inputs.search import CompareSearch
from headcount.queries.compare import compare


@click.command("compare", cls=QuestionCommand)
@listed_deployment_options(gpus="8", router=inputs(CompareSearch, "router"))
@inputs(ComparedPoolsInput)
@inputs(CompareSearch, without=("router",))
@inputs(GPUPriceInput)
@traffic_options
@slo_options
@study_options
def command(given: Given) -> int:
    """Compare layouts. --gpu, --gpus, --router and each engine option may be a list, such as -tp 1,2,4.

    Each combination is screened by an estimate. The promising ones are simulated with the same users and requests. The
    first value of each list is the base. The output shows the gain of each change from the base to the best layout.
    """
    return ask(compare, given, counts="layouts")
