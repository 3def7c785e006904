"""`headcount whatif`: grids over traffic, users and settings."""

from typing import Any

import click

from headcount.cli.command import Command, section
from headcount.cli.option_types import flag, option
from headcount.cli.options import (
    argument_options,
    engine_options,
    model_options,
    output_options,
    precision_options,
    report_options,
    scheduler_options,
    slo_options,
    strict_option,
    study_options,
    traffic_options,
    vllm_args_option,
)
from simulator.engines.argument import MEMORY
from simulator.engines.values import COUNT, Text


@click.command("whatif", cls=Command)
@section(
    "What if",
    option(
        "--vary",
        Text("NAME=VALUE,VALUE,…"),
        "What is varied; may be repeated. context, output, think-time, turns, system-prompt, retrieved or "
        "long-prompts; users, gpu, gpus, router, ttft, tpot, step-times; any engine option.",
        multiple=True,
    ),
    flag("--tornado", "Also each assumption, 20 % less and 20 % more, the largest effect first."),
    option("--users", COUNT, "Answer with the GPUs and dollars that so many users need."),
    option("--gpus", COUNT, "GPUs that are simulated.  [default: the fewest that hold the model]"),
    precision_options(precision="5%"),
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
@slo_options
@scheduler_options
@study_options
@report_options
@output_options
def command(**values: Any) -> int:
    """Find what a longer context, more users or another setting costs: --vary context=x1,x2,x4 --vary users=250,500.

    Every cell is simulated with the same random numbers, and told beside the first one. With users its answer is GPUs
    and dollars, else users safe to promise.
    """
    from headcount.cli.output import ask_study  # noqa: PLC0415  imported once the command runs
    from headcount.inputs.variations import read_varied  # noqa: PLC0415

    values["vary"] = read_varied(values["vary"])
    return ask_study("headcount.queries.whatif:whatif", values, "cells")
