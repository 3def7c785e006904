"""A trace at other times: spread over ticks, stretched, with more or fewer sessions, followed by another trace."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from files.limits import check_limit
from files.reading import InputError
from workloads.description.arrivals import earliest_arrival_s
from workloads.randomness import stream
from workloads.requests import NEXT_FREE, FloatArray, IntArray, RequestTable
from workloads.tenants import joined_tenancies
from workloads.traces.trace import Trace

LEAST_FACTOR: Final = 0.001
MOST_FACTOR: Final = 1000.0
MOVED_S: Final = 30.0
"""So much sooner or later at most come the sessions of a copy: busy minutes stay busy, bursts are not doubled."""
_ROUNDED: Final = 0.5  # distinct times per request below which times were rounded to ticks
_OFF_TICK: Final = 0.1
_BY_ROW: Final = (
    "arrival_s", "follows", "think_s", "prompt_tokens", "output_tokens", "priority", "span_start", "span_count",
)  # fmt: skip
_SEED: Final = 0  # a trace has no seed: read twice, it is the same


def tick_of(times: FloatArray) -> float:
    """The usual gap between different ascending times, where many are the same and others are multiples; else 0."""
    gaps = np.diff(times)
    gaps = gaps[gaps > 0]
    if not len(gaps) or len(gaps) + 1 >= _ROUNDED * len(times):
        return 0.0
    tick = float(f"{np.median(gaps):.3g}")
    off = np.abs(gaps / tick - np.rint(gaps / tick))
    return tick if np.quantile(off, 1 - _OFF_TICK) < _OFF_TICK else 0.0


def spread_in_ticks(trace: Trace) -> Trace:
    """Times that were rounded to ticks, spread evenly over them; the order of a tick's requests stays."""
    _check_times(trace)
    arrives = np.flatnonzero(trace.table.follows < 0)
    times = trace.table.arrival_s[arrives]
    tick_s = tick_of(np.sort(times))
    if not tick_s:
        raise InputError(f"trace '{trace.name}': its times are not rounded to ticks; leave out --spread-ticks")
    later_s = tick_s * stream(_SEED, "window", 4).random(len(times))
    moved = np.empty_like(times)
    moved[np.argsort(times, kind="stable")] = (times + later_s)[np.lexsort((later_s, times))]
    arrival_s = trace.table.arrival_s.copy()
    arrival_s[arrives] = moved
    note = f"times rounded to {tick_s:g} s are spread evenly over these"
    return replace(trace, table=replace(trace.table, arrival_s=arrival_s), notes=(*trace.notes, note))


def stretched(trace: Trace, factor: float) -> Trace:
    """All times of the trace, think times too, times a factor."""
    _check_times(trace)
    _check_factor("stretch", factor)
    table = replace(trace.table, arrival_s=trace.table.arrival_s * factor, think_s=trace.table.think_s * factor)
    return replace(trace, name=f"{trace.name}, stretch x{factor:g}", table=table)


def rate_scaled(trace: Trace, factor: float) -> Trace:
    """So many times the sessions in the same time: some of them, or all and copies of all or some.

    A copy's sessions come up to MOVED_S sooner or later than the original's, and have contents of their own.
    """
    _check_times(trace)
    _check_factor("rate", factor)
    table, first = trace.table, trace.table.first_turns()
    sessions = np.flatnonzero(table.follows < 0)
    whole, rest = int(factor), round((factor - int(factor)) * len(sessions))
    check_limit("rows", factor * table.num_requests, f"requests of '{trace.name}' at {factor:g} times the rate")
    some = np.zeros(table.num_requests, bool)
    some[stream(_SEED, "window", 5).permutation(sessions)[:rest]] = True
    copies = [np.arange(table.num_requests)] * whole + [np.flatnonzero(some[first])] * (rest > 0)
    if not copies:
        raise InputError(f"trace '{trace.name}': rate x{factor:g} leaves none of its {len(sessions):,} sessions")
    parts = [_rows(table, rows) if copy == 0 else _copy(table, rows, copy) for copy, rows in enumerate(copies)]
    copied = f"; those of copies come up to {MOVED_S:g} s sooner or later, with other content" * (factor > 1)
    note = f"{whole * len(sessions) + rest:,} sessions of the trace's {len(sessions):,}{copied}"
    return replace(
        trace, name=f"{trace.name}, rate x{factor:g}", table=_by_time(_joined(parts)), notes=(*trace.notes, note)
    )


