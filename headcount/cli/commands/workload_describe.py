"""`headcount workload describe`: what is in a trace or a population."""

import click

from headcount.cli.command import QuestionCommand, all_of
from headcount.cli.given import Given
from headcount.cli.option_types import Reads, json_option, option
from headcount.cli.options import inputs, report_options
from headcount.cli.output import finish
from headcount.inputs.traffic import CHANGE_FIELDS, TRACE_FIELDS, TrafficInput
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
