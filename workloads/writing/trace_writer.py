"""What a writer of traces is, so that one file can add one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from files.errors import HeadcountError
from files.reading import InputError, shown
from files.registry import Registry
from workloads.description.arrivals import earliest_arrival_s
from workloads.requests import FloatArray, RequestTable
from workloads.traces.blocks import shares_content

_SAME_STEP = 1e-3  # of a unit of time: less is not rounding
TRACE_WRITERS = Registry(
    what="trace writer",
    section="trace_writers",
    folder=Path(__file__).parents[1] / "writers",
    package="workloads.writers",
    needs=("WRITER",),
)


@dataclass(frozen=True, kw_only=True)
class TraceWriter:
    """A format that traces are written in; each module of `workloads.writers` names its own WRITER."""

    name: str
    suffixes: tuple[str, ...]
    """Of files that are meant to be in this format, if no name is given."""
    write: Callable[[RequestTable, Path, int], None]
    """Write a table to a file, given the block size in tokens."""
    lost: Callable[[RequestTable, int], tuple[str, ...]]
    """What of a table, with that block size, the format cannot hold, in words."""
    clients: Mapping[str, str] = field(default_factory=dict)
    """Benchmark clients that read it; the command, if known, takes {path}, {block_size}, {num_requests}."""


def find_writer(name: str | None, path: Path) -> TraceWriter:
    """The writer of that name, or that a client reads, or of the file's suffix. Raises HeadcountError."""
    writers = [_writer(known) for known in TRACE_WRITERS.names()]
    names = {known: writer for writer in writers for known in (writer.name, *writer.clients)}
    endings = {suffix: writer for writer in writers for suffix in writer.suffixes}
    if name is not None:
        if name not in names:
            raise TRACE_WRITERS.unknown(name, tuple(names))
        return names[name]
    if path.suffix.lower() not in endings:
        raise InputError(f"{shown(path)}: no trace format ends so; end it in {', '.join(endings)}, or give --to")
    return endings[path.suffix.lower()]


def _writer(name: str) -> TraceWriter:
    """A module's writer, whose failures name the module."""
    found = TRACE_WRITERS.load(name).WRITER
    with TRACE_WRITERS.running(name):
        if not isinstance(found, TraceWriter):
            raise HeadcountError("WRITER is no TraceWriter")
    guarded = TRACE_WRITERS.guarded
    return replace(found, write=guarded(name, found.write), lost=guarded(name, lambda *of: tuple(found.lost(*of))))


def times_of(table: RequestTable) -> FloatArray:
    """[n] when each request arrives, answers taking no time. Raises InputError where there are no times."""
    at_s = earliest_arrival_s(table)
    if np.isnan(at_s).any():
        row = int(np.argmax(np.isnan(at_s)))
        raise InputError(f"row {row} has no arrival time: it waits for another request; the format needs one for each")
    return at_s


def lost_sessions(table: RequestTable) -> tuple[str, ...]:
    """For formats without them."""
    if not (table.follows >= 0).any():
        return ()
    return ("sessions: a turn comes a think time after the turn before it, as if answers took no time",)


def lost_times(times_s: FloatArray, per_s: float, unit: str) -> tuple[str, ...]:
    """For formats that hold times in whole units, so many of them per second."""
    steps = times_s * per_s
    rounded = np.abs(steps - np.rint(steps)) > np.maximum(_SAME_STEP, 4 * np.spacing(steps))
    if not rounded.any():
        return ()
    return (f"times: {int(rounded.sum()):,} of {len(steps):,} are rounded to {unit}",)


def lost_priority(table: RequestTable) -> tuple[str, ...]:
    """For formats without it."""
    return ("priority",) if table.priority.any() else ()


def lost_tenants(table: RequestTable) -> tuple[str, ...]:
    """For formats that do not say whose a request is."""
    return () if table.tenancy is None else (f"tenants: whose of the {len(table.tenancy.tenants):,} a request is",)


def lost_content(table: RequestTable) -> tuple[str, ...]:
    """For formats that hold lengths alone."""
    return ("content: no two prompts begin alike",) if shares_content(table) else ()
