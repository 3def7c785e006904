"""The leaves of the radix tree that may be evicted: a binary heap by `--radix-eviction-policy`.

A leaf knows its place in the heap, so that it can be moved when it is used, and taken out when it is locked.
"""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.sglang.layout import LFU, LRU, PRIORITY, SLRU, SGLangArrays
from simulator.core.types import Node, SGLangEngine, SGLangPool

PROTECTED_HITS = 2  # slru: from so many hits on, a node is evicted after all that have fewer


@kernel
def class_of(p: SGLangPool, node: Node) -> int:
    """What a policy looks at before the time of the last use; the lowest goes first."""
    policy = p.eviction_policy
    if policy == LRU:
        return 0
    if policy == LFU:
        return int(node.hit_count)
    if policy == SLRU:
        return int(node.hit_count >= PROTECTED_HITS)
    if policy == PRIORITY:
        return int(node.priority)
    return int(node.start < node.history_len + p.tail_tokens)


@kernel
def goes_before(p: SGLangPool, node: Node, other: Node) -> bool:
    own, others = class_of(p, node), class_of(p, other)
    if own != others:
        return own < others
    return bool(node.last_access < other.last_access)


@kernel
def put(t: SGLangArrays, root: int, place: int, node: int) -> None:
    t.leaves[root + place] = node
    t.nodes[node].leaf_place = place


@kernel
def rise(t: SGLangArrays, p: SGLangPool, root: int, node: int, place: int) -> int:
    """Where a leaf belongs at or above an empty place; what it passes moves down."""
    while place > 0:
        above = t.leaves[root + ((place - 1) >> 1)]
        if not goes_before(p, t.nodes[node], t.nodes[above]):
            break
        put(t, root, place, above)
        place = (place - 1) >> 1
    return place


@kernel
def sink(t: SGLangArrays, p: SGLangPool, root: int, size: int, node: int, place: int) -> int:
    """Where a leaf belongs at or below an empty place; what it passes moves up."""
    while True:
        child = 2 * place + 1
        if child >= size:
            return place
        if child + 1 < size and goes_before(p, t.nodes[t.leaves[root + child + 1]], t.nodes[t.leaves[root + child]]):
            child += 1
        if not goes_before(p, t.nodes[t.leaves[root + child]], t.nodes[node]):
            return place
        put(t, root, place, t.leaves[root + child])
        place = child


@rare_kernel
def settle(t: SGLangArrays, p: SGLangPool, state: SGLangEngine, node: int) -> None:
    """Move a node that was used, if it is in the heap."""
    place = t.nodes[node].leaf_place
    if place == NONE:
        return
    place = sink(t, p, state.root, state.num_leaves, node, rise(t, p, state.root, node, place))
    put(t, state.root, place, node)


@rare_kernel
def remove(t: SGLangArrays, p: SGLangPool, state: SGLangEngine, node: int) -> None:
    """Take a node out, if it is in."""
    place = t.nodes[node].leaf_place
    if place == NONE:
        return
    t.nodes[node].leaf_place = NONE
    state.num_leaves -= 1
    last = t.leaves[state.root + state.num_leaves]
    if last != node:
        t.nodes[last].leaf_place = place
        settle(t, p, state, last)


@rare_kernel
def update(t: SGLangArrays, p: SGLangPool, state: SGLangEngine, node: int) -> None:
    """Put a node in or take it out, as it may be evicted now or not."""
    of = t.nodes[node]
    if node == state.root or of.lock_ref > 0 or of.num_children > 0:
        remove(t, p, state, node)
    elif of.leaf_place == NONE:
        state.num_leaves += 1
        put(t, state.root, rise(t, p, state.root, node, state.num_leaves - 1), node)
