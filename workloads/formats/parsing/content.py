"""Which content the requests of a trace have in common: by block ids, by sessions that grow, by named prefixes.

Contents are numbered as the requests come. Block ids are a radix tree of runs: an id names a block only after the ids
before it, and all blocks that a request brings new are one run, of one content. What has no id, the prompt's end and
the answer, has a content of its own; a turn that goes on from there begins with both.
No library has such a tree, and a row may have hundreds of ids: hence compiled.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from files.compiling.dispatchers import compiled
from workloads.requests import OPEN_END, BoolArray, Int32Array, IntArray

NONE: Final = -1
_INFERRED_BLOCKS: Final = 2  # fewer may be a system prompt alone, which others begin with too
# Columns of runs. `before` are pieces: spans of the first tokens, where an answer ends within the first block. The
# content is of the tokens after these; the last block may be a partial one. A chain is the content that a conversation
# began with, or NONE where several have these blocks.
_PARENT, _START, _IDS, _NUM_IDS, _BEFORE, _NUM_BEFORE, _CONTENT, _END, _CHAIN = range(9)
_CONTENTS, _RUNS, _PIECES, _SPANS, _CHILDREN, _CONTINUED = range(6)  # how many there are so far


class Asked(NamedTuple):
    """What the rows of a trace say of their content: [n] each, NONE where a row says nothing."""

    prompt_tokens: Int32Array
    output_tokens: Int32Array
    previous: IntArray
    """The row that it begins as."""
    in_session: BoolArray
    """Whether it goes on from that row alone; else from the only one that ended where its new blocks begin."""
    root: IntArray
    """Ids are the same within one root alone."""
    block_size: IntArray
    """Tokens that an id names; the last block of a prompt may be shorter."""
    ids: IntArray
    ids_from: IntArray
    """[n + 1] where a row's ids begin."""
    prefix_tokens: IntArray
    """At least so many are those of the previous row."""
    name: IntArray
    """Of what a first turn begins with, whatever came before."""
    name_tokens: IntArray


class _Rows(NamedTuple):
    """What a later row may find of those before it."""

    span_start: IntArray
    span_count: Int32Array
    num_blocks: IntArray
    """Full ones that have ids."""
    run: IntArray
    """Of the last of them, or below."""
    goes_on: BoolArray
    """Whether another turn has the same spans, so that a second one goes on in its own."""


@compiled
def contents(asked: Asked, num_roots: int, num_names: int) -> tuple[IntArray, Int32Array, IntArray, int]:
    """Each row's first span and how many it has; [spans, 2] content and end; how many rows go on by their ids alone."""
    n, counts = len(asked.prompt_tokens), np.zeros(6, np.int64)
    runs, pieces = np.empty((num_roots + 1024, 9), np.int64), np.empty((1024, 2), np.int64)
    spans, children = np.empty((2 * n + 2, 2), np.int64), np.full((4096, 3), NONE)
    for _ in range(num_roots):
        _grow(runs, counts, NONE, (0, 0, 0), (0, 0), (0, 0), NONE)
    contents_of_names, turn_of_chain = np.full(num_names, NONE), np.full(2 * n + num_names, NONE)
    rows = _Rows(
        np.zeros(n, np.int64), np.zeros(n, np.int32), np.zeros(n, np.int64), np.full(n, NONE), np.zeros(n, np.bool_)
    )
    for row in range(n):
        rows.span_start[row] = counts[_SPANS]
        num_ids, previous = asked.ids_from[row + 1] - asked.ids_from[row], asked.previous[row]
        if num_ids == 0:
            spans = _roomy(spans, counts[_SPANS] + 2 + (rows.span_count[previous] if previous >= 0 else 0))
            _of_lengths(asked, row, rows, contents_of_names, spans, counts)
            continue
        runs = _roomy(runs, counts[_RUNS] + num_ids + 2)
        if 2 * (counts[_CHILDREN] + num_ids + 2) > len(children):
            children = _rehashed(children, 2 * (counts[_CHILDREN] + num_ids + 2))
        spans, run, num_known = _known(asked, row, runs, pieces, children, spans, counts)
        before = previous
        if not asked.in_session[row]:
            before = turn_of_chain[runs[run, _CHAIN]] if runs[run, _CHAIN] >= 0 else NONE
        num_spans = counts[_SPANS] - rows.span_start[row] + (rows.span_count[before] if before >= 0 else 0) + 3
        spans = _roomy(spans, rows.span_start[row] + num_spans)
        pieces = _roomy(pieces, counts[_PIECES] + num_spans)
        chain = _of_blocks(asked, row, before, run, num_known, rows, runs, pieces, children, spans, counts)
        if chain >= 0:
            turn_of_chain[chain] = row
    return rows.span_start, rows.span_count, spans[: counts[_SPANS]], counts[_CONTINUED]


