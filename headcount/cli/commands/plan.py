"""`headcount plan`: the cheapest fleet for so many people."""

import click

from headcount.cli.command import QuestionCommand, section
from headcount.cli.given import Given
from headcount.cli.options import (
    argument_options,
    engine_options,
    inputs,
    model_option,
    output_options,
    report_options,
    running_options,
    scheduler_options,
    strict_option,
    traffic_options,
    vllm_args_option,
)
from headcount.inputs.disaggregation import LinkInput
from headcount.inputs.people import PeopleInput
from headcount.inputs.prices import PriceInput
from headcount.inputs.run import RunInput
from headcount.inputs.search import PlanSearch
from headcount.inputs.slo import SLOInput
from headcount.inputs.traffic import TrafficInput
from simulator.engines.argument import MEMORY


@click.command("plan", cls=QuestionCommand)
@inputs(PeopleInput)
@section("Choice", model_option)
@inputs(PlanSearch, "gpu", "quantization", "kv_cache_dtype")
@section(
    "Deployment",
    argument_options(
        MEMORY, without=("quantization", "kv_cache_dtype"), default_text={"tensor_parallel_size": "all that fit"}
    ),
)
@vllm_args_option
@engine_options()
@strict_option
@inputs(PriceInput)
@traffic_options
@inputs(SLOInput)
@scheduler_options(inputs(PlanSearch, "router"))
@inputs(PlanSearch, "pools")
@inputs(LinkInput)
@inputs(PlanSearch, "precision", "replications")
@running_options
@inputs(PlanSearch, "explain")
@report_options
@output_options
def command(given: Given) -> int:
    """Find the cheapest fleet that serves a number of users within the SLO.

    Give one of --users, --employees, --requests-per-s and --tokens-per-day. Each layout of each GPU is screened by an
    estimate first. The cheapest of each GPU are then simulated, with as few servers as serve all users.

    With --pools, disaggregated prefill/decode is searched as well: the numbers of prefill engines and decode engines.
    """
    from headcount.cli.output import ask  # noqa: PLC0415  imported once the command runs
    from headcount.queries.plan import plan  # noqa: PLC0415

    return ask(
        plan,
        given,
        lambda progress: plan(
            given.text("model"),
            people=given.input(PeopleInput),
            workload=given.text("workload"),
            traffic=given.input(TrafficInput),
            slo=given.input(SLOInput),
            engine=given.engine.without("quantization", "kv_cache_dtype"),
            search=given.input(PlanSearch),
            link=given.input(LinkInput),
            prices=given.input(PriceInput),
            run=given.input(RunInput, progress=progress),
        ),
        counts="fleets simulated",
    )
