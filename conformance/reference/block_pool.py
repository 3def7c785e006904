"""Which KV-cache blocks are free, held or cached.

The reference of the compiled pool: it decides as `vllm.v1.core.block_pool.BlockPool` does (vLLM 0.32).
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence


class BlockPool:
    """A pool of `num_blocks` blocks, of which block 0 is vLLM's null block and never handed out.

    A block is in the free queue exactly while its reference count is 0; it may still be cached then, and a
    prefix hit takes it back out. `take` evicts from the head of the queue.
    """

    def __init__(self, num_blocks: int, *, enable_prefix_caching: bool) -> None:
        self.num_blocks = num_blocks
        self.enable_prefix_caching = enable_prefix_caching
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_blocks))
        self._ref_cnt = [0] * num_blocks
        self._key: list[Hashable | None] = [None] * num_blocks
        self._cached: dict[Hashable, dict[int, None]] = {}  # duplicates are kept, oldest first

    @property
    def num_free(self) -> int:
        return len(self._free)

    def cached_block(self, key: Hashable) -> int | None:
        """The oldest block cached under `key`, or None."""
        blocks = self._cached.get(key)
        return next(iter(blocks)) if blocks else None

    def num_evictable(self, blocks: Iterable[int]) -> int:
        """How many of `blocks` lie in the free queue: a hit on them uses up free blocks too."""
        return sum(self._ref_cnt[block] == 0 for block in blocks)

    def touch(self, blocks: Iterable[int]) -> None:
        """Hold blocks that a prefix hit found."""
        for block in blocks:
            if self._ref_cnt[block] == 0:
                del self._free[block]
            self._ref_cnt[block] += 1

    def take(self, count: int) -> list[int]:
        """Hold `count` blocks from the head of the free queue, evicting what they cached."""
        assert count <= self.num_free, "more blocks were asked for than are free"
        taken = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in taken:
            self._evict(block)
            self._ref_cnt[block] = 1
        return taken

    def cache(self, block: int, key: Hashable) -> None:
        """Make a full block findable under `key`."""
        assert self._key[block] is None, "a block was cached twice"
        self._key[block] = key
        self._cached.setdefault(key, {})[block] = None

    def free(self, blocks: Sequence[int]) -> None:
        """Let go of `blocks`, first to be evicted first: without a hash to the head of the queue, else to the tail."""
        first: list[int] = []
        last: list[int] = []
        for block in blocks:
            assert self._ref_cnt[block] > 0, "a block was freed twice"
            self._ref_cnt[block] -= 1
            if self._ref_cnt[block] == 0:
                (first if self._key[block] is None else last).append(block)
        for block in reversed(first):
            self._free[block] = None
            self._free.move_to_end(block, last=False)
        self._free.update(dict.fromkeys(last))

    def check(self) -> None:
        """Assert that every usable block is either free or held."""
        held = sum(count > 0 for count in self._ref_cnt)
        assert held + self.num_free == self.num_blocks - 1, "a block is neither free nor held"
        assert all(self._ref_cnt[block] == 0 for block in self._free), "a held block is in the free queue"

    def _evict(self, block: int) -> None:
        key = self._key[block]
        if key is None:
            return
        self._key[block] = None
        blocks = self._cached[key]
        del blocks[block]
        if not blocks:
            del self._cached[key]
