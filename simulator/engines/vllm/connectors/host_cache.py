"""Which chunks of KV lie in host memory, and which of them go for others, in plain Python.

Read from vLLM 0.32 and 0.33, `vllm/v1/kv_offload/cpu`: `manager.py`, `policies/lru.py`, `policies/arc.py`.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice
from typing import Protocol

ChunkKey = tuple[int, int, int]  # content id, block index, group of layers
WRITING = -1  # instead of a number of reads: the chunk's first copy is under way
LRU, ARC = "lru", "arc"
EVICTION_POLICIES = (LRU, ARC)


@dataclass(kw_only=True)
class CacheAccess:
    """What one request did with chunks (vLLM `_RequestCacheAccess`)."""

    seen: set[ChunkKey] = field(default_factory=set)
    inserted: set[ChunkKey] = field(default_factory=set)
    reused: set[ChunkKey] = field(default_factory=set)  # found there, and not stored by itself before
    missed: set[ChunkKey] = field(default_factory=set)
    rank: int | None = None  # by when its first chunk was seen, where the policy ranks requests


class CachePolicy(Protocol):
    """In which order chunks go."""

    def insert(self, key: ChunkKey, access: CacheAccess) -> None: ...
    def on_request_access(self, keys: Collection[ChunkKey], access: CacheAccess) -> None:
        """A request sees chunks for the first time."""

    def on_store_miss(self, keys: Sequence[ChunkKey]) -> None: ...
    def on_request_finished(self, access: CacheAccess) -> None: ...
    def evict(self, n: int, may_go: Callable[[ChunkKey], bool]) -> list[ChunkKey] | None:
        """Exactly `n` chunks are let go, or none is."""


class LRUCachePolicy:
    """The chunk goes that was used longest ago."""

    def __init__(self, _: int) -> None:
        self.chunks: OrderedDict[ChunkKey, None] = OrderedDict()

    def insert(self, key: ChunkKey, access: CacheAccess) -> None:
        self.chunks[key] = None

    def on_request_access(self, keys: Collection[ChunkKey], access: CacheAccess) -> None:
        """They count as used when the request ends."""

    def on_store_miss(self, keys: Sequence[ChunkKey]) -> None:
        """It learns nothing from those."""

    def on_request_finished(self, access: CacheAccess) -> None:
        """Its chunks were used now, the tail first, so that tails go before heads."""
        for key in tail_first(access.seen):
            if key in self.chunks:
                self.chunks.move_to_end(key)

    def evict(self, n: int, may_go: Callable[[ChunkKey], bool]) -> list[ChunkKey] | None:
        found = list(islice(filter(may_go, self.chunks), n))
        if len(found) < n:
            return None
        for key in found:
            del self.chunks[key]
        return found


class RankedLRUCachePolicy:
    """LRU by requests, as of vLLM 0.33: chunks count as used when their request saw its first one, the last foremost.

    When it ends, they count as used once more.
    """

    def __init__(self, _: int) -> None:
        self.ranks: dict[ChunkKey, tuple[int, int, int]] = {}  # the lowest goes first
        self._latest = 0

    def insert(self, key: ChunkKey, access: CacheAccess) -> None:
        self.ranks[key] = self._rank(key, access)

    def on_request_access(self, keys: Collection[ChunkKey], access: CacheAccess) -> None:
        for key in keys:
            rank = self._rank(key, access)
            if key in self.ranks:
                self.ranks[key] = max(self.ranks[key], rank)

    def _rank(self, key: ChunkKey, access: CacheAccess) -> tuple[int, int, int]:
        if access.rank is None:
            self._latest += 1
            access.rank = self._latest
        return access.rank, -1 - key[1], key[2]

    def on_store_miss(self, keys: Sequence[ChunkKey]) -> None:
        """It learns nothing from those."""

    def on_request_finished(self, access: CacheAccess) -> None:
        for key in tail_first(access.seen):
            if key in self.ranks:
                self._latest += 1
                self.ranks[key] = self._latest, 0, 0

    def evict(self, n: int, may_go: Callable[[ChunkKey], bool]) -> list[ChunkKey] | None:
        found = nsmallest(n, filter(may_go, self.ranks), key=self.ranks.__getitem__)
        if len(found) < n:
            return None
        for key in found:
            del self.ranks[key]
        return found


class ARCCachePolicy:
    """The adaptive replacement cache of Megiddo and Modha (FAST 2003), as vLLM has it.

    Chunks that one request used lie in `t1`, those that a later one used again in `t2`; `b1` and `b2` remember what
    went from either. A miss of what `b1` remembers leaves more to `t1`, one of `b2` less.
    """

    def __init__(self, cache_capacity: int) -> None:
        self.cache_capacity = cache_capacity
        self.target_t1_size = 0.0
        self.t1: OrderedDict[ChunkKey, None] = OrderedDict()  # each: the least recently used first
        self.t2: OrderedDict[ChunkKey, None] = OrderedDict()
        self.b1: OrderedDict[ChunkKey, None] = OrderedDict()
        self.b2: OrderedDict[ChunkKey, None] = OrderedDict()

    def insert(self, key: ChunkKey, access: CacheAccess) -> None:
        self.t1[key] = None
        self.b1.pop(key, None)
        self.b2.pop(key, None)

    def on_request_access(self, keys: Collection[ChunkKey], access: CacheAccess) -> None:
        """They count as used when the request ends."""

    def on_store_miss(self, keys: Sequence[ChunkKey]) -> None:
        for key in reversed(keys):
            if key in self.b1:
                step = max(1, len(self.b2) / len(self.b1))
                self.target_t1_size = min(self.target_t1_size + step, self.cache_capacity)
                self.b1.move_to_end(key)
            elif key in self.b2:
                step = max(1, len(self.b1) / len(self.b2))
                self.target_t1_size = max(self.target_t1_size - step, 0)
                self.b2.move_to_end(key)

    def on_request_finished(self, access: CacheAccess) -> None:
        """What it found there is used again; what it stored itself becomes the most recently used of its list."""
        for key in tail_first(access.inserted | access.reused):
            if key in self.t1 and key in access.reused:
                del self.t1[key]
                self.t2[key] = None
            elif key in self.t1:
                self.t1.move_to_end(key)
            elif key in self.t2:
                self.t2.move_to_end(key)

    def evict(self, n: int, may_go: Callable[[ChunkKey], bool]) -> list[ChunkKey] | None:
        waiting = [[key for key in reversed(chunks) if may_go(key)] for chunks in (self.t1, self.t2)]
        if sum(map(len, waiting)) < n:
            return None
        t1, t2 = waiting
        evicted = []
        for _ in range(n):
            is_recent = bool(t1) and (len(self.t1) >= int(self.target_t1_size) or not t2)
            key = (t1 if is_recent else t2).pop()
            chunks, ghosts = (self.t1, self.b1) if is_recent else (self.t2, self.b2)
            del chunks[key]
            ghosts[key] = None
            evicted.append(key)
        for ghosts in (self.b1, self.b2):
            while len(ghosts) > self.cache_capacity:
                ghosts.popitem(last=False)
        return evicted


def tail_first(keys: Iterable[ChunkKey]) -> list[ChunkKey]:
    """Chunks of one request, the last first, of those at one place the last group's."""
    return sorted(keys, key=lambda key: key[1:], reverse=True)


