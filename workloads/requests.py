"""The table of requests that a simulation serves."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from files.reading import InputError

if TYPE_CHECKING:
    from workloads.images import RequestImages

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]

OPEN_END: Final = 2**31 - 1
"""Span end of a request's last span: it goes on over every later token, the output's included."""
NO_PREDECESSOR: Final = -1
"""`follows` of a request that arrives at a time of its own, `arrival_s`."""
NEXT_FREE: Final = -2
"""`follows` of a request that arrives when any request of the load finishes, such requests being taken in row order."""

_DTYPES: Final = {
    "arrival_s": np.float64,
    "follows": np.int64,
    "think_s": np.float64,
    "prompt_tokens": np.int32,
    "output_tokens": np.int32,
    "priority": np.int32,
    "span_start": np.int64,
    "span_count": np.int32,
    "span_content": np.int64,
    "span_end": np.int32,
}
_SPAN_COLUMNS: Final = ("span_content", "span_end")
_ROWS_AT_ONCE: Final = 1_000_000  # so that checks take little memory beside the table


class Waits(NamedTuple):
    """How long the clients of a table's requests wait, in seconds, and what they do then."""

    patience_s: FloatArray
    """[n] from the first attempt's arrival to the first token; infinity: for ever."""
    timeout_s: FloatArray
    """[n] of each attempt, from its arrival to the end of its answer; infinity: for ever."""
    backoff_s: FloatArray
    """[retries, n] from an attempt's time-out to the next attempt."""
    resumes: Int32Array
    """[n] row of the turn that comes a think time after this one was given up; -1: the session ends."""


class Tenant(NamedTuple):
    """Who sends requests, and how many the gateway takes; token buckets hold a minute's."""

    name: str
    rpm_limit: float = math.inf
    """Requests per minute."""
    tpm_limit: float = math.inf
    """Tokens of prompts per minute."""


class Tenancy(NamedTuple):
    """Whose a table's requests are."""

    tenants: tuple[Tenant, ...]
    """By name."""
    of: Int32Array
    """[n] which of the tenants."""

    @property
    def has_quotas(self) -> bool:
        return any(min(tenant.rpm_limit, tenant.tpm_limit) < math.inf for tenant in self.tenants)

    def rows(self, rows: Any) -> "Tenancy":
        """Of these rows alone."""
        return self._replace(of=self.of[rows])


