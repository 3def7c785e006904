"""Ids of the blocks of each prompt: equal ids are equal content from the prompt's beginning on."""

from dataclasses import dataclass

import numba
import numpy as np

from workloads.requests import OPEN_END, Int32Array, IntArray, RequestTable
from workloads.traces.blocks import BlockContents
from workloads.writing.text_rows import ROWS_AT_ONCE, Lists


@dataclass(frozen=True, eq=False)
class BlockIds:
    """Blocks of one content have numbers that follow one another."""

    contents: BlockContents
    base: IntArray
    """[contents] number of a content's block 0, if it had one."""

    def of_rows(self, rows: slice) -> Lists:
        """The ids of some requests, one after the other."""
        runs = self.contents.runs(np.arange(rows.start, rows.stop))
        length = runs.end - runs.first
        before = np.concatenate([[0], np.cumsum(length)])
        ids = np.repeat(self.base[runs.content] + runs.first - before[:-1], length) + np.arange(before[-1])
        return Lists(ids, before[np.searchsorted(runs.row, np.arange(rows.stop - rows.start + 1))])


def block_ids(table: RequestTable, block_size: int) -> BlockIds:
    """Of prompts, the last block perhaps partial."""
    contents = BlockContents(table, block_size)
    first, end = np.full(len(contents), OPEN_END, np.int32), np.zeros(len(contents), np.int32)
    for start in range(0, table.num_requests, ROWS_AT_ONCE):
        runs = contents.runs(np.arange(start, min(start + ROWS_AT_ONCE, table.num_requests)))
        _reach(runs.content, runs.first, runs.end, first, end)
    room = np.maximum(end - first, 0)
    return BlockIds(contents, np.cumsum(room) - room - np.where(room > 0, first, 0))


@numba.njit  # type: ignore[untyped-decorator]
def _reach(content: IntArray, first: IntArray, end: IntArray, least: Int32Array, most: Int32Array) -> None:
    """Widen what is used of each content by what these runs use."""
    for run in range(len(content)):
        which = content[run]
        least[which], most[which] = min(least[which], first[run]), max(most[which], end[run])
