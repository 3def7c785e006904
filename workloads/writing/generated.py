"""Requests of a population over a time or at a rate, in order of arrival, as a trace has them."""

import math
from collections import defaultdict
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from files.compiling.dispatchers import compiled
from files.limits import check_limit
from files.reading import InputError
from workloads.arrivals import Arrivals, arrival_times
from workloads.populations.population import Population
from workloads.populations.sessions import Sessions
from workloads.requests import (
    NO_PREDECESSOR,
    FloatArray,
    Int32Array,
    IntArray,
    RequestTable,
    Tenancy,
    Tenant,
    repeated,
)

_TURNS_AT_ONCE: Final = 500_000  # of all users together
_GROWTH, _LEAST_ROOM = 1.25, 4_000_000  # pages that are not written to take no memory
_DEVIATIONS: Final = 8  # square roots of the mean number of turns: the most diligent of 100,000 users
_SAFETY: Final = 3  # square roots of the number of requests
_A_BUCKET: Final = 8  # times that are sorted by insertion, on average
_MOST_MOVES: Final = 64  # for each time


def requests_over(
    population: Population, *, num_users: int, duration_s: float, seed: int, max_model_len: int
) -> RequestTable:
    """What so many users send within a time if answers take none; each turn follows the one before."""
    think_s = population.think_time_s.mean()
    if not think_s > 0:
        raise InputError(f"workload '{population.name}' has no think time, so users send without end; give a rate")
    check_limit("rows", num_users * duration_s / think_s, f"requests of {num_users:,} users")
    drawn = _Drawn(population, num_users, duration_s, seed, max_model_len, has_sessions=True)
    at_s = drawn.taken("at_s")
    order = by_time(at_s)
    follows = np.empty(len(order), np.int64)
    _link(drawn.taken("user")[order], np.full(num_users, NO_PREDECESSOR, np.int64), follows)
    arrival_s = np.where(follows < 0, at_s[order], np.nan)
    del at_s
    return drawn.table(order, arrival_s=arrival_s, follows=follows, think_s=drawn.taken("think_s")[order])


def requests_at(
    population: Population, arrivals: Arrivals, *, rate_per_s: float, num_requests: int, seed: int, max_model_len: int
) -> RequestTable:
    """What users send who are as many as send at that rate, in their order, but at the times of a process.

    Users without think time take their turns in the order that think times of one length on average would give.
    """
    n = num_requests
    check_limit("rows", n, "requests")
    population = population if population.think_time_s.mean() else population.with_think_time(1.0)
    think_s = population.think_time_s.mean()
    users = max(1, round(min(rate_per_s * think_s, n / 2)))
    duration_s = (n + _SAFETY * math.sqrt(n) + 10) * think_s / users
    while True:
        drawn = _Drawn(population, users, duration_s, seed, max_model_len, has_sessions=False)
        if drawn.num_requests >= n:
            break
        duration_s *= 1.2
    return drawn.table(
        by_time(drawn.taken("at_s"))[:n],
        arrival_s=arrival_times(arrivals, rate_per_s, n, seed),
        follows=repeated(NO_PREDECESSOR, n, np.int64),
        think_s=repeated(0, n, np.float64),
    )