@dataclass(frozen=True, kw_only=True, eq=False)
class RequestTable:
    """Requests in rows, one per turn; times in seconds, lengths in tokens.

    The row number is the request's id. Rows are in any order of arrival, but a row follows only earlier rows.

    A request's content is told in spans: span k of a request names token positions [end of span k - 1, end of span k).
    The last span of a request ends at OPEN_END, so that it names the output tokens as well. A content id names
    everything up to its tokens, not them alone (it is chained): two requests share a block if and only if the spans
    that hold the block's last token have the same content id, at the same block index. Ids are non-negative and need
    not be dense. Several rows may use the same spans, as all turns of one conversation do.
    """

    arrival_s: FloatArray
    """[n] arrival time of a request that follows none; NaN elsewhere."""
    follows: IntArray
    """[n] row of the session's previous turn, NO_PREDECESSOR, or NEXT_FREE."""
    think_s: FloatArray
    """[n] from the end of the previous turn's answer to this arrival; 0 where no turn is followed."""
    prompt_tokens: Int32Array
    """[n] the whole context sent, >= 1."""
    output_tokens: Int32Array
    """[n] >= 1."""
    priority: Int32Array
    """[n] vLLM's priority: the lower, the sooner."""
    span_start: IntArray
    """[n] where the request's spans begin in `span_content` and `span_end`."""
    span_count: Int32Array
    """[n] >= 1."""
    span_content: IntArray
    """[m] content id."""
    span_end: Int32Array
    """[m] first token position after the span."""
    waits: Waits | None = None
    """None: all clients wait for ever."""
    tenancy: Tenancy | None = None
    """None: nobody says whose requests these are."""
    images: "RequestImages | None" = None
    """None: all prompts are text."""

    @property
    def num_requests(self) -> int:
        return len(self.arrival_s)

    @property
    def num_spans(self) -> int:
        return len(self.span_content)

    @property
    def num_attempts(self) -> int:
        """At most, of each request."""
        return 1 if self.waits is None else 1 + len(self.waits.backoff_s)

    def first_turns(self) -> IntArray:
        """[n] row of the first turn of each request's session: its own where it follows no other."""
        first = np.where(self.follows >= 0, self.follows, np.arange(self.num_requests, dtype=np.int64))
        while not np.array_equal(first, first[first]):
            first = first[first]
        return first

    def head(self, num_requests: int) -> "RequestTable":
        """The first rows, complete in themselves since rows follow only earlier ones; their clients wait for ever."""
        return self._rows(0, num_requests)

    def _rows(self, first: int, end: int) -> "RequestTable":
        rows = {name: getattr(self, name)[first:end] for name in _DTYPES if name not in _SPAN_COLUMNS}
        tenancy = self.tenancy and self.tenancy.rows(slice(first, end))
        images = self.images and self.images.rows(slice(first, end))
        return replace(self, **rows, waits=None, tenancy=tenancy, images=images)

    def scaled_arrivals(self, factor: float) -> "RequestTable":
        """The same requests at `factor` times the rate: arrival times divided by it, think times kept."""
        if not (np.isfinite(factor) and factor > 0):
            raise InputError(f"cannot scale arrivals by {factor}; give a finite factor above 0")
        return replace(self, arrival_s=self.arrival_s / factor)

    def validate(self) -> None:
        """Raise InputError, naming the first bad row, unless every law of this table holds."""
        _check_shapes(self)
        for first in range(0, max(self.num_requests, 1), _ROWS_AT_ONCE):
            rows = self._rows(first, first + _ROWS_AT_ONCE)
            _check_lengths(rows, first)
            _check_follows(rows, first)
            _check_times(rows, first)
            _check_spans(rows, first)
        _check_followed_once(self)
        _check_span_order(self)


def with_waits(table: RequestTable, waits: Waits) -> RequestTable:
    """The table with other clients; asserts that there is one for each request."""
    count = table.num_requests
    assert waits.patience_s.shape == waits.timeout_s.shape == waits.resumes.shape == (count,), (
        "one client for each request"
    )
    assert waits.backoff_s.shape[1:] == (count,), "one back-off for each request"
    assert (waits.patience_s >= 0).all() and (waits.timeout_s > 0).all(), "nobody waits for less than no time"
    return replace(table, waits=waits)


def independent_requests(
    *,
    arrival_s: npt.ArrayLike,
    prompt_tokens: npt.ArrayLike,
    output_tokens: npt.ArrayLike,
    follows: npt.ArrayLike | None = None,
    think_s: npt.ArrayLike | None = None,
) -> RequestTable:
    """A table of requests that share no content: row i has the single content id i.

    Raises InputError for a length that no table can hold.
    """
    arrivals = np.asarray(arrival_s, dtype=np.float64)
    for name, lengths in (("prompt_tokens", np.asarray(prompt_tokens)), ("output_tokens", np.asarray(output_tokens))):
        _refuse(~(lengths < OPEN_END), lengths, name, f"it must stay below {OPEN_END}")
    n = len(arrivals)
    rows = np.arange(n, dtype=np.int64)
    return RequestTable(
        arrival_s=arrivals,
        follows=repeated(NO_PREDECESSOR, n, np.int64) if follows is None else np.asarray(follows, np.int64),
        think_s=repeated(0, n, np.float64) if think_s is None else np.asarray(think_s, np.float64),
        prompt_tokens=np.asarray(prompt_tokens, dtype=np.int32),
        output_tokens=np.asarray(output_tokens, dtype=np.int32),
        priority=repeated(0, n, np.int32),
        span_start=rows,
        span_count=repeated(1, n, np.int32),
        span_content=rows,
        span_end=repeated(OPEN_END, n, np.int32),
    )


