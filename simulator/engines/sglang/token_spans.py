"""Which tokens a sequence has, as runs of content instead of token ids."""

from bisect import bisect_right
from operator import itemgetter

# `(content id, end)`: run k covers positions from the end of run k-1 up to before its own end. Two sequences have the
# same token at a position exactly where they have the same content there.
Spans = tuple[tuple[int, int], ...]
PageKey = tuple[tuple[int, int], ...]


def run_at(spans: Spans, position: int) -> tuple[int, int]:
    """The content id at a position, and where its run ends."""
    return spans[bisect_right(spans, position, key=itemgetter(1))]


def bigram_spans(spans: Spans) -> Spans:
    """The same of pairs of neighbours, each told by its second token: a prefix has it only behind its first."""
    return tuple((content, end - 1) for content, end in spans)


def first_difference(one: Spans, other: Spans, start: int, end: int) -> int:
    """The first position in [start, end) at which two sequences differ, or `end`."""
    position = start
    while position < end:
        content, one_end = run_at(one, position)
        other_content, other_end = run_at(other, position)
        if content != other_content:
            return position
        position = min(one_end, other_end)
    return end


def page_key(spans: Spans, start: int, page_size: int) -> PageKey:
    """What two pages that begin at `start` have in common exactly where all their tokens are the same."""
    runs: list[tuple[int, int]] = []
    position, end = start, start + page_size
    while position < end:
        content, run_end = run_at(spans, position)
        position = min(run_end, end)
        if runs and runs[-1][0] == content:
            runs.pop()
        runs.append((content, position))
    return tuple(runs)
