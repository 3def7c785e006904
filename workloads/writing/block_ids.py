"""Ids of the blocks of each prompt: equal ids are equal content from the prompt's beginning on."""

from dataclasses import dataclass

import numpy as np

from files.compiling.dispatchers import compiled
from workloads.requests import Int32Array, IntArray, RequestTable
from workloads.traces.blocks import dense, partial_blocks
from workloads.writing.text_rows import Lists


@dataclass(frozen=True, eq=False)
class BlockIds:
    """Full blocks of one content have numbers that follow one another; partial blocks have the numbers after all."""

    table: RequestTable
    block_size: int
    content: IntArray
    """[spans] numbered with few gaps."""
    base: IntArray
    """[contents] number of a content's block 0, if it had one."""
    partial: IntArray
    """[n] number of the partial block at a prompt's end."""

    def of_rows(self, rows: slice) -> Lists:
        """The ids of some requests, one after the other."""
        table = self.table
        counts = -(-table.prompt_tokens[rows] // self.block_size)
        start = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        ids = np.empty(start[-1], np.int64)
        _write_ids(
            table.span_start[rows], self.content, table.span_end, table.prompt_tokens[rows], self.base,
            self.partial[rows], self.block_size, ids,
        )  # fmt: skip
        return Lists(ids, start)


def block_ids(table: RequestTable, block_size: int) -> BlockIds:
    """Of prompts, the last block perhaps partial."""
    content = dense(table.span_content)
    num_contents = int(content.max(initial=0)) + 1
    partial = partial_blocks(table, content, num_contents, block_size)
    first, base = np.full(num_contents, np.iinfo(np.int32).max, np.int32), np.zeros(num_contents, np.int64)
    num_full = _number_blocks(table.span_start, content, table.span_end, table.prompt_tokens, block_size, first, base)
    partial += num_full - 1
    return BlockIds(table, block_size, content, base, partial)


@compiled
def _number_blocks(  # noqa: PLR0917  numba takes arrays one by one
    span_start: IntArray, content: IntArray, span_end: Int32Array, prompt_tokens: Int32Array, block_size: int,
    first: Int32Array, base: IntArray,
) -> int:  # fmt: skip
    """Fill in the first full block that prompts use of each content, and its base; how many blocks there are."""
    for row in range(len(span_start)):  # `base` holds the end of what is used
        full, done, span = prompt_tokens[row] // block_size, 0, span_start[row]
        while done < full:
            which, upto = content[span], min(span_end[span] // block_size, full)
            if upto > done:
                first[which], base[which] = min(first[which], done), max(base[which], upto)
                done = upto
            span += 1
    count = 0
    for which in range(len(base)):
        room = max(base[which] - first[which], 0)
        base[which] = count - first[which]
        count += room
    return count


@compiled
def _write_ids(  # noqa: PLR0917  numba takes arrays one by one
    span_start: IntArray, content: IntArray, span_end: Int32Array, prompt_tokens: Int32Array, base: IntArray,
    partial: IntArray, block_size: int, ids: IntArray,
) -> None:  # fmt: skip
    """Fill in the ids of each prompt's blocks; a block belongs to the span of its last token."""
    at = 0
    for row in range(len(span_start)):
        full, done, span = prompt_tokens[row] // block_size, 0, span_start[row]
        while done < full:
            number = base[content[span]]
            for block in range(done, min(span_end[span] // block_size, full)):
                ids[at] = number + block
                at, done = at + 1, block + 1
            span += 1
        if prompt_tokens[row] % block_size > 0:
            ids[at] = partial[row]
            at += 1