def repeated(value: float, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The same value so many times, in the memory of one: traces have 27 million rows."""
    return np.full(1, value, dtype) if count == 1 else np.broadcast_to(np.array(value, dtype), count)


def _refuse(bad: BoolArray, values: npt.NDArray[Any], what: str, allowed: str, first: int = 0) -> None:
    """Raise for the first row where `bad`; rows are numbered from `first`."""
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(f"row {first + row}: {what} is {values[row]}; {allowed}")


def _check_shapes(table: RequestTable) -> None:
    for name, dtype in _DTYPES.items():
        column = getattr(table, name)
        length = table.num_spans if name in _SPAN_COLUMNS else table.num_requests
        if column.dtype != dtype or column.shape != (length,):
            found = f"{column.dtype} of shape {column.shape}"
            raise InputError(f"column {name} is {found}; it must be {np.dtype(dtype)} of shape ({length},)")


def _check_lengths(table: RequestTable, first: int) -> None:
    for name in ("prompt_tokens", "output_tokens"):
        _refuse(getattr(table, name) < 1, getattr(table, name), name, "it must be at least 1", first)
    too_long = table.prompt_tokens.astype(np.int64) + table.output_tokens >= OPEN_END
    _refuse(too_long, table.prompt_tokens, "prompt_tokens", f"with the output it must stay below {OPEN_END}", first)


def _check_times(table: RequestTable, first: int) -> None:
    timed = table.follows == NO_PREDECESSOR
    with np.errstate(invalid="ignore"):
        bad_arrival = ~(np.isfinite(table.arrival_s) & (table.arrival_s >= 0))
        bad_think = ~(np.isfinite(table.think_s) & (table.think_s >= 0))
    _refuse(
        timed & bad_arrival, table.arrival_s, "arrival_s", "it must be a finite number of seconds, at least 0", first
    )
    untimed = ~timed & ~np.isnan(table.arrival_s)
    _refuse(untimed, table.arrival_s, "arrival_s", "it must be NaN where the request follows another", first)
    _refuse(bad_think, table.think_s, "think_s", "it must be a finite number of seconds, at least 0", first)
    unthought = (table.follows < 0) & (table.think_s != 0)
    _refuse(unthought, table.think_s, "think_s", "it must be 0 where no turn is followed", first)


def _check_follows(table: RequestTable, first: int) -> None:
    rows = np.arange(first, first + table.num_requests)
    bad = (table.follows < NEXT_FREE) | (table.follows >= rows)
    _refuse(
        bad,
        table.follows,
        "follows",
        f"it must be an earlier row, {NO_PREDECESSOR} (none) or {NEXT_FREE} (next)",
        first,
    )


def _check_followed_once(table: RequestTable) -> None:
    followed = table.follows[table.follows >= 0]
    times_followed = np.bincount(followed) if len(followed) else followed
    _refuse(times_followed > 1, times_followed, "the number of rows that follow it", "it must be at most 1")
    if (table.follows == NEXT_FREE).any() and not (table.follows == NO_PREDECESSOR).any():
        raise InputError("every row waits for another to finish; at least one must arrive at a time of its own")


def _check_spans(table: RequestTable, first: int) -> None:
    start, count = table.span_start, table.span_count.astype(np.int64)
    outside = (start < 0) | (count < 1) | (start + count > table.num_spans)
    _refuse(
        outside, start, "span_start", f"its spans must be at least 1, within the {table.num_spans} there are", first
    )
    if table.num_requests == 0:
        return
    last_end = table.span_end[start + count - 1]
    _refuse(last_end != OPEN_END, last_end, "the end of the last span", f"it must be OPEN_END ({OPEN_END})", first)
    _refuse(
        table.span_end[start] < 1, table.span_end[start], "the end of the first span", "it must be at least 1", first
    )


def _check_span_order(table: RequestTable) -> None:
    negative = table.span_content < 0
    if negative.any():
        raise InputError(f"span {int(np.argmax(negative))}: its content id is negative; ids must be at least 0")
    if (table.span_count == 1).all():
        return
    start, count = table.span_start, table.span_count.astype(np.int64)
    falls = np.zeros(table.num_spans + 1, np.int64)  # falls[i] counts spans in [1, i) that end no later than their left
    falls[2:] = np.cumsum(table.span_end[1:] <= table.span_end[:-1])
    descents = falls[start + count] - falls[start + 1]
    _refuse(descents > 0, descents, "the number of spans that end no later than the span before", "it must be 0")
