"""`headcount optimize`: the engine arguments that serve the most users."""

from typing import Any

import click

from headcount.cli.command import Command, section
from headcount.cli.option_types import option
from headcount.cli.options import (
    argument_options,
    engine_options,
    model_options,
    output_options,
    report_options,
    slo_options,
    strict_option,
    study_options,
    traffic_options,
    vllm_args_option,
)
from simulator.engines.argument import MEMORY, SCHEDULER, STEP_TIME
from simulator.engines.values import COUNT, ROUTER, Text, WholeNumber


@click.command("optimize", cls=Command)
@section(
    "Search",
    option("--gpus", COUNT, "GPUs to serve on.", default=1),
    option(
        "--search",
        Text("NAME=VALUE,VALUE,…"),
        "What is searched instead of the default; may be repeated: any engine option, or router.  [default: "
        "max-num-batched-tokens, max-num-seqs, kv-cache-dtype, quantization, gpu-memory-utilization and router; of "
        "SGLang chunked-prefill-size, max-running-requests, enable-mixed-chunk, kv-cache-dtype, quantization, "
        "schedule-policy, schedule-conservativeness and router; apart from those that are given]",
        multiple=True,
    ),
    option("--trials", WholeNumber(1, 10_000), "Choices that are looked at by an estimate, in ms each.", default=200),
    option("--finalists", WholeNumber(1, 100), "Choices that are simulated.", default=6),
)
@model_options
@section(
    "Deployment",
    argument_options(MEMORY, always_none=True, default_text={"tensor_parallel_size": "the best that fits"}),
    vllm_args_option,
)
@engine_options(always_none=True)
@strict_option
@traffic_options
@slo_options
@section(
    "Scheduler",
    argument_options(SCHEDULER, always_none=True),
    option(
        "--router",
        ROUTER,
        "A router that is kept.  [default: searched, beginning with compare's]",
    ),
)
@section("Step times", argument_options(STEP_TIME, always_none=True))
@study_options
@report_options
@output_options
def command(**values: Any) -> int:
    """Search the engine arguments that serve the most users: what is not given is searched.

    Optuna proposes choices, an estimate of each takes milliseconds. The best are simulated with the same users: briefly
    at first, then again and again those that are close. The answer is what surely gains over the arguments as given,
    with the line that starts the server, and the frontier of users, TTFT and TPOT. Needs headcount[optimize].
    """
    from headcount.cli.output import ask_study  # noqa: PLC0415  imported once the command runs
    from headcount.inputs.variations import read_varied  # noqa: PLC0415

    values["search"] = read_varied(values["search"])
    return ask_study("headcount.queries.optimize:optimize", values, "choices")