@compiled
def _of_lengths(  # noqa: PLR0917  numba takes arrays one by one
    asked: Asked, row: int, rows: _Rows, contents_of_names: IntArray, spans: IntArray, counts: IntArray
) -> None:
    """Spans of a row without block ids: it holds the whole turn before, answer included, where it is as long."""
    previous, prompt, name = asked.previous[row], np.int64(asked.prompt_tokens[row]), asked.name[row]
    if name >= 0 and contents_of_names[name] < 0:
        contents_of_names[name] = _new(counts)
    if previous < 0:
        if name >= 0:
            _push(spans, counts, contents_of_names[name], min(asked.name_tokens[row], prompt))
    else:
        total = np.int64(asked.prompt_tokens[previous]) + asked.output_tokens[previous]
        if prompt >= total and not rows.goes_on[previous]:
            rows.goes_on[previous] = True
            rows.span_start[row], rows.span_count[row] = rows.span_start[previous], rows.span_count[previous]
            return
        shared = total if prompt >= total else min(asked.prefix_tokens[row], prompt)
        _cut(spans, counts, rows.span_start[previous], rows.span_count[previous], shared)
    _push(spans, counts, _new(counts), OPEN_END)
    rows.span_count[row] = counts[_SPANS] - rows.span_start[row]


