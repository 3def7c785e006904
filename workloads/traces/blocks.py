"""Which blocks of a KV cache requests have in common, from what their table says of content."""

from dataclasses import dataclass

import numpy as np

from files.compiling.dispatchers import compiled
from workloads.numbering import numbered
from workloads.requests import OPEN_END, BoolArray, Int32Array, IntArray, RequestTable


def shares_content(table: RequestTable) -> bool:
    """Whether any two requests begin alike."""
    if _has_twice(table.span_start, np.zeros(table.num_spans, np.bool_)):
        return True
    return bool((_uses(table, dense(table.span_content)) > 1).any())


def shares_parts_of_blocks(table: RequestTable, block_size: int) -> bool:
    """Whether what prompts have in common ends anywhere within a block."""
    ends_within = table.prompt_tokens % block_size > 0
    if _has_twice(table.span_start[ends_within], np.zeros(table.num_spans, np.bool_)):
        return True
    content = dense(table.span_content)
    is_shared = _uses(table, content) > 1
    return bool(_ends_within(table.span_start, content, table.span_end, table.prompt_tokens, is_shared, block_size))


@dataclass(frozen=True, eq=False)
class BlockRuns:
    """Blocks [first, end) of one content that a request uses; request by request, each from head to tail."""

    row: IntArray
    """Place in the order of requests that was asked for."""
    content: IntArray
    """Numbered anew; a partial block at a prompt's end has a number of its own."""
    first: IntArray
    end: IntArray
    is_prompt: BoolArray
    varies: BoolArray
    """[contents] whether requests use different blocks of it."""


def block_runs(table: RequestTable, order: IntArray, block_size: int, *, with_answers: bool) -> BlockRuns:
    """What each request uses, in this order of rows: its prompt, then its answer if asked for and another turn follows.

    A block belongs to the content of its last token. Contents that one request alone uses are one run.
    """
    said = np.zeros(table.num_requests, np.int64)
    followed = table.follows[table.follows >= 0] if with_answers else np.zeros(0, np.int64)
    said[followed] = table.prompt_tokens[followed].astype(np.int64) + table.output_tokens[followed]
    content = dense(table.span_content)
    uses = _uses(table, content)
    partial = partial_blocks(table, content, len(uses), block_size)
    is_own = np.concatenate([uses == 1, np.bincount(partial) == 1])
    most = int((table.span_count[order] * np.where(said[order] > 0, 2, 1)).sum()) + len(order)
    row, of, first, end = (np.empty(most, np.int64) for _ in range(4))
    is_prompt, varies = np.empty(most, bool), np.zeros(len(is_own), bool)
    num_runs = _write_runs(
        order, table.span_start, table.span_count, content, table.span_end, table.prompt_tokens, said,
        partial + len(uses), is_own, block_size, row, of, first, end, is_prompt, varies,
    )  # fmt: skip
    row, of, first, end = (each[:num_runs] for each in (row, of, first, end))
    return BlockRuns(row, of, first, end, is_prompt[:num_runs], varies)


def partial_blocks(table: RequestTable, content: IntArray, num_contents: int, block_size: int) -> IntArray:
    """[n] number, from 1 on, of the partial block that ends each prompt; 0 for prompts of whole blocks.

    It is the same where content and length are the same. Prompts that go on with a content mostly grow; those of
    contents where they do not are compared with one another.
    """
    found, shrinks = np.zeros(table.num_requests, np.int64), np.zeros(num_contents, bool)
    num_numbers = 1 + _number_growing(
        table.span_start, table.span_count, content, table.span_end, table.prompt_tokens, block_size,
        np.zeros(num_contents, np.int32), np.zeros(num_contents, np.int64), shrinks, found,
    )  # fmt: skip
    if shrinks.any():
        last = np.zeros(table.num_requests, np.int64)
        _find_last(table.span_start, table.span_count, content, table.span_end, table.prompt_tokens, last)
        rows = np.flatnonzero(shrinks[last] & (table.prompt_tokens % block_size > 0))
        found[rows] = num_numbers + np.unique(last[rows] * OPEN_END + table.prompt_tokens[rows], return_inverse=True)[1]
    return found


def dense(content: IntArray) -> IntArray:
    """The same content ids, numbered from 0 with few gaps: where there are too many, as they first come."""
    if content.max(initial=0) < 2 * len(content):
        return content
    return numbered(content).astype(np.int64)


def _uses(table: RequestTable, content: IntArray) -> IntArray:
    """[contents] how many requests use it."""
    uses = np.zeros(int(content.max(initial=0)) + 1, np.int64)
    _count_uses(table.span_start, table.span_count, content, uses)
    return uses


