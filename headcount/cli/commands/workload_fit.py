"""`headcount workload fit`: a small model of a trace, which can be shared where the trace cannot."""

import click

from headcount.cli.command import OTHER, QuestionCommand
from headcount.cli.commands.workload_describe import cache_options
from headcount.cli.given import Given
from headcount.cli.option_types import Reads, json_option, option
from headcount.cli.options import inputs
from headcount.cli.output import finish
from headcount.inputs.out_path import OutPath
from headcount.inputs.traffic import TRACE_FIELDS, TrafficInput
from simulator.engines.values import COUNT, FilePath


@click.command("fit", cls=QuestionCommand)
@click.argument("trace", metavar="TRACE", type=Reads(FilePath()))
@click.argument("out", metavar="OUT.toml", type=Reads(OutPath(suffixes=(".toml",))))
@inputs(TrafficInput, *TRACE_FIELDS, heading=OTHER)
@option("--num-requests", COUNT, "Number of rows to read, from the first.  [default: all]")
@cache_options
@json_option
def fit_command(given: Given) -> int:
    """Fit a model to a trace: arrivals, lengths, sessions, shared prefixes. It contains no request of the trace.

    Use it as --workload OUT.toml, like a trace.
    """
    from headcount.queries.workloads.fit import fit_trace  # noqa: PLC0415  imported once the command runs

    trace = given.input(TrafficInput).source(given.path("trace"))
    return finish(fit_trace(**given.arguments(fit_trace, workload=trace)), given)
