"""Memory for KV outside of the GPUs, in plain Python: how much of it there is, and the copies to and from the GPU.

Read from vLLM 0.32, `vllm/v1/kv_offload/cpu`: `spec.py`, `gpu_worker.py`.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from files.errors import HeadcountError
from files.names import UnknownNameError, nearest_hint, shortened
from simulator.engines.vllm.connectors.host_cache import EVICTION_POLICIES, LRU, ChunkKey


@dataclass(frozen=True, kw_only=True)
class HostTier:
    """Memory for `num_chunks` chunks of KV beside one engine's GPUs, or in a store that all engines share, and the way.

    A copy of n chunks takes `transfer_s + n * chunk_s` seconds, one after the other in each direction. A store takes
    `store_chunk_s` for each chunk besides, and serves all engines one after the other in each direction. Raises
    ValueError for less than one chunk, for a time that is negative or not finite, and for an unknown policy.
    """

    num_chunks: int
    chunk_s: float
    transfer_s: float = 0.0
    eviction_policy: str = LRU
    blocks_per_chunk: int = 1
    is_shared: bool = False
    store_chunk_s: float = 0.0
    is_lmcache: bool = False  # copies are parts of steps: LMCache's connector; False: vLLM's own, beside them

    def __post_init__(self) -> None:
        if self.eviction_policy not in EVICTION_POLICIES:
            given, hint = shortened(self.eviction_policy, 40), nearest_hint(self.eviction_policy, EVICTION_POLICIES)
            raise UnknownNameError(f"no eviction_policy {given!r}; {hint}")
        if self.num_chunks < 1:
            size = "lmcache.max_local_cpu_size" if self.is_lmcache else self.option
            blocks = "1 block" if self.blocks_per_chunk == 1 else f"{self.blocks_per_chunk} blocks"
            raise HeadcountError(
                f"the CPU KV cache holds {self.num_chunks} chunks; it must hold {blocks} of KV at least: raise {size}"
            )
        for name in ("chunk_s", "transfer_s", "store_chunk_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise HeadcountError(f"{name} is {shortened(repr(value))}; it must be a finite time of 0 s or more")

    @property
    def title(self) -> str:
        return "LMCache" if self.is_lmcache else "a remote KV cache" if self.is_shared else "CPU KV-cache offloading"

    @property
    def option(self) -> str:
        """What asks for it."""
        own = "--kv-store-size" if self.is_shared else "--kv-offloading-size"
        return "--kv-transfer-config" if self.is_lmcache else own

    def copy_s(self, num_chunks: int) -> float:
        """How long a copy of so many chunks takes, in seconds."""
        return self.transfer_s + num_chunks * self.chunk_s

    def ranks_requests(self, release_does: bool) -> bool:
        """Whether chunks go by the request that used them: LRU of the release's own tier."""
        return release_does and self.eviction_policy == LRU and not self.is_shared


@dataclass(kw_only=True, eq=False)
class Transfer:
    """A copy of a request's chunks from the GPU, or to it."""

    request: int
    is_store: bool
    keys: list[ChunkKey]
    blocks: list[int] = field(default_factory=list)  # of a store: those that it reads …
    window_blocks: list[int] = field(default_factory=list)  # … and of layers with windows, which may be given up before


@dataclass(kw_only=True)
class Transfers:
    """What one `schedule()` call asks of the link, and what the link tells with its output."""

    loads: list[Transfer] = field(default_factory=list)
    stores: list[Transfer] = field(default_factory=list)
    awaited: set[Transfer] = field(default_factory=set)  # stores that must be over before the step begins
    over: list[Transfer] = field(default_factory=list)


class HostLink:
    """The link between host and GPU: one copy after the other in each direction (vLLM's worker).

    A step's loads begin when its forward pass is over, and so do its stores, which are handed to the link as the next
    step begins.
    """

    def __init__(self, tier: HostTier) -> None:
        self.tier = tier
        self.unsubmitted: list[Transfer] = []
        self._under_way: tuple[deque[tuple[float, Transfer]], ...] = (deque(), deque())  # loads, stores, by their end
        self._free_s = [0.0, 0.0]
        self._now_s = 0.0  # a step is handed over no sooner than the one before was launched
        self._computed_s = 0.0  # when the steps that were launched are over

    def next_end_s(self) -> float:
        """When the next copy is over that the scheduler does not know to be over; infinity: there is none."""
        return min((queue[0][0] for queue in self._under_way if queue), default=math.inf)

    def under_way(self, now_s: float) -> set[Transfer]:
        """The copies that are not over by then."""
        return {transfer for queue in self._under_way for end_s, transfer in queue if end_s > now_s}

    def before_step(self, asked: Transfers, now_s: float) -> float:
        """Begin the stores of the step before; returns when this step may begin."""
        urgent = [store for store in asked.stores if store in asked.awaited]
        asked.stores = [store for store in asked.stores if store not in asked.awaited]
        self._now_s = max(self._now_s, now_s)
        self._submit([*self.unsubmitted, *urgent])
        self.unsubmitted = []
        ends_s = [end_s for end_s, store in self._under_way[True] if store in asked.awaited]
        self._now_s = max([self._now_s, *ends_s])
        return self._now_s

    def launch(self, asked: Transfers, end_s: float) -> None:
        """A step is launched that ends then: its copies follow, and the link tells which are over by now."""
        self._computed_s = max(self._computed_s, end_s)
        self._submit(asked.loads)
        self.unsubmitted = asked.stores
        asked.over = list(self._told())

    def _submit(self, transfers: Iterable[Transfer]) -> None:
        for transfer in transfers:
            way = transfer.is_store
            begin_s = max(self._free_s[way], self._now_s, self._computed_s)
            self._free_s[way] = begin_s + self.tier.copy_s(len(transfer.keys))
            self._under_way[way].append((self._free_s[way], transfer))

    def _told(self) -> Iterator[Transfer]:
        for queue in self._under_way:
            while queue and queue[0][0] <= self._now_s:
                yield queue.popleft()[1]
