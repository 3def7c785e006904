"""`headcount plan`: the cheapest fleet for so many people."""

from typing import Any

import click

from headcount.cli.command import Command, section
from headcount.cli.option_types import flag, option
from headcount.cli.options import (
    ROUTERS,
    argument_options,
    between_options,
    decider_option,
    engine_options,
    kv_transfer_option,
    model_option,
    output_options,
    report_options,
    slo_options,
    strict_option,
    study_options,
    traffic_options,
    vllm_args_option,
)
from simulator.engines.argument import MEMORY, SCHEDULER, STEP_TIME
from simulator.engines.values import (
    ROUTER,
    Duration,
    Extra,
    Listed,
    Number,
    PriceList,
    Share,
    Text,
    TokenCount,
    WholeNumber,
)
from simulator.fleet.pool_sizes import PoolChoices
from workloads.demand import MOST_PEOPLE

_PEOPLE = WholeNumber(1, MOST_PEOPLE)
_USD = Number("US dollars, such as 2.5", "USD")

_people_options = section(
    "People",
    option("--users", _PEOPLE, "Sessions open at the peak, thinking or waiting."),
    option("--employees", _PEOPLE, "Registered people; shares lead from there to users."),
    option("--active-share", Share(), "Employees who use it on a working day.  [default: 34%]"),
    option("--peak-share", Share(), "Of those, with an open session at the peak minute.  [default: 10%]"),
    option("--requests-per-s", Number("requests per second, such as 12.5"), "Requests at the peak."),
    option(
        "--tokens-per-day", TokenCount(most=10**15, is_decimal=True), "Prompt and output tokens of a day, such as 300M."
    ),
    option("--peak-hour-share", Share(), "A day's requests that come in its busiest hour.  [default: 14.4%]"),
    option(
        "--daily-profile",
        Text(),
        "Requests by hour, 24 of a day or 168 of a week, separated by commas.  [default: RAGPulse's day]",
    ),
    option("--time-zones", Text(), "People by hours ahead of UTC, such as +1=60%,-5=40%.  [default: all in one]"),
    option("--tokens-per-request", TokenCount(), "Prompt and output of a request.  [default: the workload's mean]"),
    option("--response-time", Duration(), "From a request to the end of its answer.  [default: estimated]"),
    option("--growth", Extra(), "Users to add, such as 30%.", default="0%"),
    option("--headroom", Extra(), "Users to add on top of these, such as 10%.", default="0%"),
    option(
        "--spare",
        WholeNumber(0, 1000),
        "Servers that may fail: the rest still serve all users. With --pools so many of each pool.",
        default="0",
    ),
)
_choice_options = section(
    "Choice",
    model_option,
    option("--gpu", Listed(Text()), "GPUs to choose from.  [default: each with a price, and runs or kernels measured]"),
    option("--quantization -q", Listed(Text()), "Weight formats to choose from.  [default: the checkpoint's]"),
    option("--kv-cache-dtype", Listed(Text()), "KV-cache formats to choose from.  [default: auto]"),
)
_money_options = section(
    "Money",
    option("--price", PriceList(), "Per GPU and hour: of all, or GPU=USD,GPU=USD.  [default: the catalog's]"),
    option("--api-input-price", _USD, "An API's price of a million input tokens, to compare with."),
    option("--api-output-price", _USD, "The same of output tokens."),
    option("--utilization", Share(), "Mean load over the peak's.  [default: 29%, from the peak-hour share]"),
)


@click.command("plan", cls=Command)
@_people_options
@_choice_options
@section(
    "Deployment",
    argument_options(
        MEMORY, without=("quantization", "kv_cache_dtype"), default_text={"tensor_parallel_size": "all that fit"}
    ),
)
@vllm_args_option
@engine_options()
@strict_option
@_money_options
@traffic_options
@slo_options
@section(
    "Scheduler",
    argument_options(SCHEDULER),
    option(
        "--router",
        ROUTER,
        f"{ROUTERS}  [default: least-outstanding, or session-affinity where that should cost clearly less]",
    ),
)
@section("Step times", argument_options(STEP_TIME))
@section(
    "Prefill and decode apart",
    option(
        "--pools",
        PoolChoices(),
        "Also try engines that compute prompts apart from engines that compute answers: prefill,decode, or with "
        "tensor-parallel sizes to choose from prefill=tp1,decode=tp1/tp2.",
    ),
)
@kv_transfer_option()
@between_options
@decider_option()
@section(
    "Search",
    option("--precision", Share(), "Half of the sampling interval of the best fleet's users.", default="5%"),
    option("--replications", WholeNumber(2, 10_000), "At most so many independent runs of a load.", default=24),
)
@study_options
@section(
    "Output",
    flag("--explain", "Also show every layout, with the reason why it was dropped."),
)
@report_options
@output_options
def command(**values: Any) -> int:
    """Find the cheapest fleet that serves so many people within the SLO.

    Give one of --users, --employees, --requests-per-s and --tokens-per-day. Every layout of every GPU is estimated
    first; the cheapest of each GPU are then simulated, with as few servers as serve all users.

    With --pools the cheapest numbers of engines that compute prompts and of engines that compute answers are found too.
    """
    from headcount.cli.output import ask_study  # noqa: PLC0415  imported once the command runs

    return ask_study("headcount.queries.plan:plan", values, "fleets simulated")