class _Drawn:
    """All turns of some users that come within a time; in memory stands no more than their table needs."""

    def __init__(
        self,
        population: Population,
        num_users: int,
        duration_s: float,
        seed: int,
        max_model_len: int,
        *,
        has_sessions: bool,
    ) -> None:
        self._columns: dict[str, _Column] = defaultdict(_Column)
        self._has_sessions = has_sessions
        self._tenants: tuple[Tenant, ...] = ()
        mean = duration_s / population.think_time_s.mean()
        turns_at_once = max(min(_TURNS_AT_ONCE // num_users, math.ceil(mean + _DEVIATIONS * math.sqrt(mean)) + 8), 1)
        self._num_spans = 0
        for block in population.blocks(num_users, turns_at_once, seed, max_model_len):
            at_s = block.arrival_s()
            self._add(block, population.of_tenants(block.table(), seed), at_s, duration_s)
            if (at_s[:, -1] > duration_s).all():
                return

    def _add(self, block: Sessions, table: RequestTable, at_s: FloatArray, duration_s: float) -> None:
        kept = np.flatnonzero(at_s < duration_s)
        found: dict[str, npt.NDArray[Any]] = {
            "at_s": at_s.ravel()[kept],
            "prompt_tokens": table.prompt_tokens[kept],
            "output_tokens": table.output_tokens[kept],
            "span_start": (table.span_start[kept] + self._num_spans).astype(np.int32),
            "span_count": table.span_count[kept].astype(np.int16),
            "span_content": table.span_content,
            "span_end": table.span_end,
        }
        if self._has_sessions:
            found |= {"think_s": block.think_s.ravel()[kept], "user": (kept // at_s.shape[1]).astype(np.int32)}
        if table.tenancy is not None:
            self._tenants = table.tenancy.tenants
            found |= {"tenant": table.tenancy.of[kept], "priority": table.priority[kept]}
        for name, column in found.items():
            self._columns[name].append(column)
        self._num_spans += table.num_spans

    @property
    def num_requests(self) -> int:
        return len(self._columns["at_s"])

    def taken(self, name: str) -> npt.NDArray[Any]:
        """All of one quantity, which is then no longer here."""
        return self._columns.pop(name).values

    def table(self, order: IntArray, *, arrival_s: FloatArray, follows: IntArray, think_s: FloatArray) -> RequestTable:
        """The requests in this order, at these times."""
        prompt_tokens, output_tokens, count = (
            self.taken(name)[order] for name in ("prompt_tokens", "output_tokens", "span_count")
        )
        content, end = self.taken("span_content"), self.taken("span_end")
        span_start, span_content, span_end = np.empty(len(order), np.int64), np.empty_like(content), np.empty_like(end)
        place = np.full(len(content), -1, np.int32)
        num_spans = _lay_spans(
            self.taken("span_start")[order], count, content, end, place, span_start, span_content, span_end
        )
        return RequestTable(
            arrival_s=arrival_s,
            follows=follows,
            think_s=think_s,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            priority=self.taken("priority")[order] if self._tenants else repeated(0, len(order), np.int32),
            tenancy=Tenancy(self._tenants, self.taken("tenant")[order]) if self._tenants else None,
            span_start=span_start,
            span_count=count.astype(np.int32),
            span_content=span_content[:num_spans],
            span_end=span_end[:num_spans],
        )


class _Column:
    """An array that grows; millions of small ones would leave holes in memory."""

    def __init__(self) -> None:
        self._room: npt.NDArray[Any] = np.empty(0)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, values: npt.NDArray[Any]) -> None:
        end = self._length + len(values)
        if end > len(self._room):
            grown = np.empty(max(int(_GROWTH * end), _LEAST_ROOM), values.dtype)
            grown[: self._length] = self.values
            self._room = grown
        self._room[self._length : end] = values
        self._length = end

    @property
    def values(self) -> npt.NDArray[Any]:
        return self._room[: self._length]


def by_time(at_s: FloatArray) -> IntArray:
    """Places in order of time, equal times in the order in which they stand."""
    bucket = np.zeros(len(at_s) // _A_BUCKET + 2, np.int64)
    order, times = np.empty(len(at_s), np.int64), np.empty(len(at_s))
    found = _sort_in_buckets(at_s, at_s.max(initial=0.0), bucket, order, times)
    return order if found else np.argsort(at_s, kind="stable")


@compiled
def _sort_in_buckets(at_s: FloatArray, last_s: float, bucket: IntArray, order: IntArray, times: FloatArray) -> bool:
    """Fill in the places and times in order of time, from 0 on; False where so many fall together that it takes long.

    Times of users who think are spread evenly: a few in each bucket, which are then sorted by insertion.
    """
    per_s = (len(bucket) - 2) / last_s if last_s > 0 else 0.0
    for place in range(len(at_s)):
        bucket[int(at_s[place] * per_s) + 1] += 1
    for number in range(1, len(bucket)):
        bucket[number] += bucket[number - 1]
    for place in range(len(at_s)):
        which = int(at_s[place] * per_s)
        order[bucket[which]], times[bucket[which]] = place, at_s[place]
        bucket[which] += 1
    moves = _MOST_MOVES * len(at_s)
    for row in range(1, len(at_s)):
        time, place, at = times[row], order[row], row
        while at > 0 and times[at - 1] > time:
            times[at], order[at] = times[at - 1], order[at - 1]
            at -= 1
        times[at], order[at] = time, place
        moves -= row - at
        if moves < 0:
            return False
    return True


@compiled
def _lay_spans(  # noqa: PLR0917  numba takes arrays one by one
    start: Int32Array, count: Int32Array, content: IntArray, end: Int32Array, place: Int32Array, span_start: IntArray,
    span_content: IntArray, span_end: Int32Array,
) -> int:  # fmt: skip
    """Lay the spans in the order in which rows first use them, so that whoever reads row by row finds them near."""
    laid = 0
    for row in range(len(start)):
        first = start[row]
        if place[first] < 0:
            place[first] = laid
            for span in range(first, first + count[row]):
                span_content[laid], span_end[laid] = content[span], end[span]
                laid += 1
        span_start[row] = place[first]
    return laid


@compiled
def _link(user: Int32Array, last: IntArray, follows: IntArray) -> None:
    """Fill in the row of each one's user before it; `last` holds that of each user so far."""
    for row in range(len(user)):
        follows[row] = last[user[row]]
        last[user[row]] = row
