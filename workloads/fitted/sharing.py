"""Which earlier request each one shares its longest prefix with, and how much of it."""

from dataclasses import dataclass

import numpy as np

from files.compiling.dispatchers import compiled
from workloads.requests import Int32Array, IntArray, RequestTable
from workloads.traces.blocks import dense


@dataclass(frozen=True, eq=False)
class Sharing:
    """[n] by place in an order of requests."""

    before: IntArray
    """Place of the latest of the earlier requests with the longest common prefix; -1 where nothing is shared."""
    shared: IntArray
    """Tokens of the prompt that both begin with; of the earlier one perhaps also of its answer."""


def latest_sharing(table: RequestTable, order: IntArray) -> Sharing:
    """What requests share in this order of rows."""
    content = dense(table.span_content)
    before, shared = np.full(len(order), -1, np.int64), np.zeros(len(order), np.int64)
    total = table.prompt_tokens.astype(np.int64) + table.output_tokens
    num_spans = int(table.span_count[order].sum())
    _find_latest(
        order, table.span_start, table.span_count, content, table.span_end, table.prompt_tokens, total,
        np.full(int(content.max(initial=0)) + 1, -1, np.int64), np.zeros(int(content.max(initial=0)) + 1, np.int64),
        np.empty((num_spans, 3), np.int64), before, shared,
    )  # fmt: skip
    return Sharing(before, shared)


@compiled
def _find_latest(  # noqa: PLR0917  numba takes arrays one by one
    order: IntArray, span_start: IntArray, span_count: Int32Array, content: IntArray, span_end: Int32Array,
    prompt: Int32Array, total: IntArray, newest: IntArray, longest: IntArray, uses: IntArray, before: IntArray,
    shared: IntArray,
) -> None:  # fmt: skip
    """Fill in what is shared. Of each content's uses are kept, newest first, those that reach beyond all newer ones."""
    num_uses = 0
    for place in range(len(order)):
        row = order[place]
        first, end = span_start[row], span_start[row] + span_count[row]
        for span in range(end - 1, first - 1, -1):
            which, begin = content[span], span_end[span - 1] if span > first else 0
            reach = min(longest[which], span_end[span], prompt[row])
            if newest[which] < 0 or reach <= begin:
                continue
            before[place], shared[place] = latest_use(which, reach, newest, uses), reach
            break
        for span in range(first, end):
            num_uses = use_content(
                content[span], place, min(np.int64(span_end[span]), total[row]), newest, longest, uses, num_uses
            )
            if span_end[span] >= total[row]:
                break


@compiled
def latest_use(which: int, reach: int, newest: IntArray, uses: IntArray) -> int:
    """Who used a content last up to that token position; somebody did."""
    use = newest[which]
    while uses[use, 1] < reach:
        use = uses[use, 2]
    return int(uses[use, 0])


@compiled
def use_content(  # noqa: PLR0917  numba takes arrays one by one
    which: int, place: int, reach: int, newest: IntArray, longest: IntArray, uses: IntArray, num_uses: int
) -> int:
    """Note that a content is used up to a token position: (place, reach, the use before it); how many uses there are.

    Uses that reach no further than a newer one are left out.
    """
    use = newest[which]
    while use >= 0 and uses[use, 1] <= reach:
        use = uses[use, 2]
    if use < 0:
        longest[which] = reach
    uses[num_uses, 0], uses[num_uses, 1], uses[num_uses, 2] = place, reach, use
    newest[which] = num_uses
    return num_uses + 1
