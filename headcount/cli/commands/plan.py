"""`headcount plan`: the cheapest fleet for so many people."""

import click

from headcount.cli.command import QuestionCommand, section
from headcount.cli.given import Given
from headcount.cli.options import (
    answer_options,
    engine_argument_options,
    inputs,
    model_option,
    running_options,
    scheduler_options,
    slo_options,
    traffic_options,
)
from headcount.cli.output import ask
from headcount.inputs.disaggregation import LinkInput
from headcount.inputs.people import PeopleInput
from headcount.inputs.prices import PriceInput
from headcount.inputs.search import PlanSearch
from headcount.queries.plan import plan

_FORMATS = ("quantization", "kv_cache_dtype")  # which are chosen


@click.command("plan", cls=QuestionCommand)
@inputs(PeopleInput)
@section("Choice", model_option)
@inputs(PlanSearch, "gpu", *_FORMATS)
@engine_argument_options(has_log=False, without=_FORMATS, tensor_parallel_size="all that fit")
@inputs(PriceInput)
@traffic_options
@slo_options
@scheduler_options(inputs(PlanSearch, "router"))
@inputs(PlanSearch, "pools")
@inputs(LinkInput)
@inputs(PlanSearch, "precision", "replications")
@running_options
@answer_options
def command(given: Given) -> int:
    """Find the cheapest fleet that serves a number of users within the SLO.

    Give one of --users, --employees, --requests-per-s and --tokens-per-day. Each layout of each GPU is screened by an
    estimate first. The cheapest of each GPU are then simulated, with as few servers as serve all users.

    With --pools, disaggregated prefill/decode is searched as well: the numbers of prefill engines and decode engines.
    """
    return ask(plan, given, counts="fleets simulated", engine=given.engine.without(*_FORMATS))
