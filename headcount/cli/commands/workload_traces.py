"""`headcount workload describe`, `fit`, `convert` and `generate`: traces and populations."""

from typing import TYPE_CHECKING

import click

from headcount.cli.command import OTHER, QuestionCommand, all_of, section
from headcount.cli.given import Given
from headcount.cli.option_types import Reads, json_option, option
from headcount.cli.options import inputs, report_options
from headcount.cli.output import finish
from headcount.inputs.out_path import OutPath
from headcount.inputs.reading.traffic import ArrivalProcess
from headcount.inputs.traffic import CHANGE_FIELDS, TRACE_FIELDS, TrafficInput
from simulator.engines.values import (
    COUNT,
    LARGEST_TEXT,
    Duration,
    FilePath,
    Listed,
    Number,
    Text,
    TokenCount,
    WholeNumber,
)

if TYPE_CHECKING:
    from headcount.queries.workloads.generate import Written

cache_options = all_of(
    option(
        "--block-size",
        TokenCount(),
        "Tokens per block of the prefix cache.  [default: that of a trace's block ids, else 16]",
    ),
    option(
        "--kv-cache-tokens",
        Listed(TokenCount(is_decimal=True)),
        "Sizes of the prefix cache.",
        default="100K,300K,1M,3M,10M,30M,100M",
    ),
)

written_options = all_of(
    option("--to", Text(), "Format, or a client that reads it: vllm, guidellm, …  [default: by the file's ending]"),
    option("--block-size", TokenCount(), "Tokens per block id in the written file.", default=512),
)


@click.command("describe", cls=QuestionCommand)
@click.argument("workload", metavar="NAME|FILE", type=Reads(Text(may_be_path=True)))
@inputs(TrafficInput, *TRACE_FIELDS, heading="Trace")
@inputs(TrafficInput, *CHANGE_FIELDS)
@cache_options
@option("--users", WholeNumber(1, 100_000), "Users of a population that share the prefix cache.", default=1000)
@option("--seed", WholeNumber(0, LARGEST_TEXT), "Seed for a population's draw.", default=0)
@report_options
@json_option
def describe_command(given: Given) -> int:
    """Show rates, bursts, lengths, sessions and prefix reuse of a trace or a population, and what it leaves open."""
    from headcount.queries.workloads.describe import describe  # noqa: PLC0415  imported once the command runs

    return finish(describe(**given.arguments(describe)), given)


@click.command("convert", cls=QuestionCommand)
@click.argument("trace", metavar="IN", type=Reads(FilePath()))
@click.argument("out", metavar="OUT", type=Reads(OutPath()))
@written_options
@inputs(TrafficInput, *TRACE_FIELDS, heading=OTHER)
@option("--num-requests", COUNT, "Number of rows to convert, from the first.  [default: all]")
def convert_command(given: Given) -> int:
    """Write a trace in another format, and report what that format cannot hold."""
    from headcount.queries.workloads.generate import convert  # noqa: PLC0415  imported once the command runs

    trace = given.input(TrafficInput).source(given.path("trace"))
    return _tell(convert(**given.arguments(convert, workload=trace)), given)


@click.command("generate", cls=QuestionCommand)
@click.argument("workload", metavar="NAME|FILE", type=Reads(Text(may_be_path=True)))
@click.argument("out", metavar="OUT", type=Reads(OutPath()))
@section(
    "Traffic",
    option("--users", WholeNumber(1), "Number of users, who think between turns. Answers take no time."),
    option("--duration duration_s", Duration(), "Duration of the trace, such as 1h."),
    option("--rate", Number("requests per second"), "Requests per second, instead of users."),
    option("--num-requests", COUNT, "Number of requests at --rate.  [default: 10,000]"),
    option("--arrivals", ArrivalProcess(), "Arrival process: poisson, gamma:cv=2, …  [default: poisson]"),
    option("--max-model-len", TokenCount(), "Longest prompt and answer together.  [default: none]"),
    inputs(TrafficInput, *CHANGE_FIELDS),
)
@section("Output", written_options)
@option("--seed", WholeNumber(0, LARGEST_TEXT), "Same seed, same trace.", default=0)
def generate_command(given: Given) -> int:
    """Write a trace of a preset's or a population's users, which a benchmark client can replay."""
    from headcount.queries.workloads.generate import generate  # noqa: PLC0415  imported once the command runs

    return _tell(generate(**given.arguments(generate)), given)


def _tell(found: "Written", given: Given) -> int:
    """What was written, what was lost, how to replay it: on stderr, since the answer is the file; the exit code."""
    click.echo(f"wrote {found.num_requests:,} requests to {given.path('out')} ({found.format})", err=True)
    for lost in found.lost:
        click.echo(f"headcount: not held by {found.format}: {lost}", err=True)
    if found.replay:
        click.echo(f"replay: {found.replay}", err=True)
    return 0


@click.command("fit", cls=QuestionCommand)
@click.argument("trace", metavar="TRACE", type=Reads(FilePath()))
@click.argument("out", metavar="OUT.toml", type=Reads(OutPath(suffixes=(".toml",))))
@inputs(TrafficInput, *TRACE_FIELDS, heading="Trace")
@section("Trace", option("--num-requests", COUNT, "Number of rows to read, from the first.  [default: all]"))
@cache_options
@section("Output", json_option)
def fit_command(given: Given) -> int:
    """Fit a model to a trace: arrivals, lengths, sessions, shared prefixes. It contains no request of the trace.

    Use it as --workload OUT.toml, like a trace.
    """
    from headcount.queries.workloads.fit import fit_trace  # noqa: PLC0415  imported once the command runs

    trace = given.input(TrafficInput).source(given.path("trace"))
    return finish(fit_trace(**given.arguments(fit_trace, workload=trace)), given)
