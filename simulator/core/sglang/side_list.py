"""The nodes of the radix tree that have something in a pool beside that of all tokens, by their last use, compiled.

That is their tokens in sliding windows, or the state at their end. What nodes have there is in an array of its own,
which has one row where no engine has such a pool.
"""

from simulator.core.jit import kernel
from simulator.core.layout import NONE
from simulator.core.sglang.layout import SGLangArrays
from simulator.core.types import SGLangEngine


@kernel
def unlink(t: SGLangArrays, state: SGLangEngine, node: int) -> None:
    """Take a node out of the list."""
    older, newer = t.side_nodes[node].older, t.side_nodes[node].newer
    if older == NONE:
        state.oldest_side = newer
    else:
        t.side_nodes[older].newer = newer
    if newer == NONE:
        state.newest_side = older
    else:
        t.side_nodes[newer].older = older


@kernel
def link_before(t: SGLangArrays, state: SGLangEngine, node: int, newer: int) -> None:
    """Put a node right before another, as the newest before NONE."""
    older = int(state.newest_side if newer == NONE else t.side_nodes[newer].older)
    t.side_nodes[node].older = older
    t.side_nodes[node].newer = newer
    if older == NONE:
        state.oldest_side = node
    else:
        t.side_nodes[older].newer = node
    if newer == NONE:
        state.newest_side = node
    else:
        t.side_nodes[newer].older = node