def spliced(trace: Trace, others: Sequence[Trace]) -> Trace:
    """The traces one after the other, each from when the one before could begin anew; they share no content."""
    parts, start_s = list[RequestTable](), 0.0
    for place, each in enumerate((trace, *others)):
        _check_times(each)
        first_s = float(np.nanmin(each.table.arrival_s))
        start_s = first_s if place == 0 else start_s
        parts.append(replace(each.table, arrival_s=each.table.arrival_s + (start_s - first_s)))
        start_s += each.period_s or float(np.ptp(earliest_arrival_s(each.table)))
    table = _joined(parts)
    check_limit("rows", table.num_requests, "requests of spliced traces")
    every = (trace, *others)
    return replace(
        trace,
        name=" + ".join(each.name for each in every),
        table=table,
        source="; ".join(dict.fromkeys(each.source for each in every)),
        notes=tuple(f"{each.name}: {note}" for each in every for note in each.notes),
        block_size=trace.block_size if len({each.block_size for each in every}) == 1 else None,
    )


def _check_times(trace: Trace) -> None:
    if (trace.table.follows == NEXT_FREE).any():
        raise InputError(f"trace '{trace.name}': its requests wait for any other to finish; it has no times to change")


def _check_factor(what: str, factor: float) -> None:
    if not LEAST_FACTOR <= factor <= MOST_FACTOR:  # NaN, too
        raise InputError(f"{what} x{factor:g}; give {LEAST_FACTOR:g} to {MOST_FACTOR:g}")


def _rows(table: RequestTable, rows: IntArray) -> RequestTable:
    """These rows of whole sessions, in ascending order."""
    place = np.full(table.num_requests + 1, -1)
    place[rows] = np.arange(len(rows))
    part: dict[str, Any] = {name: getattr(table, name)[rows] for name in _BY_ROW}
    part["follows"] = np.where(part["follows"] < 0, part["follows"], place[part["follows"]])
    return replace(table, **part, tenancy=table.tenancy and table.tenancy.rows(rows))


def _copy(table: RequestTable, rows: IntArray, number: int) -> RequestTable:
    """The rows with their sessions at other times, within those of the trace."""
    found = _rows(table, rows)
    low, high = float(np.nanmin(table.arrival_s)), float(np.nanmax(table.arrival_s))
    moved = found.arrival_s + stream(_SEED, "window", 6, number).uniform(-MOVED_S, MOVED_S, len(rows))
    moved = low + np.abs(moved - low)
    return replace(found, arrival_s=np.clip(high - np.abs(high - moved), low, high))


def _joined(parts: Sequence[RequestTable]) -> RequestTable:
    """The rows of all, one part after the other; they share no content."""
    num_rows = num_spans = num_ids = 0
    tables = list[RequestTable]()
    for part in joined_tenancies(parts):
        content = np.unique(part.span_content, return_inverse=True)[1]
        tables.append(
            replace(
                part,
                follows=np.where(part.follows < 0, part.follows, part.follows + num_rows),
                span_start=part.span_start + num_spans,
                span_content=content + num_ids,
            )
        )
        num_rows, num_spans = num_rows + part.num_requests, num_spans + part.num_spans
        num_ids += int(content.max()) + 1
    names = (*_BY_ROW, "span_content", "span_end")
    joined: dict[str, Any] = {name: np.concatenate([getattr(each, name) for each in tables]) for name in names}
    tenancies = [each.tenancy for each in tables if each.tenancy is not None]
    of = [tenancy.of for tenancy in tenancies]
    return replace(tables[0], **joined, tenancy=tenancies[0]._replace(of=np.concatenate(of)) if of else None)


def _by_time(table: RequestTable) -> RequestTable:
    """Rows in order of arrival if answers take no time, so that each comes after the one that it follows."""
    order = np.argsort(earliest_arrival_s(table), kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    part: dict[str, Any] = {name: getattr(table, name)[order] for name in _BY_ROW}
    part["follows"] = np.where(part["follows"] < 0, part["follows"], place[part["follows"]])
    return replace(table, **part, tenancy=table.tenancy and table.tenancy.rows(order))
