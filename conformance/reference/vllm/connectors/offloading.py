"""What vLLM's `OffloadingConnector` decides, in plain Python: what is stored in host memory, and what is loaded again.

Prompts alone are stored, as by default: each step offers the chunks that it fills. A lookup goes on from where the
GPU's prefix cache ends. A chunk is one block of one group of layers; of groups with windows, those are stored that the
GPU's prefix cache would keep, if they were not handed out again meanwhile.
Read from vLLM 0.32 and 0.33, `vllm/distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from conformance.reference.vllm.connectors.offloading_lookup import find_hit, key_of, loaded_window
from conformance.reference.vllm.kv_cache_manager import NULL, is_retained
from conformance.reference.vllm.requests import Request
from simulator.engines.vllm.connectors.host_cache import CacheAccess, ChunkKey, HostCache
from simulator.engines.vllm.connectors.host_tier import Transfer, Transfers
from simulator.engines.vllm.engine import EngineConfig


@dataclass(kw_only=True)
class _Offloaded:
    """What the connector knows of a request."""

    request: Request
    blocks: list[list[int]] = field(default_factory=list)  # by group, as of the latest step that scheduled it
    num_local_tokens: int = 0  # of its latest lookup
    next_chunk: int = 0  # to be offered
    access: CacheAccess = field(default_factory=CacheAccess)
    transfers: set[Transfer] = field(default_factory=set)  # one load, or stores
    is_aborted: bool = False
    is_over: bool = False


class OffloadingConnector:
    """Decides on transfers at every `schedule()` call."""

    def __init__(self, config: EngineConfig) -> None:
        assert config.host_tier is not None
        tier, self.config = config.host_tier, config
        self.groups = config.table_groups
        self.cache = HostCache(
            tier.num_chunks,
            tier.eviction_policy,
            ranks_requests=tier.ranks_requests(config.host_lru_ranks_requests),
        )
        self.transfers: set[Transfer] = set()  # under way
        self.num_begun = 0
        self._known: dict[int, _Offloaded] = {}
        self._loading: set[ChunkKey] = set()
        self._fences: dict[int, set[Transfer]] = {}  # stores of ended requests by the blocks they read
        self._loads: list[Transfer] = []  # of this step …
        self._handed_out: set[int] = set()  # … and blocks

    def add(self, request: Request) -> None:
        self._known[request.id] = _Offloaded(request=request)

    # -- loads

    def find_hit(self, request: Request, num_local_tokens: int) -> int | None:
        """Tokens that can be loaded beyond a prefix hit on the GPU; None: ask again in the next step."""
        known = self._known[request.id]
        known.blocks = [[] for _ in self.groups]
        if self.config.restart_offers_again:
            known.next_chunk = 0
        if known.transfers:
            return None
        known.num_local_tokens = num_local_tokens
        num_tokens = find_hit(self.config, self.cache, request, num_local_tokens)
        if num_tokens is None:
            return None
        end = num_local_tokens + num_tokens
        for group in range(len(self.groups)):
            start, last = num_local_tokens // self.config.block_size, -(-end // self.config.block_size)
            window = loaded_window(self.config, group)
            first = start if window is None else max(start, last - window)
            if not self._loading.isdisjoint(key_of(self.config, request, group, i) for i in range(first, last)):
                return None
        return num_tokens

    def load(self, request: Request, num_tokens: int) -> None:
        """Load that many tokens into the blocks that the request was just given."""
        known = self._known[request.id]
        first = known.num_local_tokens // self.config.block_size
        last = -(-(known.num_local_tokens + num_tokens) // self.config.block_size)
        keys = []
        for group, blocks in enumerate(request.table.blocks):
            self._handed_out.update(block for block in blocks if block != NULL)
            keys += [key_of(self.config, request, group, i) for i in range(first, last) if blocks[i] != NULL]
        self.cache.prepare_load(keys, known.access)
        known.next_chunk = last
        if self.config.enable_prefix_caching:
            self._loading.update(keys)
        transfer = Transfer(request=request.id, is_store=False, keys=keys)
        self._begin(known, transfer)
        self._loads.append(transfer)

    def _begin(self, known: _Offloaded, transfer: Transfer) -> None:
        known.transfers.add(transfer)
        self.transfers.add(transfer)
        self.num_begun += 1

    # -- stores

    def plan(
        self, scheduled: Mapping[Request, int], preempted: Iterable[Request], ended: Sequence[Request]
    ) -> Transfers:
        """The transfers of a step; `ended`: since the step before."""
        known_before = {}
        for request in scheduled:
            known = self._known[request.id]
            known_before[request.id] = len(known.blocks[0]) if known.blocks else 0
            known.blocks = known.blocks or [[] for _ in self.groups]
            for blocks, table in zip(known.blocks, request.table.blocks, strict=True):
                new_blocks = table[len(blocks) :]
                blocks.extend(new_blocks)
                self._handed_out.update(block for block in new_blocks if block != NULL)
        self._drop_stale(known_before)
        asked = Transfers(loads=self._loads)
        for request in preempted:
            asked.awaited |= self._known[request.id].transfers
        for block in self._handed_out & self._fences.keys():
            asked.awaited |= self._fences[block]
        for request in [*scheduled, *ended]:
            store = self._offer(request, scheduled.get(request, 0))
            if store is not None:
                asked.stores.append(store)
                asked.awaited |= self._fence(store) if request.is_finished else set()
        for request in ended:
            known = self._known[request.id]
            known.is_over = True
            self.cache.policy.on_request_finished(known.access)
            self._forget(known)
        self._loads, self._handed_out = [], set()
        return asked

    def _drop_stale(self, known_before: Mapping[int, int]) -> None:
        """A window's block that was given up and handed out again holds something else, and is not offered."""
        for known in self._known.values():
            for group, blocks in zip(self.groups, known.blocks, strict=False):
                end = known_before.get(known.request.id, len(blocks))
                for index in range(known.next_chunk, end if group.window is not None else 0):
                    if blocks[index] in self._handed_out:
                        blocks[index] = NULL

    def _offer(self, request: Request, num_scheduled_tokens: int) -> Transfer | None:
        """Store what a request's prompt has filled and was not offered before; nothing where room cannot be had."""
        known = self._known[request.id]
        num_computed = request.num_computed_tokens + num_scheduled_tokens
        if request.is_finished and not known.is_aborted:
            num_computed = request.num_prompt_tokens
        num_chunks = min(num_computed, request.num_prompt_tokens) // self.config.block_size
        num_chunks = min(num_chunks, len(known.blocks[0]) if known.blocks else 0)
        places = [
            (group, index)
            for group in range(len(self.groups))
            for index in range(known.next_chunk, num_chunks)
            if known.blocks[group][index] != NULL and is_retained(self.config, request.table, group, index)
        ]
        keys = {key_of(self.config, request, group, index): (group, index) for group, index in places}
        new = self.cache.prepare_store([*keys], known.access) if keys else []
        if new is None:
            return None  # it is offered again
        known.next_chunk = max(known.next_chunk, num_chunks)
        if not new:
            return None
        found = [(known.blocks[group][index], self.groups[group].window) for group, index in map(keys.__getitem__, new)]
        store = Transfer(
            request=request.id,
            is_store=True,
            keys=new,
            blocks=[block for block, window in found if window is None],
            window_blocks=[block for block, window in found if window is not None],
        )
        self._begin(known, store)
        for block in store.window_blocks:
            self._fences.setdefault(block, set()).add(store)
        return store

    def _fence(self, store: Transfer) -> set[Transfer]:
        """Watch the blocks that a store reads and nobody holds; it itself, where one was handed out in this step."""
        for block in store.blocks:
            self._fences.setdefault(block, set()).add(store)
        return {store} if not self._handed_out.isdisjoint(store.blocks) else set()

    # -- ends

    def end(self, request: Request, *, is_aborted: bool) -> None:
        """A request has ended; its blocks are let go now, whatever is stored of them."""
        known = self._known[request.id]
        known.is_aborted = is_aborted
        for transfer in known.transfers:
            for block in transfer.blocks:
                self._fences.setdefault(block, set()).add(transfer)

    def complete(self, transfer: Transfer) -> Request:
        """A transfer is over; returns whose it was."""
        known = self._known[transfer.request]
        if transfer.is_store:
            self.cache.complete_store(transfer.keys)
        else:
            self.cache.complete_load(transfer.keys)
            self._loading.difference_update(transfer.keys)
        watched = transfer.blocks if known.request.is_finished else []
        for block in [*transfer.window_blocks, *watched]:
            self._fences[block].discard(transfer)
            if not self._fences[block]:
                del self._fences[block]
        self.transfers.discard(transfer)
        known.transfers.discard(transfer)
        self._forget(known)
        return known.request

    def _forget(self, known: _Offloaded) -> None:
        if known.is_over and not known.transfers:
            del self._known[known.request.id]