@compiled
def _of_blocks(  # noqa: PLR0917  numba takes arrays one by one
    asked: Asked,
    row: int,
    before: int,
    run: int,
    num_known: int,
    rows: _Rows,
    runs: IntArray,
    pieces: IntArray,
    children: IntArray,
    spans: IntArray,
    counts: IntArray,
) -> int:
    """Spans of a row whose first blocks are known, and the runs of the others; its conversation's chain, or NONE."""
    size, prompt, begin = asked.block_size[row], np.int64(asked.prompt_tokens[row]), asked.ids_from[row]
    num_ids, first, in_session = asked.ids_from[row + 1] - begin, rows.span_start[row], asked.in_session[row]
    chain, own, num_old = runs[run, _CHAIN], _new(counts), num_known
    if in_session:
        chain = NONE
    if before >= 0 and _goes_on(asked, before, rows, run, num_known, runs, row):
        counts[_SPANS] = first
        total = np.int64(asked.prompt_tokens[before]) + asked.output_tokens[before]
        _cut(spans, counts, rows.span_start[before], rows.span_count[before], total)
        num_old = min(-(-total // size), num_ids)
        counts[_CONTINUED] += not in_session
    else:
        _branch(runs, run)
        chain = NONE if in_session else own
    if num_ids * size > prompt and num_known < num_ids:  # the prompt's last block has an id too
        _append(spans, counts, first, own, prompt)
    ends_own = counts[_SPANS] > first and spans[counts[_SPANS] - 1, 0] == own
    _push(spans, counts, _new(counts) if ends_own else own, OPEN_END)
    rows.span_count[row] = counts[_SPANS] - first
    for place in range(num_known, num_old):
        piece, num_pieces = counts[_PIECES], 0
        start, end = place * size, min((place + 1) * size, prompt)
        for at in range(first, counts[_SPANS]):
            if spans[at, 1] > start:
                pieces[piece + num_pieces, 0], pieces[piece + num_pieces, 1] = spans[at, 0], min(spans[at, 1], end)
                num_pieces += 1
                if spans[at, 1] >= end:
                    break
        last = piece + num_pieces - 1
        counts[_PIECES] = last
        ids, is_before, is_last = (place, begin + place, 1), (piece, num_pieces - 1), (pieces[last, 0], pieces[last, 1])
        grown = _grow(runs, counts, run, ids, is_before, is_last, chain)
        _put(children, counts, run, asked.ids[begin + place], grown)
        run = grown
    if num_old < num_ids:
        ids, is_last = (num_old, begin + num_old, num_ids - num_old), (own, min(num_ids * size, prompt))
        grown = _grow(runs, counts, run, ids, (0, 0), is_last, chain)
        _put(children, counts, run, asked.ids[begin + num_old], grown)
        run = grown
    rows.num_blocks[row], rows.run[row] = min(num_ids, prompt // size), run
    return NONE if in_session else chain


@compiled
def _known(  # noqa: PLR0917  numba takes arrays one by one
    asked: Asked, row: int, runs: IntArray, pieces: IntArray, children: IntArray, spans: IntArray, counts: IntArray
) -> tuple[IntArray, int, int]:
    """Write the spans of the blocks that were there before: the run that ends with them, and how many they are."""
    size, prompt, begin = asked.block_size[row], np.int64(asked.prompt_tokens[row]), asked.ids_from[row]
    num_ids, run, num_known, first = asked.ids_from[row + 1] - begin, asked.root[row], 0, counts[_SPANS]
    while num_known < num_ids:
        found = _child(children, run, asked.ids[begin + num_known])
        if found < 0:
            break
        count, most = 0, min(runs[found, _NUM_IDS], num_ids - num_known)
        while count < most and asked.ids[runs[found, _IDS] + count] == asked.ids[begin + num_known + count]:
            count += 1
        end = min((num_known + count) * size, prompt)
        if count == runs[found, _NUM_IDS] and runs[found, _END] < end:  # the last id once named the block's beginning
            count -= 1
            end = (num_known + count) * size
        if count == 0:
            break
        spans = _roomy(spans, counts[_SPANS] + runs[found, _NUM_BEFORE] + 1)
        for at in range(runs[found, _BEFORE], runs[found, _BEFORE] + runs[found, _NUM_BEFORE]):
            _append(spans, counts, first, pieces[at, 0], min(pieces[at, 1], end))
        _append(spans, counts, first, runs[found, _CONTENT], end)
        num_known += count
        if count < runs[found, _NUM_IDS]:
            run = _split(asked.ids, runs, children, counts, found, count, num_known * size)
            break
        run = found
    return spans, run, num_known


@compiled
def _split(  # noqa: PLR0917  numba takes arrays one by one
    ids: IntArray, runs: IntArray, children: IntArray, counts: IntArray, run: int, count: int, end: int
) -> int:
    """The first blocks of a run as one of their own, which the others go on from; their last token is before `end`."""
    parent, first_ids = runs[run, _PARENT], (runs[run, _START], runs[run, _IDS], count)
    before = (runs[run, _BEFORE], runs[run, _NUM_BEFORE])
    first = _grow(runs, counts, parent, first_ids, before, (runs[run, _CONTENT], end), runs[run, _CHAIN])
    _put(children, counts, parent, ids[runs[run, _IDS]], first)
    _put(children, counts, first, ids[runs[run, _IDS] + count], run)
    runs[run, _PARENT], runs[run, _NUM_BEFORE] = first, 0
    runs[run, _START] += count
    runs[run, _IDS] += count
    runs[run, _NUM_IDS] -= count
    return int(first)


@compiled
def _branch(runs: IntArray, run: int) -> None:
    """Another conversation has these blocks too, and so all before them."""
    while run >= 0 and runs[run, _CHAIN] >= 0:
        runs[run, _CHAIN] = NONE
        run = runs[run, _PARENT]


@compiled
def _goes_on(  # noqa: PLR0917  numba takes arrays one by one
    asked: Asked, before: int, rows: _Rows, run: int, num_known: int, runs: IntArray, row: int
) -> bool:
    total = np.int64(asked.prompt_tokens[before]) + asked.output_tokens[before]
    least = 0 if asked.in_session[row] else _INFERRED_BLOCKS
    if rows.num_blocks[before] != num_known or num_known < least or asked.prompt_tokens[row] < total:
        return False
    last = rows.run[before]
    while last >= 0 and runs[last, _START] >= num_known:  # runs are split, their ends stay what they were
        last = runs[last, _PARENT]
    return last == run or num_known == 0


@compiled
def _grow(  # noqa: PLR0917  numba takes arrays one by one
    runs: IntArray,
    counts: IntArray,
    parent: int,
    ids: tuple[int, int, int],
    before: tuple[int, int],
    last: tuple[int, int],
    chain: int,
) -> Any:
    """A new run: which block its first is, where its ids are and how many; its pieces; content and end of the rest."""
    run = counts[_RUNS]
    runs[run, _PARENT], runs[run, _CHAIN] = parent, chain
    runs[run, _START], runs[run, _IDS], runs[run, _NUM_IDS] = ids
    runs[run, _BEFORE], runs[run, _NUM_BEFORE] = before
    runs[run, _CONTENT], runs[run, _END] = last
    counts[_RUNS] += 1
    return run


@compiled
def _new(counts: IntArray) -> Any:
    counts[_CONTENTS] += 1
    return counts[_CONTENTS] - 1


@compiled
def _push(spans: IntArray, counts: IntArray, content: int, end: int) -> None:
    spans[counts[_SPANS], 0], spans[counts[_SPANS], 1] = content, end
    counts[_SPANS] += 1


@compiled
def _append(spans: IntArray, counts: IntArray, first: object, content: Any, end: Any) -> None:
    """Go on to `end` with this content, which the last span may have already."""
    last = counts[_SPANS] - 1
    if last >= first and spans[last, 0] == content:
        spans[last, 1] = end
    elif last < first or spans[last, 1] < end:
        _push(spans, counts, content, end)


@compiled
def _cut(spans: IntArray, counts: IntArray, start: int, count: int, end: int) -> None:
    """Push another row's spans of the first tokens."""
    for at in range(start, start + count):
        if end <= 0:
            break
        _push(spans, counts, spans[at, 0], min(spans[at, 1], end))
        if spans[at, 1] >= end:
            break


@compiled
def _roomy(values: IntArray, needed: int) -> IntArray:
    """The same rows with room for so many."""
    if needed <= len(values):
        return values
    grown = np.empty((2 * needed, values.shape[1]), np.int64)
    grown[: len(values)] = values
    return grown


@compiled
def _slot(children: IntArray, run: Any, name: Any) -> Any:
    """Where the child of that name stands or would: open addressing; the size is a power of 2."""
    mixed = (np.uint64(run) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(name)) * np.uint64(0xBF58476D1CE4E5B9)
    at = np.int64((mixed ^ mixed >> np.uint64(29)) & np.uint64(len(children) - 1))
    while children[at, 0] >= 0 and not (children[at, 0] == run and children[at, 1] == name):
        at = at + 1 & len(children) - 1
    return at


@compiled
def _child(children: IntArray, run: object, name: object) -> Any:
    return children[_slot(children, run, name), 2]


@compiled
def _put(children: IntArray, counts: IntArray, run: int, name: int, child: int) -> None:
    at = _slot(children, run, name)
    counts[_CHILDREN] += children[at, 0] < 0
    children[at, 0], children[at, 1], children[at, 2] = run, name, child


@compiled
def _rehashed(children: IntArray, needed: int) -> IntArray:
    size = len(children)
    while size < needed:
        size *= 2
    grown = np.full((size, 3), NONE)
    for at in range(len(children)):
        if children[at, 0] >= 0:
            grown[_slot(grown, children[at, 0], children[at, 1])] = children[at]
    return grown
