"""Ids of the blocks of each prompt: equal ids are equal content from the prompt's beginning on."""

from dataclasses import dataclass

import numpy as np

from workloads.requests import IntArray, RequestTable
from workloads.traces.blocks import block_runs
from workloads.writing.text_rows import Lists


@dataclass(frozen=True, eq=False)
class BlockIds:
    """Ids of all prompts, as runs of numbers that follow one another."""

    run_start: IntArray
    """[n + 1] where each request's runs begin."""
    first_id: IntArray
    length: IntArray

    def of_rows(self, rows: slice) -> Lists:
        """The ids of some requests, one after the other."""
        runs = slice(self.run_start[rows.start], self.run_start[rows.stop])
        length = self.length[runs]
        before = np.concatenate([[0], np.cumsum(length)])
        ids = np.repeat(self.first_id[runs] - before[:-1], length) + np.arange(before[-1])
        return Lists(ids, before[self.run_start[rows.start : rows.stop + 1] - self.run_start[rows.start]])


def block_ids(table: RequestTable, block_size: int) -> BlockIds:
    """Of prompts, the last block perhaps partial."""
    runs = block_runs(table, np.arange(table.num_requests), block_size, with_answers=False)
    num_contents = len(runs.varies)
    first, end = np.full(num_contents, np.iinfo(np.int64).max), np.zeros(num_contents, np.int64)
    np.minimum.at(first, runs.content, runs.first)
    np.maximum.at(end, runs.content, runs.end)
    room = np.maximum(end - first, 0)
    base = np.cumsum(room) - room
    return BlockIds(
        run_start=np.searchsorted(runs.row, np.arange(table.num_requests + 1)),
        first_id=base[runs.content] + runs.first - first[runs.content],
        length=runs.end - runs.first,
    )
