"""`headcount compare`: layouts side by side."""

import click

from headcount.cli.command import QuestionCommand
from headcount.cli.given import Given
from headcount.cli.options import (
    inputs,
    listed_deployment_options,
    output_options,
    report_options,
    running_options,
    traffic_options,
)
from headcount.inputs.disaggregation import ComparedPoolsInput
from headcount.inputs.run import RunInput
from headcount.inputs.search import CompareSearch
from headcount.inputs.slo import SLOInput
from headcount.inputs.traffic import TrafficInput


@click.command("compare", cls=QuestionCommand)
@listed_deployment_options(gpus="8", router=inputs(CompareSearch, "router"))
@inputs(ComparedPoolsInput)
@inputs(CompareSearch, without=("router",))
@traffic_options
@inputs(SLOInput)
@running_options
@report_options
@output_options
def command(given: Given) -> int:
    """Compare layouts. --gpu, --gpus, --router and each engine option may be a list, such as -tp 1,2,4.

    Each combination is screened by an estimate. The promising ones are simulated with the same users and requests. The
    first value of each list is the base. The output shows the gain of each change from the base to the best layout.
    """
    from headcount.cli.output import ask  # noqa: PLC0415  imported once the command runs
    from headcount.queries.compare import compare  # noqa: PLC0415

    return ask(
        compare,
        given,
        lambda progress: compare(
            given.text("model"),
            given.texts("gpu"),
            gpus=given.numbers("gpus"),
            workload=given.text("workload"),
            traffic=given.input(TrafficInput),
            slo=given.input(SLOInput),
            engine=given.engine,
            pools=given.input(ComparedPoolsInput),
            search=given.input(CompareSearch),
            run=given.input(RunInput, progress=progress),
        ),
        counts="layouts",
    )
