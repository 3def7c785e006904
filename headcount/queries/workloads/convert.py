"""A trace in another format."""

from dataclasses import dataclass
from pathlib import Path

from files.errors import HeadcountError
from files.outputs import whole_file
from workloads.load import load_workload
from workloads.populations.population import Population
from workloads.requests import RequestTable
from workloads.traces.trace_file import Source
from workloads.writing.trace_writer import TraceWriter, find_writer


@dataclass(frozen=True, kw_only=True)
class Written:
    """A trace that was written."""

    num_requests: int
    format: str
    lost: tuple[str, ...]
    """What the format cannot hold, in words."""
    replay: str
    """The command of the client that was asked for; empty if none is known."""


def convert(
    workload: Source,
    out: str | Path,
    *,
    to: str | None = None,
    block_size: int = 512,
    trace_block_size: int | None = None,
    num_requests: int | None = None,
) -> Written:
    """Write a trace in the format `to`, or that of the suffix of `out`; the file appears whole or not at all.

    Raises HeadcountError where it cannot be read or written.
    """
    writer = find_writer(to, Path(out))
    found = load_workload(workload, trace_block_size=trace_block_size, num_requests=num_requests)
    if isinstance(found, Population):
        raise HeadcountError(f"'{workload}' is a population, not a trace; draw one with 'headcount workload generate'")
    return written(found.table, Path(out), writer, block_size, to or writer.name)


def written(table: RequestTable, out: Path, writer: TraceWriter, block_size: int, name: str) -> Written:
    """Write a table; `name` is the format's or the client's."""
    with whole_file(out) as temporary:
        writer.write(table, temporary, block_size)
    return Written(
        num_requests=table.num_requests,
        format=writer.name,
        lost=writer.lost(table, block_size),
        replay=writer.clients.get(name, "").format(path=out, block_size=block_size, num_requests=table.num_requests),
    )
