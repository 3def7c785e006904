"""What vLLM's `MooncakeStoreConnector` decides, in plain Python: what goes to a store and what comes back.

A request's blocks are looked up in the store from the first on. Each step stores what the prompts have filled, or what
is computed again after a preemption; blocks that are being stored stay taken, and no step waits for them.
Read from vLLM 0.32, `vllm/distributed/kv_transfer/kv_connector/v1/mooncake/store`: `scheduler.py`, `worker.py`. Which
chunks go for others is not Mooncake's: those of the request that ended longest ago.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from conformance.reference.block_pool import BlockPool
from conformance.reference.vllm.requests import Request
from simulator.engines.vllm.connectors.host_cache import WRITING, CacheAccess, ChunkKey, HostCache
from simulator.engines.vllm.connectors.host_tier import HostTier


class KVStore:
    """Memory for KV that all engines of a fleet share: what one has stored, any other loads."""

    def __init__(self, tier: HostTier) -> None:
        self.cache = HostCache(tier.num_chunks, tier.eviction_policy)
        self._chunk_s = tier.store_chunk_s
        self._free_s = [0.0, 0.0]  # when it has given, and taken, what it was asked for

    def served_s(self, num_chunks: int, asked_s: float, *, is_store: bool) -> float:
        """When it has served that many chunks, after all that it was asked for before."""
        self._free_s[is_store] = max(self._free_s[is_store], asked_s) + num_chunks * self._chunk_s
        return self._free_s[is_store]


@dataclass(kw_only=True, eq=False)
class Copy:
    """A load of a request's chunks, or a store of those that it has filled."""

    request: Request
    is_store: bool
    keys: list[ChunkKey] = field(default_factory=list)  # of a store: once it has begun
    blocks: list[int] = field(default_factory=list)  # of a store: that it holds
    num_chunks: int = 0  # of a store: of the request
    num_preemptions: int = 0  # of a store: of the request when it was asked for


@dataclass(kw_only=True)
class Copies:
    """What one `schedule()` call asks of the way to the store, and what that tells with its output."""

    loads: list[Copy] = field(default_factory=list)
    stores: list[Copy] = field(default_factory=list)
    over: list[Copy] = field(default_factory=list)


@dataclass(kw_only=True)
class _Known:
    """What the connector knows of a request."""

    request: Request
    access: CacheAccess = field(default_factory=CacheAccess)
    prefill_end: int = 0  # tokens that are to be computed, as of its admission
    num_local_tokens: int = 0
    next_chunk: int = 0  # those before were asked to be stored …
    next_unsaved: int = 0  # … and those before this one are


