"""Our radix tree beside SGLang's own, operation by operation."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from conformance.cases.radix_cases import RadixCase, random_radix_case
from conformance.probing import Record, probe_records
from conformance.reference.sglang.kv_pool import KVPool
from conformance.sglang_scheduler import first_of
from simulator.engines.sglang.eviction import TailBudget
from simulator.engines.sglang.radix_cache import RadixCache, TreeNode

TREE_CORES = ("rust", "python")  # SGLang's two; the first is its default


@dataclass(kw_only=True)
class RadixComparison:
    """What was compared, with the first operation of each case that was answered otherwise."""

    seed: int
    sglang_version: str = ""
    cases: int = 0
    operations: int = 0
    hits: int = 0
    evictions: int = 0
    differences: list[Record] = field(default_factory=list)

    def says(self) -> str:
        """How much, as text."""
        return (
            f"SGLang {self.sglang_version}, seed {self.seed}: {self.operations:,} operations on {self.cases:,} trees, "
            f"{self.hits:,} hits, {self.evictions:,} evictions compared"
        )

    def first(self) -> list[str]:
        """The first difference, as lines."""
        return first_of(self.differences)

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return vars(self) | {"differing_cases": len(self.differences)}


def check_radix_tree(
    python: Path, *, num_cases: int, seed: int, watch: Callable[[RadixComparison], None] = lambda _: None
) -> RadixComparison:
    """Run random cases through both of SGLang's trees under `python` and through ours.

    Raises HeadcountError where SGLang cannot be driven there.
    """
    cases = [(random_radix_case(seed, number), core) for number in range(num_cases) for core in TREE_CORES]
    lines = (case.to_json(core) for case, core in cases)
    records = probe_records(python, "sglang_radix_probe", lines, failure="SGLang's radix tree could not be driven")
    found = RadixComparison(seed=seed, sglang_version=next(records)["sglang_version"])
    for (case, core), theirs in zip(cases, records, strict=True):
        _compare(found, case, core, theirs["answers"])
        if core == TREE_CORES[-1]:
            watch(found)
    return found


def _compare(found: RadixComparison, case: RadixCase, core: str, theirs: list[Any]) -> None:
    ours = OurTree(case).answers()
    found.cases += 1
    found.operations += len(theirs)
    for number, (one, other) in enumerate(zip_longest(ours, theirs)):
        operation = case.operations[number]
        found.hits += operation["do"] == "match" and bool(other[0])
        found.evictions += operation["do"] == "evict" and bool(other[0])
        if one != other:
            at = {"case": case.name, "tree_core": core, "number": number, "operation": operation}
            found.differences.append(at | {"ours": one, "sglang": other})
            return


class OurTree:
    """Our tree with its pool, driven by a case's operations."""

    def __init__(self, case: RadixCase) -> None:
        self.case = case
        self.pool = KVPool(case.max_total_num_tokens, case.page_size)
        tail = TailBudget(threshold=case.threshold, next_prompt_estimate=case.next_prompt_estimate)
        self.tree = RadixCache(case.page_size, case.radix_eviction_policy, tail)
        self.locks: list[TreeNode] = []

    def answers(self) -> list[list[Any]]:
        """Each operation's answer, with what is evictable, protected and free after it."""
        return [self.do(operation) for operation in self.case.operations]

    def do(self, operation: Record) -> list[Any]:
        """One operation."""
        answer = getattr(self, f"_{operation['do']}")(operation)
        return [answer, self.tree.evictable_size, self.tree.protected_size, self.pool.available_size]

    def _match(self, operation: Record) -> int:
        node = self.tree.match_prefix(self.case.sequences[operation["sequence"]], operation["num_tokens"])
        if operation["locks"]:
            self.tree.lock(node)
            self.locks.append(node)
        return node.end

    def _insert(self, operation: Record) -> int | None:
        num_pages = operation["num_tokens"] // self.case.page_size
        while not self.pool.take(num_pages):
            if not self._evict_leaf():
                return None
        spans = self.case.sequences[operation["sequence"]]
        given = {"priority": operation["priority"], "inserted_len": operation["inserted_len"]}
        prefix_len = self.tree.insert(spans, operation["num_tokens"], **given).prefix_len
        self.pool.free(prefix_len // self.case.page_size)
        return prefix_len

    def _evict(self, operation: Record) -> int:
        num_tokens = 0
        while num_tokens < operation["num_tokens"] and (freed := self._evict_leaf()):
            num_tokens += freed
        return num_tokens

    def _evict_leaf(self) -> int:
        freed = self.tree.evict_leaf()
        self.pool.free(freed // self.case.page_size)
        return freed

    def _unlock(self, operation: Record) -> None:
        if self.locks:
            self.tree.unlock(self.locks.pop(operation["lock"] % len(self.locks)))

    def _order(self, operation: Record) -> list[int]:
        waiting = [
            self.tree.match_prefix(self.case.sequences[number], tokens) for number, tokens in operation["waiting"]
        ]
        return self.tree.dfs_weight_order(waiting)
