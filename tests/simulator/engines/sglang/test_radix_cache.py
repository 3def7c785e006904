"""The radix tree's laws: nothing is lost, a lock holds, a match is the longest there is."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.cases.radix_cases import PAGE_SIZES, random_radix_case, random_sequences
from conformance.radix_tree import OurTree
from simulator.engines.sglang.eviction import EVICTION_POLICIES, eviction_rank
from simulator.engines.sglang.radix_cache import RadixCache, TreeNode
from simulator.engines.sglang.token_spans import Spans, first_difference

A: Spans = ((1, 100),)
B: Spans = ((1, 40), (2, 100))


def lock_count(held: list[TreeNode]) -> Counter[TreeNode]:
    """How often each node lies on the way to a locked one."""
    count: Counter[TreeNode] = Counter()
    for locked in held:
        node: TreeNode | None = locked
        while node is not None and node.parent is not None:
            count[node] += 1
            node = node.parent
    return count


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.integers(0, len(PAGE_SIZES) * len(EVICTION_POLICIES) - 1))
def test_tokens_are_conserved_and_locks_hold(seed: int, number: int) -> None:
    ours = OurTree(random_radix_case(seed, number, num_operations=60))
    tree, pool = ours.tree, ours.pool
    for operation in ours.case.operations:
        locked_before = [node for node in tree.nodes() if node.lock_ref]
        ours.do(operation)
        nodes = list(tree.nodes())
        assert sum(node.num_tokens for node in nodes) == tree.evictable_size + tree.protected_size
        assert tree.evictable_size + tree.protected_size + pool.available_size == pool.num_pages * pool.page_size
        assert {node: node.lock_ref for node in nodes if node.lock_ref} == lock_count(ours.locks)
        assert tree.leaves == {node for node in nodes if not node.children and not node.lock_ref}
        assert operation["do"] == "unlock" or set(locked_before) <= set(nodes)
        for node in nodes:
            assert node.parent is not None
            assert node.parent.end == node.start < node.end
            assert node.start % tree.page_size == node.end % tree.page_size == 0
            assert node.parent.lock_ref >= node.lock_ref or node.parent is tree.root


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from(PAGE_SIZES))
def test_a_match_is_the_longest_prefix_of_anything_inserted(seed: int, page_size: int) -> None:
    sequences = random_sequences(np.random.default_rng(seed), 8, scale=page_size * 2)
    tree = RadixCache(page_size)
    for number, spans in enumerate(sequences):
        length = spans[-1][1]
        known = [first_difference(spans, other, 0, min(length, other[-1][1])) for other in sequences[:number]]
        longest = max(known, default=0) // page_size * page_size
        assert tree.match_prefix(spans, length).end == longest
        assert tree.insert(spans, length).prefix_len == longest
        assert tree.match_prefix(spans, length).end == length // page_size * page_size


def test_a_split_node_s_lock_covers_both_parts() -> None:
    tree = RadixCache()
    last = tree.insert(A, 100).last_node
    tree.lock(last)
    front = tree.insert(B, 100).last_node.parent
    assert front is last.parent
    assert (front.start, front.end, last.start, last.end) == (0, 40, 40, 100)
    assert front.lock_ref == last.lock_ref == 1
    assert tree.evict_leaf() == 60  # B's own part
    assert tree.evict_leaf() == 0
    tree.unlock(last)
    assert [tree.evict_leaf() for _ in range(3)] == [60, 40, 0]


def test_a_prefix_outlives_what_follows_it() -> None:
    tree = RadixCache()
    tree.insert(A, 100)
    tree.insert(B, 100)
    tree.match_prefix(A, 100)
    assert [tree.evict_leaf() for _ in range(3)] == [60, 60, 40]


def test_a_page_is_shared_whole_or_not_at_all() -> None:
    tree = RadixCache(page_size=16)
    tree.insert(A, 100)
    assert tree.match_prefix(A, 100).end == 96
    assert tree.match_prefix(B, 100).end == 32
    assert tree.match_prefix(A, 15).end == 0


@pytest.mark.parametrize(
    ("policy", "kept"),
    [("lru", "late"), ("lfu", "hit"), ("slru", "hit"), ("priority", "dear"), ("tlru", "late")],
)
def test_a_policy_keeps_what_its_name_says(policy: str, kept: str) -> None:
    tree = RadixCache(eviction_policy=policy)
    names: dict[Spans, str] = {((1, 10),): "hit", ((2, 10),): "dear", ((3, 10),): "late"}
    hit, dear, late = names
    tree.insert(hit, 10)
    tree.insert(hit, 10)
    tree.insert(dear, 10, priority=1)
    tree.insert(late, 10)
    tree.evict_leaf()
    tree.evict_leaf()
    assert [names[node.spans] for node in tree.nodes()] == [kept]


def test_an_unknown_policy_is_told_with_those_there_are() -> None:
    with pytest.raises(
        ValueError, match="radix_eviction_policy is 'fifo'; choose one of lru, lfu, slru, priority, tlru"
    ):
        eviction_rank("fifo", None)  # type: ignore[arg-type]


def test_waiting_requests_are_ordered_branch_by_branch() -> None:
    tree = RadixCache()
    a, b = tree.insert(A, 100).last_node, tree.insert(B, 100).last_node
    other = tree.insert(((9, 5),), 5).last_node
    assert tree.dfs_weight_order([other, b, a, b]) == [1, 3, 2, 0]
