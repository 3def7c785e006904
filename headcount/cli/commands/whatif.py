"""`headcount whatif`: grids over traffic, users and settings."""

from functools import partial
from typing import Any

import click

from headcount.cli.command import Command, section
from headcount.cli.option_types import OutPath, flag, option
from headcount.cli.options import (
    argument_options,
    model_options,
    output_options,
    scheduler_options,
    slo_options,
    strict_option,
    study_options,
    vllm_args_option,
    workload_options,
)
from simulator.engines.argument import MEMORY
from simulator.engines.values import COUNT, Share, Text, WholeNumber


@click.command("whatif", cls=Command)
@section(
    "What if",
    option(
        "--vary",
        Text("NAME=VALUE,VALUE,…"),
        "What is varied; may be repeated. context, output, think-time, turns, system-prompt or long-prompts; users, "
        "gpu, gpus, router, ttft, tpot, step-times; any engine option.",
        multiple=True,
    ),
    flag("--tornado", "Also each assumption, 20 % less and 20 % more, the largest effect first."),
    option("--users", COUNT, "Answer with the GPUs and dollars that so many users need."),
    option("--gpus", COUNT, "GPUs that are simulated.  [default: the fewest that hold the model]"),
    option("--precision", Share(), "Half of the sampling interval, as a share of the users.", default="5%"),
    option(
        "--replications", WholeNumber(2, 10_000), "Independent runs of a load.  [default: as many as --precision takes]"
    ),
)
@model_options
@section(
    "Deployment",
    argument_options(MEMORY, default_text={"tensor_parallel_size": "the best that fits"}),
    vllm_args_option,
)
@strict_option
@section(
    "Traffic",
    option(
        "--workload", Text(may_be_path=True), "A preset, or a trace file (Azure CSV, Mooncake JSONL).", default="chat"
    ),
    workload_options,
)
@slo_options
@scheduler_options
@study_options
@section(
    "Output",
    option("--report", OutPath(suffixes=(".html",), is_report=True), "Also write an HTML report to this file."),
)
@output_options
def command(**values: Any) -> int:
    """Find what a longer context, more users or another setting costs: --vary context=x1,x2,x4 --vary users=250,500.

    Every cell is simulated with the same random numbers, and told beside the first one. With users its answer is GPUs
    and dollars, else users to sign.
    """
    from headcount.answers.varied.whatif import whatif  # noqa: PLC0415  imported once the command runs
    from headcount.cli.output import show, show_interrupted, write_report  # noqa: PLC0415
    from headcount.cli.progress import watched  # noqa: PLC0415
    from headcount.questions.variations import read_varied  # noqa: PLC0415

    report, as_json = values.pop("report"), values.pop("as_json")
    times = {"ttft_s": values.pop("ttft"), "tpot_s": values.pop("tpot"), "think_time_s": values.pop("think_time")}
    values["store"] = not values.pop("no_store")
    vary = read_varied(values.pop("vary"))
    with watched("cells", interrupted=partial(show_interrupted, as_json=as_json)) as progress:
        answer = whatif(vary=vary, slo=values.pop("slo_name"), **values, **times, progress=progress)
    code = show(answer, as_json=as_json)
    write_report(answer, report, as_json=as_json)
    return code
