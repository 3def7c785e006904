"""vLLM's KV-cache manager in plain Python: which blocks a request holds in each group of layers.

Every group has a block table of its own; all draw on one pool. The table of a group with an attention window begins
with null blocks once the window has passed, so all tables of a request have the same length.
Read from vLLM 0.32 and 0.33, `vllm/v1/core`: `kv_cache_manager.py`, `kv_cache_coordinator.py`,
`single_type_kv_cache_manager.py`, `kv_cache_utils.py`.
"""

from dataclasses import dataclass, field

from conformance.reference.block_pool import BlockPool
from conformance.reference.vllm.states import Chunk, leaves_checkpoint
from kvcache.layout.kv_layout import KVGroup, group_kinds
from simulator.engines.vllm.engine import EngineConfig

NULL = 0  # the block that stands where a table needs none
BlockKey = tuple[int, int, int]  # content id, block index, group


@dataclass(kw_only=True)
class BlockTables:
    """One request's blocks, group by group, with what the prefix cache needs to know of it.

    `spans` names the content: span k is `(content id, end)` and covers positions from the end of span k-1.
    A content id stands for everything before it too, so `(content id, block index)` identifies a full block.
    """

    spans: tuple[tuple[int, int], ...]
    num_prompt_tokens: int
    blocks: list[list[int]] = field(default_factory=list)
    num_cached_blocks: int = 0
    shared_prefix_boundary: int = 0  # tokens; another request's prefix goes this far, a window's tail there is missing
    has_checkpoint: bool = False  # the latest chunk leaves a state at the last block's end before its own

    def content(self, last_position: int) -> int:
        return next(content for content, end in self.spans if last_position < end)


@dataclass(frozen=True)
class PrefixHit:
    """The blocks that a prefix lookup found, group by group, null where the window has passed them."""

    blocks: list[list[int]]
    num_tokens: int


