"""Which nodes of the radix tree have a state of the SSM or linear-attention layers, in plain Python.

A state stands for all tokens up to the end of its node. A request can begin only where there is one, which it locks;
what is not locked is given up in the order of its last use, wherever in the tree it is.

Read from SGLang 0.5.23: `srt/mem_cache/unified_cache/components/mamba.py`, `unified_cache/unified_tree_core.py`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.engines.sglang.radix_cache import TreeNode


class TreeStates:
    """The nodes that have a state, the least recently used first."""

    def __init__(self) -> None:
        self.num_evictable = 0
        self._by_use: list[TreeNode] = []

    def touch(self, node: "TreeNode") -> None:
        """Count a node's state as used now, if it has one."""
        if node.has_state:
            self._by_use.remove(node)
            self._by_use.append(node)

    def add(self, node: "TreeNode") -> None:
        """Give a node a state."""
        assert not node.has_state, "a node has two states"
        node.has_state = True
        self._by_use.append(node)
        self.num_evictable += node.state_lock_ref == 0

    def drop(self, node: "TreeNode") -> None:
        """Take a node's state from it."""
        assert node.state_lock_ref == 0, "a locked state was given up"
        node.has_state = False
        self._by_use.remove(node)
        self.num_evictable -= 1

    def next_unlocked(self) -> "TreeNode | None":
        """Whose state is given up first; None where all are locked."""
        return next((node for node in self._by_use if node.state_lock_ref == 0), None)

    def lock(self, node: "TreeNode") -> None:
        """Keep a node's state until `unlock`; it may be locked many times."""
        self.num_evictable -= node.has_state and node.state_lock_ref == 0
        node.state_lock_ref += 1

    def unlock(self, node: "TreeNode") -> None:
        """Undo one `lock`."""
        assert node.state_lock_ref > 0, "a state was unlocked more often than locked"
        node.state_lock_ref -= 1
        self.num_evictable += node.has_state and node.state_lock_ref == 0
