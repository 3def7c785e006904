"""`headcount optimize`: the engine arguments that serve the most users."""

import click

from headcount.cli.command import QuestionCommand, section
from headcount.cli.given import Given
from headcount.cli.option_types import option
from headcount.cli.options import (
    argument_options,
    engine_options,
    inputs,
    model_options,
    output_options,
    report_options,
    running_options,
    scheduler_options,
    strict_option,
    traffic_options,
    vllm_args_option,
)
from headcount.inputs.run import RunInput
from headcount.inputs.search import OptimizeSearch
from headcount.inputs.slo import SLOInput
from headcount.inputs.traffic import TrafficInput
from simulator.engines.argument import MEMORY
from simulator.engines.values import Text


@click.command("optimize", cls=QuestionCommand)
@inputs(OptimizeSearch, "gpus")
@section(
    "Search",
    option(
        "--search",
        Text("NAME=VALUE,VALUE,…"),
        "Argument to search: any engine option, or router. May be repeated.  [default: max-num-batched-tokens, "
        "max-num-seqs, kv-cache-dtype, quantization, gpu-memory-utilization and router; for SGLang "
        "chunked-prefill-size, max-running-requests, enable-mixed-chunk, kv-cache-dtype, quantization, "
        "schedule-policy, schedule-conservativeness and router; without those that you give]",
        multiple=True,
    ),
)
@inputs(OptimizeSearch, "trials", "finalists")
@model_options
@section(
    "Deployment",
    argument_options(MEMORY, always_none=True, default_text={"tensor_parallel_size": "the best that fits"}),
    vllm_args_option,
)
@engine_options(always_none=True)
@strict_option
@traffic_options
@inputs(SLOInput)
@scheduler_options(inputs(OptimizeSearch, "router"), always_none=True)
@running_options
@report_options
@output_options
def command(given: Given) -> int:
    """Search for the engine arguments that serve the most users. Arguments that you give stay fixed.

    Optuna proposes candidates, which are screened by an estimate. The best are simulated with the same users: briefly
    at first, then those that are close with more replications. The output shows the best arguments, the command that
    starts the server, and the Pareto frontier of users, TTFT and TPOT. Needs headcount[optimize].
    """
    from headcount.cli.output import ask  # noqa: PLC0415  imported once the command runs
    from headcount.inputs.reading.variations import read_varied  # noqa: PLC0415
    from headcount.queries.optimize import optimize  # noqa: PLC0415

    search = given.input(OptimizeSearch, search=read_varied(given.texts("search")))
    return ask(
        optimize,
        given,
        lambda progress: optimize(
            given.text("model"),
            given.text("gpu"),
            workload=given.text("workload"),
            traffic=given.input(TrafficInput),
            slo=given.input(SLOInput),
            engine=given.engine,
            search=search,
            run=given.input(RunInput, progress=progress),
        ),
        counts="choices",
    )
