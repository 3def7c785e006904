"""Our host memory's eviction policies beside vLLM's own, operation by operation."""

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

from conformance.components.cases.eviction_cases import random_eviction_case
from conformance.components.probes import FOLDER
from conformance.probing import Record, probe_records
from kvcache.releases import SCHEDULER_RULES
from simulator.engines.vllm.connectors.host_cache import (
    WRITING,
    ARCCachePolicy,
    CacheAccess,
    ChunkKey,
    HostCache,
    LRUCachePolicy,
    RankedLRUCachePolicy,
)


@dataclass(kw_only=True)
class EvictionComparison:
    """What was compared, with the first operation of each case that was answered otherwise."""

    seed: int
    vllm_version: str = ""
    cases: int = 0
    operations: int = 0
    refused: int = 0  # offers for which no room could be made
    remembered: int = 0  # operations that changed ARC's target
    differences: list[Record] = field(default_factory=list)


def check_eviction(python: Path, *, num_cases: int, seed: int) -> EvictionComparison:
    """Run random cases through vLLM's manager under `python` and through ours.

    Raises HeadcountError where vLLM cannot be driven there.
    """
    cases = [random_eviction_case(seed, number) for number in range(num_cases)]
    records = probe_records(
        python, "eviction_probe", cases, failure="vLLM's CPU KV-cache offloading could not be driven", folder=FOLDER
    )
    found = EvictionComparison(seed=seed, vllm_version=next(records)["vllm_version"])
    for case, theirs in zip(cases, records, strict=True):
        _compare(found, case, theirs["answers"])
    return found


def _compare(found: EvictionComparison, case: Record, theirs: list[Any]) -> None:
    ours = OurCache(case, ranks_requests=SCHEDULER_RULES["host_lru_ranks_requests"].holds_in(found.vllm_version))
    found.cases += 1
    found.operations += len(theirs)
    found.refused += sum(
        answer[0] is None
        for answer, operation in zip(theirs, case["operations"], strict=True)
        if operation["do"] == "offer"
    )
    if case["eviction_policy"] == "arc":
        found.remembered += sum(before[-1] != after[-1] for before, after in pairwise(theirs))
    for number, (one, other) in enumerate(zip_longest(ours.answers(), theirs)):
        if one != other:
            at = {"case": case["name"], "number": number, "operation": case["operations"][number]}
            found.differences.append(at | {"ours": one, "vllm": other})
            return


class OurCache:
    """As `eviction_probe.Driver`."""

    def __init__(self, case: Record, *, ranks_requests: bool) -> None:
        self.operations = case["operations"]
        self.cache = HostCache(case["num_chunks"], case["eviction_policy"], ranks_requests=ranks_requests)
        self.accesses: dict[int, CacheAccess] = {}
        self.stores, self.loads = deque[list[ChunkKey]](), deque[list[ChunkKey]]()

    def answers(self) -> list[Any]:
        """One to each operation."""
        found = []
        for operation in self.operations:
            given = {name: value for name, value in operation.items() if name != "do"}
            answer = getattr(self, operation["do"])(**given)
            found.append([answer if answer is None else list(map(list, answer)), *self.lists()])
        return found

    def load(self, request: int, chunks: list[ChunkKey]) -> list[ChunkKey]:
        keys: list[ChunkKey] = []
        for key in chunks:
            if self.cache.reads(key) in (None, WRITING):
                break
            keys.append(key)
        access = self.accesses.setdefault(request, CacheAccess())
        if keys:
            self.cache.prepare_load(keys, access)
            self.loads.append(keys)
        return keys

    def offer(self, request: int, chunks: list[ChunkKey]) -> list[ChunkKey] | None:
        new = self.cache.prepare_store(chunks, self.accesses[request])
        if new:
            self.stores.append(new)
        return new

    def copied(self) -> None:
        if self.stores:
            self.cache.complete_store(self.stores.popleft())

    def loaded(self) -> None:
        if self.loads:
            self.cache.complete_load(self.loads.popleft())

    def end(self, request: int) -> None:
        self.cache.policy.on_request_finished(self.accesses[request])

    def lists(self) -> list[Any]:
        policy = self.cache.policy
        if isinstance(policy, ARCCachePolicy):
            lists = [[list(key) for key in each] for each in (policy.t1, policy.t2, policy.b1, policy.b2)]
            return [*lists, policy.target_t1_size]
        if isinstance(policy, RankedLRUCachePolicy):
            return [[list(key) for key in sorted(policy.ranks, key=policy.ranks.__getitem__)]]
        assert isinstance(policy, LRUCachePolicy)
        return [[list(key) for key in policy.chunks]]
