"""`headcount workload describe`: what is in a trace or a population."""

from typing import Any

import click

from headcount.cli.command import Command, all_of, section
from headcount.cli.option_types import Reads, json_option, option
from headcount.cli.options import change_options, report_options, trace_options
from simulator.engines.values import LARGEST_TEXT, Listed, Text, TokenCount, WholeNumber

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


@click.command("describe", cls=Command)
@click.argument("workload", metavar="NAME|FILE", type=Reads(Text(may_be_path=True)))
@section("Trace", trace_options)
@section("Traffic", change_options)
@cache_options
@option("--users", WholeNumber(1, 100_000), "Users of a population that share the prefix cache.", default=1000)
@option("--seed", WholeNumber(0, LARGEST_TEXT), "Of a population's draw.", default=0)
@report_options
@json_option
def describe_command(**values: Any) -> int:
    """Show rates, bursts, lengths, sessions and prefix reuse of a trace or a population, and what it does not tell."""
    from headcount.cli.output import finish  # noqa: PLC0415
    from headcount.queries.workloads.describe import describe  # noqa: PLC0415  imported once the command runs

    report, as_json = values.pop("report"), values.pop("as_json")
    return finish(describe(**values), report, as_json=as_json)