@compiled
def _has_twice(places: IntArray, seen: BoolArray) -> bool:
    """Whether any place occurs again."""
    for place in places:
        if seen[place]:
            return True
        seen[place] = True
    return False


@compiled
def _count_uses(span_start: IntArray, span_count: Int32Array, content: IntArray, uses: IntArray) -> None:
    for row in range(len(span_start)):
        for span in range(span_start[row], span_start[row] + span_count[row]):
            uses[content[span]] += 1


@compiled
def _ends_within(  # noqa: PLR0917  numba takes arrays one by one
    span_start: IntArray, content: IntArray, span_end: Int32Array, prompt_tokens: Int32Array, is_shared: BoolArray,
    block_size: int,
) -> bool:  # fmt: skip
    """Whether a shared content ends within a block of a prompt, or a prompt within a shared content."""
    for row in range(len(span_start)):
        span = span_start[row]
        while span_end[span] < prompt_tokens[row]:
            if is_shared[content[span]] and span_end[span] % block_size > 0:
                return True
            span += 1
        if is_shared[content[span]] and prompt_tokens[row] % block_size > 0:
            return True
    return False


@compiled
def _find_last(  # noqa: PLR0917  numba takes arrays one by one
    span_start: IntArray, span_count: Int32Array, content: IntArray, span_end: Int32Array, prompt_tokens: Int32Array,
    last: IntArray,
) -> None:  # fmt: skip
    """Fill in the content of each prompt's last token."""
    for row in range(len(span_start)):
        span = span_start[row]
        while span_end[span] < prompt_tokens[row]:
            span += 1
        last[row] = content[span]


@compiled
def _number_growing(  # noqa: PLR0917  numba takes arrays one by one
    span_start: IntArray, span_count: Int32Array, content: IntArray, span_end: Int32Array, prompt_tokens: Int32Array,
    block_size: int, longest: Int32Array, newest: IntArray, shrinks: BoolArray, number: IntArray,
) -> int:  # fmt: skip
    """Number partial blocks of contents whose prompts come in order of length, mark the others; how many numbers."""
    count = 0
    for row in range(len(span_start)):
        if prompt_tokens[row] % block_size == 0:
            continue
        span = span_start[row]
        while span_end[span] < prompt_tokens[row]:
            span += 1
        last = content[span]
        if prompt_tokens[row] > longest[last]:
            count += 1
            longest[last], newest[last] = prompt_tokens[row], count
        shrinks[last] |= prompt_tokens[row] < longest[last]
        number[row] = newest[last]
    return count


@compiled
def _write_runs(  # noqa: PLR0917  numba takes arrays one by one
    order: IntArray, span_start: IntArray, span_count: Int32Array, span_content: IntArray, span_end: Int32Array,
    prompt_tokens: Int32Array, said: IntArray, partial: IntArray, is_own: BoolArray, block_size: int,
    row: IntArray, content: IntArray, first: IntArray, end: IntArray, is_prompt: BoolArray, varies: BoolArray,
) -> int:  # fmt: skip
    """Fill in the runs; how many there are. Contents that only one request uses are one run, its last."""
    num_runs = 0
    known_first, known_end = np.full(len(varies), -1, np.int64), np.zeros(len(varies), np.int64)
    for place in range(len(order)):
        request = order[place]
        num_spans, full = span_count[request], prompt_tokens[request] // block_size
        done, own_run = 0, -1
        for number in range(2 * num_spans + 1 if said[request] > 0 else num_spans + 1):
            span = span_start[request] + (number if number < num_spans else max(number - num_spans - 1, 0))
            which, begin = span_content[span], done
            if number < num_spans:  # a block belongs to the span of its last token
                upto = min(span_end[span] // block_size, full)
            elif number == num_spans:
                upto, which = full + (prompt_tokens[request] % block_size > 0), partial[request]
            else:  # the answer's, the block that it completes too
                upto = min(span_end[span], said[request]) // block_size
            done = full if number == num_spans else max(upto, done)
            if upto <= begin:
                continue
            if own_run >= 0 and is_own[which] and said[request] == 0:
                end[own_run] = upto
                continue
            row[num_runs], content[num_runs], is_prompt[num_runs] = place, which, number <= num_spans
            first[num_runs], end[num_runs] = begin, upto
            own_run = num_runs if is_own[which] else -1
            num_runs += 1
            varies[which] |= known_first[which] >= 0 and (known_first[which] != begin or known_end[which] != upto)
            known_first[which], known_end[which] = begin, upto
    return num_runs
