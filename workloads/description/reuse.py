"""How much of the prompts a prefix cache of any size would hold."""

from dataclasses import dataclass

import numpy as np

from files.compiling.dispatchers import compiled
from workloads.description.arrivals import earliest_arrival_s
from workloads.requests import BoolArray, IntArray, RequestTable
from workloads.traces.blocks import BlockRuns, block_runs


@dataclass(frozen=True, kw_only=True, eq=False)
class PrefixReuse:
    """Prompt blocks found in one LRU cache, exact for every cache size.

    Requests are served at once, in order of arrival. After each, its blocks are the cache's newest, the prompt's first
    block the newest of all, as vLLM frees a request's blocks from its end. A partial block at a prompt's end counts, as
    in what Mooncake publishes; it is found by prompts that end there too. Full blocks of an answer enter the cache
    where another turn follows. A run of blocks that is always used together is one entry.
    """

    block_size: int
    num_blocks: int
    """Of all prompts that count."""
    num_distinct_blocks: int
    """Of all prompts, and of the answers that another turn follows."""
    newer_blocks: IntArray
    """[entries found] how many blocks of the cache are newer than the entry's first."""
    entry_blocks: IntArray
    """[entries found] blocks of the entry, each older than the one before."""

    @property
    def ideal_hit_rate(self) -> float:
        """Share of prompt blocks that an unbounded cache holds."""
        return float(self.entry_blocks.sum()) / max(self.num_blocks, 1)

    def hit_rate(self, cache_blocks: int) -> float:
        """Share of prompt blocks that a cache of so many blocks holds."""
        found = np.clip(cache_blocks - self.newer_blocks, 0, self.entry_blocks)
        return float(found.sum()) / max(self.num_blocks, 1)


def prefix_reuse(table: RequestTable, block_size: int, counted: BoolArray | None = None) -> PrefixReuse:
    """Reuse among all rows, told of the `counted` ones."""
    order = np.argsort(earliest_arrival_s(table), kind="stable")
    runs = block_runs(table, order, block_size, with_answers=True)
    entries = _entries(runs)
    newer = np.full(len(entries.part), -1, np.int64)
    _distances(entries.row, entries.part, entries.size, newer)
    asked = entries.is_prompt if counted is None else entries.is_prompt & counted[order][entries.row]
    found = asked & (newer >= 0)
    blocks = entries.size[entries.part]
    return PrefixReuse(
        block_size=block_size,
        num_blocks=int(blocks[asked].sum()),
        num_distinct_blocks=int(blocks[newer < 0].sum()),
        newer_blocks=newer[found],
        entry_blocks=blocks[found],
    )


@dataclass(frozen=True, eq=False)
class _Entries:
    """The runs, cut where any request's run of the same content begins or ends."""

    row: IntArray
    part: IntArray
    """Which part of a content: all its blocks are always used together."""
    is_prompt: BoolArray
    size: IntArray
    """[parts] blocks; 0 where there is no such part."""


def _entries(runs: BlockRuns) -> _Entries:
    """A content that does not vary is one part; the others are cut, at keys that hold content and block."""
    num_contents, is_cut = len(runs.varies), runs.varies[runs.content]
    most = int(runs.end.max(initial=0)) + 1
    begins, ends = (runs.content[is_cut] * most + block[is_cut] for block in (runs.first, runs.end))
    cuts = np.sort(np.concatenate([begins, ends]))
    cuts = cuts[np.diff(cuts, prepend=-1) > 0]
    size = np.zeros(num_contents + len(cuts), np.int64)
    size[runs.content[~is_cut]] = (runs.end - runs.first)[~is_cut]
    size[num_contents:-1] = np.diff(cuts)
    low, each = runs.content.copy(), np.ones(len(runs.content), np.int64)
    low[is_cut] = num_contents + np.searchsorted(cuts, begins)
    each[is_cut] = num_contents + np.searchsorted(cuts, ends) - low[is_cut]
    part = np.repeat(low - (np.cumsum(each) - each), each) + np.arange(each.sum())
    return _Entries(np.repeat(runs.row, each), part, np.repeat(runs.is_prompt, each), size)


@compiled
def _distances(row: IntArray, part: IntArray, size: IntArray, newer: IntArray) -> None:
    """Fill in how many blocks are newer than each entry when its request comes; -1 where it is new.

    A Fenwick tree over the places of last use sums the blocks (Bennett and Kruskal, 1975; Olken, 1981).
    """
    num_places = len(part)
    tree = np.zeros(num_places + 1, np.int64)
    place_of = np.zeros(len(size), np.int64)  # from 1; 0: never used
    total, place, low = 0, 0, 0
    while low < num_places:
        high = low
        while high < num_places and row[high] == row[low]:
            at = place_of[part[high]]
            if at > 0:
                older = 0
                while at > 0:
                    older += tree[at]
                    at -= at & -at
                newer[high] = total - older
            high += 1
        for entry in range(high - 1, low - 1, -1):
            which = part[entry]
            at = place_of[which]
            total += size[which] if at == 0 else 0
            while 0 < at <= num_places:
                tree[at] -= size[which]
                at += at & -at
            place += 1
            place_of[which] = at = place
            while at <= num_places:
                tree[at] += size[which]
                at += at & -at
        low = high
