"""What LMCache's connector decides, in plain Python: what is kept in host memory, and what is loaded again.

Loads and stores are part of a step: a request is admitted with what is found, its load comes before the forward pass,
and the stores of all after it. Whole chunks alone are kept, of prompts alone.
Read from LMCache 0.5.6: `integration/vllm/vllm_v1_adapter.py`, `v1/cache_engine.py`,
`v1/storage_backend/local_cpu_backend.py`; with vLLM's second model runner, which takes a request that was preempted for
a new one.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from conformance.reference.vllm.requests import Request
from simulator.engines.vllm.connectors.host_cache import ChunkKey
from simulator.engines.vllm.connectors.host_tier import HostTier


class ChunkCache:
    """Chunks by their last use; those that a request was told of stay until its step is over (`LocalCPUBackend`)."""

    def __init__(self, num_chunks: int) -> None:
        self.num_chunks = num_chunks
        self.pins: OrderedDict[ChunkKey, int] = OrderedDict()  # the least recently used first

    def find(self, keys: Iterable[ChunkKey]) -> list[ChunkKey]:
        """Those that are there, up to the first that is not: pinned, and used now, the first foremost."""
        found = []
        for key in keys:
            if key not in self.pins:
                break
            self.pins[key] += 1
            found.append(key)
        for key in reversed(found):
            self.pins.move_to_end(key)
        return found

    def unpin(self, keys: Iterable[ChunkKey]) -> None:
        for key in keys:
            self.pins[key] -= 1

    def store(self, keys: list[ChunkKey]) -> int:
        """Copy chunks, also those that are there: room is made for all of them first; returns how many it was had for.

        The rest of them is dropped.
        """
        num_free, num_copied = self.num_chunks - len(self.pins), 0
        for _ in keys:
            if num_free == num_copied:
                oldest = next((key for key, pins in self.pins.items() if pins == 0), None)
                if oldest is None:
                    break
                del self.pins[oldest]
                num_free += 1
            num_copied += 1
        for key in keys[:num_copied]:
            self.pins.setdefault(key, 0)
        return num_copied


@dataclass(kw_only=True, eq=False)
class Copies:
    """What one step loads and stores of one request."""

    pinned: list[ChunkKey] = field(default_factory=list)  # since it was looked up; until its load, or its stores
    loaded: list[ChunkKey] = field(default_factory=list)
    stored: list[ChunkKey] = field(default_factory=list)


@dataclass(kw_only=True)
class _Tracker:
    """What the connector knows of a request that runs (LMCache `RequestTracker`)."""

    num_tokens: int  # that it has seen
    num_saved_tokens: int
    is_decode_phase: bool = False  # nothing is stored from then on


class LMCacheConnector:
    """Decides on loads and stores at every `schedule()` call."""

    def __init__(self, tier: HostTier, block_size: int) -> None:
        self.chunk_size = tier.blocks_per_chunk * block_size
        self.cache = ChunkCache(tier.num_chunks)
        self._found: dict[Request, list[ChunkKey]] = {}  # of those looked up and not admitted since
        self._local: dict[Request, int] = {}
        self._trackers: dict[Request, _Tracker] = {}

    def find(self, request: Request, num_local_tokens: int) -> int:
        """Tokens that are loaded beyond a prefix hit on the GPU if the request is admitted now.

        It is looked up once: what was found then stays.
        """
        num_chunks = request.num_tokens // self.chunk_size
        if request not in self._found and num_chunks > 0:
            self._found[request] = self.cache.find(self._keys(request, 0, num_chunks))
        self._local[request] = num_local_tokens
        return max(self._num_found(request) - num_local_tokens, 0)

    def _num_found(self, request: Request) -> int:
        """The last token is always computed."""
        num_tokens = len(self._found.get(request, ())) * self.chunk_size
        return num_tokens - (num_tokens == request.num_tokens)

    def _keys(self, request: Request, first: int, last: int) -> list[ChunkKey]:
        ends = ((index, (index + 1) * self.chunk_size) for index in range(first, last))
        return [(request.table.content(end - 1), index, 0) for index, end in ends]

    def plan(self, scheduled: Mapping[Request, int]) -> list[Copies]:
        """The copies of a step, in the order in which they are made; its tokens are not counted as computed yet."""
        admitted = [request for request in scheduled if request in self._local]
        admitted.sort(key=lambda request: request.num_preemptions > 0)  # vLLM tells of those that resume last
        running = [request for request in scheduled if request not in self._local]
        self._local = {request: local for request, local in self._local.items() if request in scheduled}
        copies = [self._begin(request, scheduled[request]) for request in admitted]
        return [*copies, *(self._go_on(request, scheduled[request]) for request in running)]

    def _begin(self, request: Request, num_scheduled_tokens: int) -> Copies:
        local, found = self._local.pop(request), self._found.pop(request, [])
        num_seen = min(request.num_computed_tokens + num_scheduled_tokens, request.num_prompt_tokens)
        self._trackers[request] = _Tracker(num_tokens=num_seen, num_saved_tokens=len(found) * self.chunk_size)
        is_loaded = request.num_computed_tokens > local
        loaded = found[local // self.chunk_size :] if is_loaded else []
        return Copies(pinned=found, loaded=loaded, stored=self._store(request))

    def _go_on(self, request: Request, num_scheduled_tokens: int) -> Copies:
        tracker = self._trackers[request]
        first = min(request.num_computed_tokens, tracker.num_tokens)
        num_new_tokens = min(num_scheduled_tokens, request.num_tokens - first)  # a token in flight is not known
        tracker.num_tokens = first + num_new_tokens
        if num_new_tokens == 1:  # also where it is a prompt's last
            tracker.is_decode_phase = True
        return Copies(stored=self._store(request))

    def _store(self, request: Request) -> list[ChunkKey]:
        tracker = self._trackers[request]
        first, last = (count // self.chunk_size for count in (tracker.num_saved_tokens, tracker.num_tokens))
        if tracker.is_decode_phase or last <= first:
            return []
        tracker.num_saved_tokens = last * self.chunk_size
        return self._keys(request, first, last)

    def make(self, copies: Iterable[Copies]) -> None:
        """A step is over with its copies."""
        for of in copies:
            if of.loaded:
                self.cache.unpin(of.pinned)
        for of in copies:
            if not of.loaded:
                self.cache.unpin(of.pinned)
            self.cache.store(of.stored)

    def end(self, request: Request) -> None:
        """A request has ended, before it was admitted or after."""
        self.cache.unpin(self._found.pop(request, []))
        self._trackers.pop(request, None)
        self._local.pop(request, None)
