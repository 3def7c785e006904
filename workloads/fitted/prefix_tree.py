"""Contents of requests that begin as earlier ones did: how much of which distance ago is given."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from files.compiling.dispatchers import compiled
from workloads.fitted.sharing import latest_use, use_content
from workloads.requests import OPEN_END, BoolArray, Int32Array, IntArray

_SEARCHED = 2048  # requests on either side of where one is looked for
_ENDS_NEAR = 0.03  # of the tokens that are to be shared: so far from them may a request end that is gone on from
_SPANS: Final = 4  # of a request, to begin with
_NEAR = 32  # requests on either side of where that one is looked for, at least; else half its distance


@dataclass(frozen=True, eq=False)
class PrefixTree:
    """[n] requests in order, and their spans as a `RequestTable` has them."""

    shared: IntArray
    """Tokens found; 0 where no earlier request was long enough."""
    total: IntArray
    """Tokens of prompt and answer: longer or shorter where a request goes on from one that ends elsewhere."""
    span_start: IntArray
    span_count: Int32Array
    span_content: IntArray
    """Request i's own content is i."""
    span_end: Int32Array


def grow_prefixes(lag: IntArray, shared: IntArray, total: IntArray, goes_on: BoolArray) -> PrefixTree:
    """Let each request begin as one `lag` requests before it, up to `shared` tokens; `total` holds prompt and answer.

    Taken is the request next to there that is long enough, and that no later one has yet shared so much with, so that
    `latest_sharing` finds about these distances again; where there is none, any that is long enough. One that
    `goes_on` takes a request that ends near there, if there is one not far from its lag, whole.
    """
    n = len(lag)
    if not shared.any():
        rows = np.arange(n)
        return PrefixTree(shared, total, rows, np.ones(n, np.int32), rows, np.full(n, OPEN_END, np.int32))
    room = _SPANS * n
    while True:
        found, start, count = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int32)
        grown, content, end = total.copy(), np.empty(room, np.int64), np.empty(room, np.int32)
        num_spans = _grow(
            lag, shared, grown, goes_on, np.full(n, -1, np.int64), np.zeros(n, np.int64), np.empty((room, 3), np.int64),
            found, start, count, content, end,
        )  # fmt: skip
        if num_spans >= 0:
            return PrefixTree(found, grown, start, count, content[:num_spans].copy(), end[:num_spans].copy())
        room *= 2


@compiled
def _grow(  # noqa: PLR0917  numba takes arrays one by one
    lag: IntArray, shared: IntArray, total: IntArray, goes_on: BoolArray, newest: IntArray, longest: IntArray,
    uses: IntArray, found: IntArray, start: IntArray, count: Int32Array, content: IntArray, end: Int32Array,
) -> int:  # fmt: skip
    """Fill in what is shared and the spans, each of which is one use; how many spans, -1 for more than there is room.

    Arrays that grow would take longer to compile than to fill anew.
    """
    num_spans = 0
    for place in range(len(lag)):
        need, other = shared[place], -1
        if goes_on[place]:
            other = _choose_whole(place, lag[place], need, total, newest, uses)
            if other >= 0:
                total[place] += total[other] - need
                need = total[other]
        if other < 0:
            other = _choose(place, lag[place], need, total, start, content, end, newest, uses)
        if num_spans + (count[other] if other >= 0 else 0) + 1 > len(content):
            return -1
        start[place], done = num_spans, 0
        if other >= 0:
            found[place], span = need, start[other]
            while done < need:
                done = min(np.int64(end[span]), need)
                content[num_spans], end[num_spans] = content[span], done
                num_spans = use_content(content[span], place, done, newest, longest, uses, num_spans)
                span += 1
        content[num_spans], end[num_spans] = place, OPEN_END
        num_spans = use_content(place, place, total[place], newest, longest, uses, num_spans)
        count[place] = num_spans - start[place]
    return num_spans


@compiled
def _choose(  # noqa: PLR0917  numba takes arrays one by one
    place: int, lag: int, need: int, total: IntArray, start: IntArray, content: IntArray, end: Int32Array,
    newest: IntArray, uses: IntArray,
) -> int:  # fmt: skip
    """The earlier request to begin like; -1 for none."""
    at, fallback = max(place - lag, 0), -1
    if need <= 0:
        return -1
    for distance in range(_SEARCHED):
        older, newer = at - distance, at + distance
        if older < 0 and newer >= place:
            break
        for other in (older, newer):
            if not (0 <= other < place and total[other] >= need):
                continue
            fallback = other if fallback < 0 else fallback
            span = start[other]
            while end[span] < need:
                span += 1
            if latest_use(content[span], need, newest, uses) == other:
                return other
    return fallback


@compiled
def _choose_whole(  # noqa: PLR0917  numba takes arrays one by one
    place: int, lag: int, need: int, total: IntArray, newest: IntArray, uses: IntArray
) -> int:
    """The earlier request to go on from, which nobody has yet gone on from; -1 for none."""
    at = max(place - lag, 0)
    for distance in range(max(lag // 2, _NEAR)):
        for other in (at - distance, at + distance):
            if (
                0 <= other < place
                and abs(total[other] - need) <= _ENDS_NEAR * need
                and latest_use(other, total[other], newest, uses) == other
            ):
                return other
    return -1
