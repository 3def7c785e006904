"""`headcount workload fit`: a small model of a trace, which can be shared where the trace cannot."""

from pathlib import Path
from typing import Any

import click

from headcount.cli.command import Command
from headcount.cli.commands.workload_describe import cache_options
from headcount.cli.option_types import OutPath, Reads, json_option, option
from headcount.cli.options import trace_options
from simulator.engines.values import COUNT, FilePath


@click.command("fit", cls=Command)
@click.argument("trace", metavar="TRACE", type=Reads(FilePath()))
@click.argument("out", metavar="OUT.toml", type=Reads(OutPath(suffixes=(".toml",))))
@trace_options
@option("--num-requests", COUNT, "Only the trace's first rows.  [default: all]")
@cache_options
@json_option
def fit_command(trace: Any, out: Path, as_json: bool, **values: Any) -> int:
    """Fit a model to a trace: arrivals, lengths, sessions, shared prefixes. It holds none of the trace's requests.

    Take it as --workload OUT.toml, like a trace.
    """
    from headcount.cli.output import show  # noqa: PLC0415
    from headcount.queries.workloads.fit import fit_trace  # noqa: PLC0415  imported once the command runs

    return show(fit_trace(trace, out, **values), as_json=as_json)
