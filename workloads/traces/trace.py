"""A recorded load that can be replayed."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from files.reading import InputError
from workloads.clients import WAIT_FOR_EVER, Clients
from workloads.requests import NEXT_FREE, FloatArray, Int32Array, IntArray, RequestTable


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Requests as they were recorded, rows in the order of the file."""

    name: str
    format: str
    """Name of the trace format."""
    table: RequestTable
    source: str
    """Who publishes traces in this format."""
    notes: tuple[str, ...] = ()
    """What was left out of the file, and what was taken for granted."""
    block_size: int | None = None
    """Tokens that a block id of the file names; None where it has none."""
    clients: Clients = WAIT_FOR_EVER
    session_turns: tuple[int, ...] = ()
    """Requests of each session that the file names; without think times `table` does not tell them."""

    @property
    def num_requests(self) -> int:
        return self.table.num_requests

    @property
    def num_sessions(self) -> int:
        """Requests that follow no other."""
        return int((self.table.follows < 0).sum())

    @property
    def duration_s(self) -> float:
        """From the first to the last arrival that has a time of its own."""
        return float(np.nanmax(self.table.arrival_s) - np.nanmin(self.table.arrival_s))

    @property
    def requests_per_s(self) -> float:
        """All requests over the duration, one session's gap added to it so that a trace can be wrapped round."""
        return self.num_requests / self.period_s if self.period_s else math.inf

    @property
    def period_s(self) -> float:
        """After how long a replay may begin anew: the duration plus one mean gap between sessions."""
        sessions = self.num_sessions
        return self.duration_s * sessions / (sessions - 1) if sessions > 1 else 0.0

    def statistics(self) -> dict[str, float]:
        """Counts, seconds, tokens, by name."""
        found = {
            "num_requests": float(self.num_requests),
            "num_sessions": float(self.num_sessions),
            "duration_s": self.duration_s,
            "requests_per_s": self.requests_per_s,
        }
        for name in ("prompt_tokens", "output_tokens"):
            column = getattr(self.table, name)
            found[f"{name}_mean"] = float(column.mean())
            for q in (50, 90, 95, 99):
                found[f"{name}_p{q}"] = float(np.percentile(column, q))
            found[f"{name}_max"] = float(column.max())
        return found

    @cached_property
    def _order(self) -> IntArray:
        """Rows, sessions contiguous, by the session's first arrival, then by row."""
        return by_session_arrival(self.table)

    def window(self, num_requests: int, start_s: float) -> RequestTable:
        """Requests from `start_s` after the first one's arrival on, which is the new time 0, wrapped round.

        Rows come in order of arrival, ties by row; sessions stay together, ordered by their first arrival, and the
        window starts with the first session that begins at `start_s` or later. Wrapped round, times go on after
        `period_s`, and every content id is fresh: what was said an hour ago is not said again, and a system prompt
        costs one more miss.
        """
        if num_requests < 1:
            raise InputError(f"a window of {num_requests} requests; it must have at least 1")
        table, order = self.table, self._order
        begins = np.flatnonzero(table.follows[order] < 0)
        starts_s = table.arrival_s[order[begins]]
        zero_s = starts_s[0] + start_s % (self.period_s or math.inf)
        after = int(np.searchsorted(starts_s, zero_s))
        start = len(order) if after == len(begins) else begins[after]  # the first one of the next lap
        laps, place = np.divmod(start + np.arange(num_requests), len(order))
        rows = order[place]
        return picked(table, rows, laps, table.arrival_s[rows] + laps * self.period_s - zero_s)


def picked(table: RequestTable, rows: IntArray, copies: IntArray, arrival_s: FloatArray) -> RequestTable:
    """These rows at these times, turns of a session one after the other; content ids are fresh in each of `copies`."""
    spans = _fresh_spans(table, rows, copies)
    return RequestTable(
        # Rounding may leave the first arrivals a hair below 0.
        arrival_s=np.where(np.isnan(arrival_s), np.nan, np.maximum(arrival_s, 0.0)),
        follows=np.where(table.follows[rows] < 0, table.follows[rows], np.arange(len(rows)) - 1),
        think_s=table.think_s[rows],
        prompt_tokens=table.prompt_tokens[rows],
        output_tokens=table.output_tokens[rows],
        priority=table.priority[rows],
        span_start=spans.start,
        span_count=table.span_count[rows],
        span_content=spans.content,
        span_end=spans.end,
        tenancy=table.tenancy and table.tenancy.rows(rows),
    )


def by_session_arrival(table: RequestTable) -> IntArray:
    """Rows, sessions contiguous, by the session's first arrival, then by row."""
    if (table.follows == NEXT_FREE).any():
        raise InputError("a load whose requests wait for any other to finish has no times to cut a window from")
    first = table.first_turns()
    return np.lexsort((np.arange(table.num_requests), first, table.arrival_s[first]))


@dataclass(frozen=True)
class _Spans:
    start: IntArray
    content: IntArray
    end: Int32Array


def _fresh_spans(table: RequestTable, rows: IntArray, laps: IntArray) -> _Spans:
    """The spans that these rows use, each lap's content ids beyond those of the lap before."""
    key = laps * table.num_spans + table.span_start[rows]
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    count = table.span_count[rows[first]].astype(np.int64)
    start = np.cumsum(count) - count
    source = np.repeat(table.span_start[rows[first]] - start, count) + np.arange(count.sum())
    ids_per_lap = int(table.span_content.max()) + 1
    content = table.span_content[source] + np.repeat(laps[first], count) * ids_per_lap
    return _Spans(start[group], content, table.span_end[source])
