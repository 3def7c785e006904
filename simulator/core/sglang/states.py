"""Which nodes of the radix tree have an SSM state, compiled: as in `simulator.engines.sglang.tree_states`."""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.sglang.layout import SGLangArrays
from simulator.core.sglang.side_list import link_before, unlink
from simulator.core.types import SGLangEngine


@kernel
def begin(t: SGLangArrays, node: int) -> None:
    """A new node has none."""
    t.side_nodes[node].is_held = t.side_nodes[node].lock_ref = 0


@kernel
def touch(t: SGLangArrays, state: SGLangEngine, node: int) -> None:
    """Count a node's state as used now, if it has one."""
    if t.side_nodes[node].is_held == 1:
        unlink(t, state, node)
        link_before(t, state, node, NONE)


@kernel
def add(t: SGLangArrays, state: SGLangEngine, node: int) -> None:
    """Give a node a state."""
    of = t.side_nodes[node]
    of.is_held = 1
    link_before(t, state, node, NONE)
    if of.lock_ref == 0:
        state.num_evictable_states += 1


@rare_kernel
def drop(t: SGLangArrays, state: SGLangEngine, node: int) -> None:
    """Take a node's state from it, and free its slot."""
    t.side_nodes[node].is_held = 0
    unlink(t, state, node)
    state.num_evictable_states -= 1
    state.num_free_states += 1


@kernel
def hold(t: SGLangArrays, state: SGLangEngine, node: int) -> None:
    """Keep a node's state until `loosen`; it may be held many times."""
    of = t.side_nodes[node]
    if of.is_held == 1 and of.lock_ref == 0:
        state.num_evictable_states -= 1
    of.lock_ref += 1


@kernel
def loosen(t: SGLangArrays, state: SGLangEngine, node: int) -> None:
    """Undo one `hold`."""
    of = t.side_nodes[node]
    of.lock_ref -= 1
    if of.is_held == 1 and of.lock_ref == 0:
        state.num_evictable_states += 1