class StoreConnector:
    """Decides on transfers at every `schedule()` call."""

    def __init__(self, block_size: int, store: KVStore, pool: BlockPool) -> None:
        self.cache, self.transfers, self.num_begun = store.cache, set[Copy](), 0
        self._block_size, self._pool = block_size, pool
        self._known: dict[int, _Known] = {}
        self._admitted: set[Request] = set()  # since they were looked up
        self._loads: list[Copy] = []  # of this step

    def find(self, request: Request, num_local_tokens: int) -> int:
        """Tokens that can be loaded beyond a prefix hit on the GPU; the block of the last token is always computed."""
        known = self._known.setdefault(request.id, _Known(request=request))
        known.prefill_end, known.num_local_tokens = request.num_tokens, num_local_tokens
        known.next_chunk = known.next_unsaved = 0
        self._admitted.add(request)
        num_found = 0
        while (num_found + 1) * self._block_size < request.num_tokens:
            if self.cache.reads(self._key(request, num_found)) in (None, WRITING):
                break
            num_found += 1
        return max(num_found * self._block_size - num_local_tokens, 0)

    def load(self, request: Request, num_tokens: int) -> None:
        """Load that many tokens into the blocks that the request was just given."""
        known = self._known[request.id]
        first = known.num_local_tokens // self._block_size
        keys = [self._key(request, first + index) for index in range(num_tokens // self._block_size)]
        self.cache.prepare_load(keys, known.access)
        self._loads.append(Copy(request=request, is_store=False, keys=keys))
        self._begin(self._loads[-1])

    def _begin(self, transfer: Copy) -> None:
        self.transfers.add(transfer)
        self.num_begun += 1

    def plan(self, scheduled: Mapping[Request, int]) -> Copies:
        """The transfers of a step, those of admitted requests first; its tokens are not counted as computed yet."""
        admitted = [request for request in scheduled if request in self._admitted]
        admitted.sort(key=lambda request: request.num_preemptions > 0)  # vLLM tells of those that resume last
        running = [request for request in scheduled if request not in self._admitted]
        self._admitted.difference_update(admitted)
        asked = Copies(loads=self._loads)
        for request in [*admitted, *running]:
            asked.stores += self._store(request, request.num_computed_tokens + scheduled[request])
        self._loads = []
        return asked

    def _store(self, request: Request, num_computed_tokens: int) -> Iterator[Copy]:
        """Hold a request's blocks, and store those that it has filled since."""
        known = self._known[request.id]
        num_chunks = min(num_computed_tokens, known.prefill_end) // self._block_size
        if num_chunks <= known.next_chunk:
            return
        known.next_chunk = num_chunks
        store = Copy(
            request=request,
            is_store=True,
            blocks=list(request.table.blocks[0]),
            num_chunks=num_chunks,
            num_preemptions=request.num_preemptions,
        )
        self._pool.touch(store.blocks)
        self._begin(store)
        yield store

    def begin_store(self, store: Copy) -> None:
        """What of it is to be written: without room for that, or after a preemption, nothing."""
        known = self._known[store.request.id]
        if store.num_preemptions != store.request.num_preemptions:
            return
        offered = [self._key(store.request, index) for index in range(known.next_unsaved, store.num_chunks)]
        new = self.cache.prepare_store(offered, known.access)
        if new is not None:
            store.keys, known.next_unsaved = new, store.num_chunks

    def end(self, request: Request) -> None:
        """A request has ended: its chunks were used now."""
        self._admitted.discard(request)
        if request.id in self._known:
            self.cache.policy.on_request_finished(self._known[request.id].access)

    def complete(self, transfer: Copy) -> None:
        """A transfer is known to be over."""
        self.transfers.discard(transfer)
        if transfer.is_store:
            self._pool.free(transfer.blocks[::-1])
        else:
            self.cache.complete_load(transfer.keys)

    def _key(self, request: Request, index: int) -> ChunkKey:
        return request.table.content((index + 1) * self._block_size - 1), index, 0


class StoreLink:
    """An engine's way to the store: one copy after the other in each direction.

    Loads begin with their step. Stores begin when its forward pass is over, and are there once they are over.
    """

    def __init__(self, tier: HostTier, store: KVStore, begin_store: Callable[[Copy], None]) -> None:
        self.tier, self.store, self._begin_store = tier, store, begin_store
        self._under_way: tuple[deque[tuple[float, Copy]], ...] = (deque(), deque())  # loads, stores, by their end
        self._asked = deque[tuple[float, float, Copy]]()  # stores: when they were asked for, and are computed
        self._unsettled = deque[tuple[float, Copy]]()  # stores that have begun
        self._free_s = [0.0, 0.0]
        self._now_s = 0.0

    def next_end_s(self) -> float:
        """When the next copy is over that the scheduler does not know to be over; infinity: there is none."""
        return min((queue[0][0] for queue in self._under_way if queue), default=math.inf)

    def under_way(self, now_s: float) -> set[Copy]:
        """The copies that are not over by then."""
        begun = {copy for queue in self._under_way for end_s, copy in queue if end_s > now_s}
        return begun | {copy for _, _, copy in self._asked}

    def settle(self, now_s: float) -> None:
        """Begin the stores whose turn it is by now; what is stored by now is there."""
        while True:
            while self._unsettled and self._unsettled[0][0] <= now_s:
                self.store.cache.complete_store(self._unsettled.popleft()[1].keys)
            if not self._asked or max(self._free_s[True], self._asked[0][0]) > now_s:
                return
            asked_s, computed_s, store = self._asked.popleft()
            self._begin_store(store)
            self._unsettled.append(self._submit(store, asked_s, computed_s))

    def launch(self, asked: Copies, now_s: float, end_s: float) -> None:
        """A step is launched that ends then, with its copies; the link tells which are over by now."""
        self._now_s = max(self._now_s, now_s)
        for load in asked.loads:
            self._submit(load, self._now_s, self._now_s)
        self._asked.extend((self._now_s, end_s, store) for store in asked.stores)
        self.settle(self._now_s)
        asked.over = list(self._told())

    def _submit(self, copy: Copy, asked_s: float, computed_s: float) -> tuple[float, Copy]:
        way, count = copy.is_store, len(copy.keys)
        begin_s = self._free_s[way] = max(self._free_s[way], asked_s)
        if count:
            copied_s = max(begin_s, computed_s) + self.tier.copy_s(count)
            self._free_s[way] = max(copied_s, self.store.served_s(count, begin_s, is_store=way))
        self._under_way[way].append((self._free_s[way], copy))
        return self._under_way[way][-1]

    def _told(self) -> Iterator[Copy]:
        for queue in self._under_way:
            while queue and queue[0][0] <= self._now_s:
                yield queue.popleft()[1]
