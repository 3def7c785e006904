"""What layers with sliding windows have of the radix tree, compiled: as in `simulator.engines.sglang.window_tokens`.

The nodes that are no tombstones are a list by their last use. What requests have of windows is in an array of its own,
which has one row where no pool has such layers.
"""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.sglang.layout import SGLangArrays
from simulator.core.sglang.side_list import link_before, unlink
from simulator.core.types import SGLangEngine, SGLangPool


@kernel
def num_pages(t: SGLangArrays, p: SGLangPool, node: int) -> int:
    return int((t.nodes[node].end - t.nodes[node].start) // p.page_size)


@kernel
def add(t: SGLangArrays, p: SGLangPool, state: SGLangEngine, node: int) -> None:
    """The layers have this node's tokens from now on."""
    of = t.side_nodes[node]
    of.is_held = 1
    link_before(t, state, node, NONE)
    if of.lock_ref == 0:
        state.num_evictable_window_pages += num_pages(t, p, node)


@kernel
def drop(t: SGLangArrays, p: SGLangPool, state: SGLangEngine, node: int) -> None:
    """Make a node a tombstone, and free its pages."""
    t.side_nodes[node].is_held = 0
    unlink(t, state, node)
    state.num_evictable_window_pages -= num_pages(t, p, node)
    state.num_free_window_pages += num_pages(t, p, node)


@kernel
def begin(t: SGLangArrays, node: int) -> None:
    """A new node is a tombstone."""
    t.side_nodes[node].is_held = t.side_nodes[node].lock_ref = 0


@kernel
def split(t: SGLangArrays, state: SGLangEngine, front: int, node: int) -> None:
    """Tell what the new front part of a node has, which counts as used right before the rest."""
    of = t.side_nodes[node]
    t.side_nodes[front].lock_ref = of.lock_ref
    t.side_nodes[front].is_held = of.is_held
    if of.is_held == 1:
        link_before(t, state, front, node)


@rare_kernel
def touch(t: SGLangArrays, p: SGLangPool, state: SGLangEngine, node: int) -> None:
    """Count a node and what precedes it within the window as used now, what is further from its end before."""
    newer, covered = NONE, 0
    while node != state.root and covered < p.kept_window + p.page_size:
        if t.side_nodes[node].is_held == 1:
            unlink(t, state, node)
            link_before(t, state, node, newer)
            newer = node
        covered += t.nodes[node].end - t.nodes[node].start
        node = t.nodes[node].parent


@rare_kernel
def lock(t: SGLangArrays, p: SGLangPool, state: SGLangEngine, node: int) -> int:
    """Keep the last window up to a node's end. Returns where the first node of it starts, for `unlock`."""
    start, covered = 0, 0
    while node != state.root and covered < p.kept_window:
        of = t.side_nodes[node]
        if of.is_held == 1 and of.lock_ref == 0:
            state.num_evictable_window_pages -= num_pages(t, p, node)
        of.lock_ref += 1
        covered += t.nodes[node].end - t.nodes[node].start
        if covered >= p.kept_window:
            start = int(t.nodes[node].start)
        node = t.nodes[node].parent
    return start


@rare_kernel
def unlock(t: SGLangArrays, p: SGLangPool, state: SGLangEngine, node: int, start: int) -> None:
    """Undo one `lock` of the same node, which returned `start`."""
    while node != state.root and t.nodes[node].start >= start:
        of = t.side_nodes[node]
        of.lock_ref -= 1
        if of.is_held == 1 and of.lock_ref == 0:
            state.num_evictable_window_pages += num_pages(t, p, node)
        node = t.nodes[node].parent
