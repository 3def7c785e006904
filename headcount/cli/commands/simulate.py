"""`headcount simulate`: one load on one deployment."""

import click

from files.errors import HeadcountError
from headcount.cli.command import QuestionCommand
from headcount.cli.given import Given
from headcount.cli.options import (
    answer_options,
    cold_start_option,
    deployment_options,
    inputs,
    scheduler_options,
    slo_options,
)
from headcount.cli.output import ask
from headcount.inputs.autoscaling import AutoscalingInput
from headcount.inputs.disaggregation import LinkInput
from headcount.inputs.fields import described
from headcount.inputs.load import LoadInput
from headcount.inputs.prices import GPUPriceInput
from headcount.inputs.routing import DeployedInput
from headcount.inputs.run_files import OutputsInput
from headcount.inputs.traffic import TrafficInput
from headcount.queries.simulate import simulate


@click.command("simulate", cls=QuestionCommand)
@deployment_options()
@inputs(DeployedInput, "replicas")
@inputs(DeployedInput, "pools")
@inputs(LinkInput)
@inputs(LoadInput, "workload")
@inputs(TrafficInput)
@inputs(LoadInput, without=("workload",))
@inputs(DeployedInput, "flow_control", "tenants")
@inputs(AutoscalingInput)
@inputs(GPUPriceInput)
@slo_options
@scheduler_options(inputs(DeployedInput, "router"))
@cold_start_option
@inputs(OutputsInput)
@answer_options
def command(given: Given) -> int:
    """Simulate one load and report latency percentiles, throughput and KV-cache use.

    \b
    Loads:  --workload FILE                          replay a trace as it is
            --workload chat --users 500              closed-loop users of a preset
            --input-len I --output-len O --users N --think-time 30s
            --input-len I --output-len O --concurrency C
            --input-len I --output-len O --rate R --num-requests N
            --input-len I --output-len O --stages R,R,R --stage-length 1min
    \b
    Autoscaling and failures, compared with a fixed fleet:
            --workload chat --users 1000 --daily-profile day --autoscaler hpa --min-replicas 1 --max-replicas 4
            --workload chat --users 1000 --replicas 3 --event crash@10min
    """
    if given.input(AutoscalingInput) == AutoscalingInput():
        return ask(simulate, given, counts="one load")
    _check_alone(given)
    from headcount.queries.autoscaling.over_time import simulate_autoscaling  # noqa: PLC0415  SimPy

    return ask(simulate_autoscaling, given, counts="one load")


def _check_alone(given: Given) -> None:
    """Raise HeadcountError for what goes with a fleet that does not change."""
    outputs, link, pools = given.input(OutputsInput), given.input(LinkInput), given.input(DeployedInput).pools
    values = {**vars(outputs), "pools": pools, **vars(link)}
    wrong = next((name for name, value in values.items() if value not in (None, False)), None)
    if wrong is not None:
        each = next(
            found[wrong] for kind in (OutputsInput, DeployedInput, LinkInput) if wrong in (found := described(kind))
        )
        raise HeadcountError(f"--{each.flag_of(wrong)} goes with one load on a fleet that does not change")