class KVCacheManager:
    """Hands out, finds again, gives back."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.pool = BlockPool(config.num_gpu_blocks, enable_prefix_caching=config.enable_prefix_caching)
        self.groups = config.table_groups
        self.block_sizes = config.group_block_sizes
        self.unit_tokens = config.block_size * config.cache_unit  # where hits end: a whole block of every group
        self.kinds = group_kinds(self.groups)
        self.fresh_states: set[BlockKey] = set()  # cached in this step: computed when it is over
        self.caps = [
            None
            if group.window is None or group.is_state
            else group.blocks_per_request(config.max_model_len, config.max_in_flight_tokens, size)
            for group, size in zip(self.groups, self.block_sizes, strict=True)
        ]

    def new_step(self) -> None:
        """What the step before computed can be used."""
        self.fresh_states.clear()

    # -- prefix hits

    def find_hit(self, table: BlockTables, num_tokens: int) -> PrefixHit:
        """The longest prefix that all groups have; the last token is always computed."""
        found: list[list[int]] = [[] for _ in self.groups]
        if not self.config.enable_prefix_caching:
            return PrefixHit(found, 0)
        if len(self.groups) == 1:
            length = self._find_in_kind(table, self.kinds[0], num_tokens - 1, found)
            if self.config.drops_last_hit and length:
                length -= self.config.block_size
        else:
            length = self._find_in_all(table, num_tokens - 1, found)
        for blocks, size in zip(found, self.block_sizes, strict=True):
            del blocks[length // size :]
        return PrefixHit(found, length)

    def _find_in_all(self, table: BlockTables, max_length: int, found: list[list[int]]) -> int:
        """Shorten until every kind agrees; where full attention meets one other kind, once is enough."""
        full: int | None = None
        length, longest = max_length, 0
        is_simple = len(self.kinds) == 2 and self.groups[self.kinds[0][0]].window is None
        while True:
            current = length
            for kind in self.kinds:
                is_full = self.groups[kind[0]].window is None
                if is_full and full is not None:
                    current = min(current, full)
                    continue
                current = self._find_in_kind(table, kind, current, found)
                full = current if is_full else full
                longest = max(longest, current)
            if current >= length:
                break
            length = current
            if is_simple:
                break
        table.shared_prefix_boundary = longest if longest > length else 0
        return length

    def _find_in_kind(self, table: BlockTables, kind: tuple[int, ...], max_length: int, found: list[list[int]]) -> int:
        """Look groups of one kind up together; enters their blocks in `found`. Returns the hit's length in tokens."""
        group, size = self.groups[kind[0]], self.block_sizes[kind[0]]
        limit = max_length // size
        if group.window is None or group.chunked:
            start = group.skipped_tokens(max_length) // size
            columns = self._run_from(table, kind, start, limit)
        else:
            columns = self._last_window(table, kind, limit, -(-(group.window - 1) // size))
        length = len(columns) * size // self.unit_tokens * self.unit_tokens
        for place, number in enumerate(kind):
            found[number] = [column[place] for column in columns[: length // size]]
        return length

    def _run_from(self, table: BlockTables, kind: tuple[int, ...], start: int, limit: int) -> list[tuple[int, ...]]:
        columns = [(NULL,) * len(kind)] * start
        for index in range(start, limit):
            blocks = self._cached(table, kind, index)
            if blocks is None:
                break
            columns.append(blocks)
        return columns

    def _last_window(
        self, table: BlockTables, kind: tuple[int, ...], limit: int, num_needed: int
    ) -> list[tuple[int, ...]]:
        """The last run of `num_needed` cached blocks, or a shorter one at the very start."""
        columns = [(NULL,) * len(kind)] * limit
        num_contiguous = 0
        for index in reversed(range(limit)):
            if num_contiguous == 0 and (index + 1) * self.block_sizes[kind[0]] % self.unit_tokens:
                continue
            blocks = self._cached(table, kind, index)
            if blocks is None:
                num_contiguous = 0
                continue
            columns[index] = blocks
            num_contiguous += 1
            if num_contiguous >= num_needed:
                return columns[: index + num_contiguous]
        return columns[:num_contiguous]

    def _cached(self, table: BlockTables, kind: tuple[int, ...], index: int) -> tuple[int, ...] | None:
        found = [self.pool.cached_block(self._key(table, number, index)) for number in kind]
        return tuple(block for block in found if block is not None) if None not in found else None

    # -- blocks

    def admit(
        self,
        table: BlockTables,
        hit: PrefixHit,
        chunk: Chunk,
        *,
        num_tokens: int,
        full_tokens: int,
        watermark: int,
        reserved: int = 0,
        num_loaded: int = 0,
    ) -> bool:
        """Take the blocks of a new or resumed request for its first `num_tokens`; False if they cannot be had.

        `full_tokens` must fit too, counting for a window only what it ever holds at once; 0 asks nothing.
        `reserved` blocks stay free for others. `num_loaded` tokens after the hit come from elsewhere.
        """
        if self._is_fresh(table, hit):
            return False
        num_free = self.pool.num_free - watermark
        table.has_checkpoint = leaves_checkpoint(self.config, chunk._replace(end=full_tokens))
        computed = hit.num_tokens + num_loaded
        if full_tokens and self._num_required(table, hit, computed, full_tokens, is_capped=True) > num_free:
            return False
        table.has_checkpoint = leaves_checkpoint(self.config, chunk)
        if self._num_required(table, hit, computed, num_tokens, is_capped=False) > num_free - reserved:
            return False
        table.blocks = []
        for group, size, blocks in zip(self.groups, self.block_sizes, hit.blocks, strict=True):
            num_skipped = group.skipped_tokens(computed) // size
            self.pool.touch(block for block in blocks[num_skipped:] if block != NULL)
            table.blocks.append([NULL] * num_skipped + blocks[num_skipped:])
        table.num_cached_blocks = hit.num_tokens // self.config.block_size
        self._grow(table, num_tokens)
        return True

    def allocate(self, table: BlockTables, chunk: Chunk, num_tokens: int) -> bool:
        """Give a running request its blocks for `num_tokens` tokens; False if they cannot be had."""
        table.has_checkpoint = leaves_checkpoint(self.config, chunk)
        missing = zip(self.groups, self.num_missing(table, num_tokens), strict=True)
        if sum(self._num_taken(table, group, count) for group, count in missing) > self.pool.num_free:
            return False
        self._grow(table, num_tokens)
        return True

    def free_skipped(self, table: BlockTables, num_processed_tokens: int) -> None:
        """Give back the blocks before each window, of which the last goes first."""
        for group, size, blocks in zip(self.groups, self.block_sizes, table.blocks, strict=True):
            num_skipped = min(group.skipped_tokens(num_processed_tokens) // size, len(blocks))
            passed = [block for block in blocks[:num_skipped] if block != NULL]
            blocks[:num_skipped] = [NULL] * num_skipped
            self.pool.free(passed[::-1])

    def free(self, table: BlockTables) -> None:
        """From last to first, so that a sequence's tail is evicted before its head."""
        for blocks in table.blocks:
            self.pool.free([block for block in reversed(blocks) if block != NULL])
        table.blocks = []
        table.num_cached_blocks = 0

    def cache(self, table: BlockTables, num_tokens: int) -> None:
        """Make the blocks that `num_tokens` tokens fill findable."""
        if not self.config.enable_prefix_caching:
            return
        num_full_blocks = num_tokens // self.unit_tokens * self.config.cache_unit
        for number, (group, size) in enumerate(zip(self.groups, self.block_sizes, strict=True)):
            ratio = size // self.config.block_size
            for index in range(table.num_cached_blocks // ratio, num_full_blocks // ratio):
                block = table.blocks[number][index]
                if block != NULL and is_retained(self.config, table, number, index):
                    key = self._key(table, number, index)
                    self.pool.cache(block, key)
                    self.fresh_states.update([key] if group.is_state else [])
        table.num_cached_blocks = max(table.num_cached_blocks, num_full_blocks)
        self._freshen_prompt_end(table, num_full_blocks)

    def _freshen_prompt_end(self, table: BlockTables, num_full_blocks: int) -> None:
        """In older releases, the state at the end of a prompt's last whole block is fresh as long as it is held."""
        end = (table.num_prompt_tokens - 1) // self.config.block_size
        if self.config.states_are_fresh_once or table.has_checkpoint or end == 0 or num_full_blocks != end:
            return
        for number, group in enumerate(self.groups):
            if group.is_state and table.blocks[number][end - 1] != NULL:
                self.fresh_states.add(self._key(table, number, end - 1))

    def _is_fresh(self, table: BlockTables, hit: PrefixHit) -> bool:
        """Whether a hit ends with a state that this step computes: it can be gone on from in the next step only."""
        last = hit.num_tokens // self.config.block_size - 1
        states = [number for number, group in enumerate(self.groups) if group.is_state]
        return last >= 0 and any(self._key(table, number, last) in self.fresh_states for number in states)

    def num_missing_in_all(self, table: BlockTables, num_tokens: int) -> int:
        """Blocks that a request with blocks needs to hold so many tokens, of a window what it ever holds at once."""
        return sum(
            max(min(-(-num_tokens // size), cap or num_tokens) - len(blocks), 0)
            for size, cap, blocks in zip(self.block_sizes, self.caps, table.blocks, strict=True)
        )

    def num_after_hit(self, table: BlockTables, hit: PrefixHit) -> list[int]:
        """Blocks of a table that are not of the hit it began with, group by group."""
        return [
            sum(block != NULL for block in blocks[hit.num_tokens // size :])
            for size, blocks in zip(self.block_sizes, table.blocks, strict=True)
        ]

    def _num_required(
        self, table: BlockTables, hit: PrefixHit, computed: int, num_tokens: int, *, is_capped: bool
    ) -> int:
        """Blocks that leave the free queue if the request is admitted with `computed` tokens."""
        required = 0
        for group, size, blocks, cap in zip(self.groups, self.block_sizes, hit.blocks, self.caps, strict=True):
            num_blocks = -(-num_tokens // size)
            if is_capped and cap is not None:
                num_blocks = min(num_blocks, cap)
            num_skipped = group.skipped_tokens(computed) // size
            required += self._num_taken(table, group, max(num_blocks - max(num_skipped, len(blocks)), 0))
            required += self.pool.num_evictable(block for block in blocks[num_skipped:] if block != NULL)
        return required

    def _grow(self, table: BlockTables, num_tokens: int) -> None:
        missing = self.num_missing(table, num_tokens)
        for group, blocks, num_new in zip(self.groups, table.blocks, missing, strict=True):
            num_taken = self._num_taken(table, group, num_new)
            blocks.extend([NULL] * (num_new - num_taken) + self.pool.take(num_taken))

    def _num_taken(self, table: BlockTables, group: KVGroup, num_new: int) -> int:
        """How many of a table's new blocks are blocks: of cached states the last, and a checkpoint's before it."""
        if not (group.is_state and self.config.caches_states):
            return num_new
        return min(num_new, 1 + table.has_checkpoint)

    def num_missing(self, table: BlockTables, num_tokens: int) -> list[int]:
        """New blocks for `num_tokens` tokens, group by group."""
        return [
            max(-(-num_tokens // size) - len(blocks), 0)
            for size, blocks in zip(self.block_sizes, table.blocks, strict=True)
        ]

    def _key(self, table: BlockTables, group: int, index: int) -> BlockKey:
        last_position = (index + 1) * self.block_sizes[group] - 1 + self.config.hash_lookahead_tokens
        return table.content(last_position), index, group


def is_retained(config: EngineConfig, table: BlockTables, number: int, index: int) -> bool:
    """Whether a window's block is worth finding again (vLLM `SlidingWindowManager.reachable_block_mask`)."""
    group, size = config.table_groups[number], config.group_block_sizes[number]
    interval = config.prefix_cache_retention_interval
    if group.window is None or group.chunked:
        return True
    unit_tokens = config.block_size * config.cache_unit
    num_needed = -(-(group.window - 1) // size)
    per_segment = (unit_tokens if interval is None else interval) // size
    if per_segment and (num_needed >= per_segment or index % per_segment >= per_segment - num_needed):
        return True
    boundaries = [table.num_prompt_tokens - 1, table.shared_prefix_boundary]
    ends = [boundary // unit_tokens * unit_tokens // size for boundary in boundaries if boundary]
    return any(end - num_needed <= index < end for end in ends)
