"""`headcount whatif`: grids over traffic, users and settings."""

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
from headcount.inputs.search import SweepInput
from headcount.inputs.slo import SLOInput
from headcount.inputs.traffic import TrafficInput
from simulator.engines.argument import MEMORY
from simulator.engines.values import Text


@click.command("whatif", cls=QuestionCommand)
@section(
    "What if",
    option(
        "--vary",
        Text("NAME=VALUE,VALUE,…"),
        "What to vary: context, output, think-time, turns, system-prompt, retrieved or long-prompts; users, gpu, "
        "gpus, router, ttft, tpot, step-times; any engine option. May be repeated.",
        multiple=True,
    ),
    inputs(SweepInput, without=("router",)),
)
@model_options
@section(
    "Deployment",
    argument_options(MEMORY, default_text={"tensor_parallel_size": "the best that fits"}),
    vllm_args_option,
)
@engine_options()
@strict_option
@traffic_options
@inputs(SLOInput)
@scheduler_options(inputs(SweepInput, "router"))
@running_options
@report_options
@output_options
def command(given: Given) -> int:
    """Run a parameter sweep: what a longer context, more users or another setting changes.

    Example: --vary context=x1,x2,x4 --vary users=250,500. Each combination is simulated with the same random numbers
    and compared with the first one. With users, the answer is GPUs and dollars, else users at 95 % confidence.
    """
    from headcount.cli.output import ask  # noqa: PLC0415  imported once the command runs
    from headcount.inputs.reading.variations import read_varied  # noqa: PLC0415
    from headcount.queries.whatif import whatif  # noqa: PLC0415

    sweep = given.input(SweepInput, vary=read_varied(given.texts("vary")))
    return ask(
        whatif,
        given,
        lambda progress: whatif(
            given.text("model"),
            given.text("gpu"),
            workload=given.text("workload"),
            traffic=given.input(TrafficInput),
            slo=given.input(SLOInput),
            engine=given.engine,
            sweep=sweep,
            run=given.input(RunInput, progress=progress),
        ),
        counts="cells",
    )