_POLICIES: dict[str, Callable[[int], CachePolicy]] = {LRU: LRUCachePolicy, ARC: ARCCachePolicy}


class HostCache:
    """Chunks in the order of a policy; those that a transfer reads or writes stay (vLLM `CPUOffloadingManager`)."""

    def __init__(self, num_chunks: int, eviction_policy: str = LRU, *, ranks_requests: bool = False) -> None:
        self.num_chunks = num_chunks
        is_ranked = ranks_requests and eviction_policy == LRU
        self.policy = RankedLRUCachePolicy(num_chunks) if is_ranked else _POLICIES[eviction_policy](num_chunks)
        self._reads: dict[ChunkKey, int] = {}

    def __len__(self) -> int:
        return len(self._reads)

    def reads(self, key: ChunkKey) -> int | None:
        """How many transfers read a chunk, or WRITING; None where there is none."""
        return self._reads.get(key)

    def prepare_load(self, keys: Collection[ChunkKey], access: CacheAccess) -> None:
        """Let chunks stay until `complete_load`."""
        for key in keys:
            assert self._reads[key] != WRITING, "a chunk was read before it was written"
            self._reads[key] += 1
        self._note(keys, access, reused=keys)

    def _note(self, keys: Iterable[ChunkKey], access: CacheAccess, *, reused: Iterable[ChunkKey]) -> None:
        first_seen = [key for key in keys if key not in access.seen]
        self.policy.on_request_access(first_seen, access)
        access.seen.update(first_seen)
        access.reused.update(key for key in reused if key not in access.inserted)

    def complete_load(self, keys: Iterable[ChunkKey]) -> None:
        for key in keys:
            self._reads[key] -= 1

    def prepare_store(self, offered: Sequence[ChunkKey], access: CacheAccess) -> list[ChunkKey] | None:
        """Which of the chunks offered are new and to be written; None where no room can be made for them.

        Others than those offered go for them.
        """
        new = [key for key in offered if key not in self._reads]
        ready = [key for key in offered if self._reads.get(key, WRITING) != WRITING]
        self.policy.on_store_miss([key for key in new if key not in access.missed])
        access.missed.update(new)
        self._note([*new, *ready], access, reused=ready)
        num_missing = len(new) - (self.num_chunks - len(self._reads))
        if new and num_missing > 0:
            protected = frozenset(offered)
            evicted = self.policy.evict(num_missing, lambda key: self._reads[key] == 0 and key not in protected)
            if evicted is None:
                return None
            for key in evicted:
                del self._reads[key]
        for key in new:
            self.policy.insert(key, access)
        self._reads.update(dict.fromkeys(new, WRITING))
        access.inserted.update(new)
        return new

    def complete_store(self, keys: Iterable[ChunkKey]) -> None:
        for key in keys:
            self._reads[key] = 0
