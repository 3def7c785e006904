"""Sessions grown from their first requests: each turn keeps a share of what was said and adds to it."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from files.compiling.dispatchers import compiled
from workloads.requests import NO_PREDECESSOR, OPEN_END, FloatArray, Int32Array, IntArray, RequestTable

_SPANS: Final = 4  # of a request, to begin with
_MOST_TOKENS = OPEN_END // 4  # of an answer


def with_turns(
    firsts: RequestTable, per_session: IntArray, drawn: Mapping[str, FloatArray], longest_prompt: int
) -> RequestTable:
    """`drawn` has for each further turn, session by session, `new_tokens`, `output_tokens`, `think_s`, `kept_share`."""
    n, place = int(per_session.sum()), np.cumsum(per_session) - per_session
    session = np.repeat(np.arange(len(per_session)), per_session)
    is_first = np.zeros(n, bool)
    is_first[place] = True
    columns = {name: np.zeros(n) for name in ("new_tokens", "output_tokens", "think_s", "kept_share")}
    for name, values in drawn.items():
        columns[name][~is_first] = values
    prompt, output = firsts.prompt_tokens.astype(np.int64)[session], firsts.output_tokens.astype(np.int64)[session]
    output[~is_first] = np.clip(np.rint(columns["output_tokens"][~is_first]), 1, _MOST_TOKENS).astype(np.int64)
    shared = np.zeros(n, np.int64)
    _add_up(is_first, columns["new_tokens"], columns["kept_share"], longest_prompt, prompt, output, shared)
    room, num_spans = _SPANS * n, -1
    while num_spans < 0:
        start, count = np.zeros(n, np.int64), np.zeros(n, np.int32)
        content, end = np.empty(room, np.int64), np.empty(room, np.int32)
        num_spans = _spans_of_turns(
            is_first, session, shared, prompt + output, firsts.span_start, firsts.span_count, firsts.span_content,
            firsts.span_end, start, count, content, end,
        )  # fmt: skip
        room *= 2
    return RequestTable(
        arrival_s=np.where(is_first, firsts.arrival_s[session], np.nan),
        follows=np.where(is_first, NO_PREDECESSOR, np.arange(n) - 1),
        think_s=columns["think_s"],
        prompt_tokens=prompt.astype(np.int32),
        output_tokens=output.astype(np.int32),
        priority=np.zeros(n, np.int32),
        span_start=start,
        span_count=count,
        span_content=content[:num_spans].copy(),
        span_end=end[:num_spans].copy(),
    )


@compiled
def _add_up(  # noqa: PLR0917  numba takes arrays one by one
    is_first: IntArray,
    new: FloatArray,
    kept: FloatArray,
    longest: int,
    prompt: IntArray,
    output: IntArray,
    shared: IntArray,
) -> None:
    for row in range(len(prompt)):
        if not is_first[row]:
            shared[row] = round(kept[row] * (prompt[row - 1] + output[row - 1]))
            prompt[row] = min(max(shared[row] + round(new[row]), 1), longest)
            shared[row] = min(shared[row], prompt[row])


@compiled
def _spans_of_turns(  # noqa: PLR0917  numba takes arrays one by one
    is_first: IntArray, session: IntArray, shared: IntArray, total: IntArray, first_start: IntArray,
    first_count: Int32Array, first_content: IntArray, first_end: Int32Array, start: IntArray, count: Int32Array,
    content: IntArray, end: Int32Array,
) -> int:  # fmt: skip
    """A turn that keeps all has its predecessor's spans; others go on in a content of their own.

    How many spans there are, -1 for more than there is room.
    """
    num_spans = 0
    for row in range(len(session)):
        if not is_first[row] and shared[row] == total[row - 1]:
            start[row], count[row] = start[row - 1], count[row - 1]
            continue
        source = first_start[session[row]] if is_first[row] else start[row - 1]
        most = 1 + int(first_count[session[row]] if is_first[row] else count[row - 1])
        if num_spans + most > len(content):
            return -1
        start[row], done = num_spans, 0
        upto = OPEN_END if is_first[row] else shared[row]
        while done < upto:
            done = int(min(np.int64(first_end[source] if is_first[row] else end[source]), upto))
            content[num_spans] = first_content[source] if is_first[row] else content[source]
            end[num_spans] = done
            num_spans, source = num_spans + 1, source + 1
        if not is_first[row]:
            content[num_spans], end[num_spans] = len(first_start) + row, OPEN_END
            num_spans += 1
        count[row] = num_spans - start[row]
    return num_spans
