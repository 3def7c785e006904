"""`headcount workload convert`: traces in other formats."""

from pathlib import Path
from typing import Any

import click

from headcount.cli.command import Command, all_of
from headcount.cli.option_types import OutPath, Reads, option
from simulator.engines.values import COUNT, FilePath, Text, TokenCount

written_options = all_of(
    option("--to", Text(), "A format, or a client that reads it: vllm, guidellm, …  [default: by the file's ending]"),
    option("--block-size", TokenCount(), "Tokens per block id in the written file.", default=512),
)


@click.command("convert", cls=Command)
@click.argument("trace", metavar="IN", type=Reads(FilePath()))
@click.argument("out", metavar="OUT", type=Reads(OutPath()))
@written_options
@option("--trace-block-size", TokenCount(), "Tokens per hash id of the trace that is read.", default=512)
@option("--num-requests", COUNT, "Only the first rows.  [default: all]")
def convert_command(trace: Path, out: Path, **values: Any) -> int:
    """Write a trace in another format, and say what that format cannot hold."""
    from headcount.answers.workloads.convert import convert  # noqa: PLC0415  imported once the command runs

    tell_written(convert(trace, out, **values), out)
    return 0


def tell_written(found: Any, out: Path) -> None:
    """What was written, what was lost, how to replay it: on stderr, since the answer is the file."""
    click.echo(f"wrote {found.num_requests:,} requests to {out} ({found.format})", err=True)
    for lost in found.lost:
        click.echo(f"headcount: not held by {found.format}: {lost}", err=True)
    if found.replay:
        click.echo(f"replay: {found.replay}", err=True)
