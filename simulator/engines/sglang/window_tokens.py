"""Which of the radix tree's tokens the layers with sliding windows still have, in plain Python.

These layers have a pool of their own. A node has either all of its tokens there or none: then it is a tombstone, whose
tokens only the other layers still have. A request locks the last window before the end of its prefix; what is not
locked is given up in the order of its last use, wherever in the tree it is.

Read from SGLang 0.5.23: `srt/mem_cache/unified_cache/components/swa.py`, `unified_cache/unified_tree_core.py`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.engines.sglang.radix_cache import TreeNode


class WindowTokens:
    """The nodes that are no tombstones, the least recently used first."""

    def __init__(self, window: int, page_size: int) -> None:
        self.window, self.page_size = window, page_size
        self.evictable_size = 0
        self._by_use: list[TreeNode] = []

    @property
    def paged_window(self) -> int:
        """In whole pages."""
        return -(-self.window // self.page_size) * self.page_size

    def touch(self, node: "TreeNode") -> None:
        """Count a node and what precedes it within the window as used now, what is further from its end before."""
        used, covered = list["TreeNode"](), 0
        while node.parent is not None and covered < self.window + self.page_size:
            used += [node] if node.has_window else []
            covered += node.num_tokens
            node = node.parent
        for each in reversed(used):
            self._by_use.remove(each)
            self._by_use.append(each)

    def add(self, node: "TreeNode") -> None:
        """The layers have this node's tokens from now on."""
        assert not node.has_window, "a node has its tokens twice"
        node.has_window = True
        self._by_use.append(node)
        self.evictable_size += node.num_tokens * (node.window_lock_ref == 0)

    def drop(self, node: "TreeNode") -> None:
        """Make a node a tombstone."""
        assert node.window_lock_ref == 0, "a locked window was given up"
        node.has_window = False
        self._by_use.remove(node)
        self.evictable_size -= node.num_tokens

    def split(self, front: "TreeNode", node: "TreeNode") -> None:
        """Tell what the new front part of a node has, which counts as used right before the rest."""
        front.window_lock_ref, front.has_window = node.window_lock_ref, node.has_window
        if node.has_window:
            self._by_use.insert(self._by_use.index(node), front)

    def unlocked(self) -> list["TreeNode"]:
        """In the order in which they are given up."""
        return [node for node in self._by_use if node.window_lock_ref == 0]

    def lock(self, node: "TreeNode") -> int:
        """Keep the last window up to a node's end. Returns where the first node of it starts, for `unlock`."""
        start = covered = 0
        while node.parent is not None and covered < self.window:
            self.evictable_size -= node.num_tokens * (node.has_window and node.window_lock_ref == 0)
            node.window_lock_ref += 1
            covered += node.num_tokens
            start = node.start if covered >= self.window else 0
            node = node.parent
        return start

    def unlock(self, node: "TreeNode", start: int) -> None:
        """Undo one `lock` of the same node, which returned `start`."""
        for held in _up_to(node, start):
            assert held.window_lock_ref > 0, "a window was unlocked more often than locked"
            held.window_lock_ref -= 1
            self.evictable_size += held.num_tokens * (held.has_window and held.window_lock_ref == 0)


def _up_to(node: "TreeNode", start: int) -> Iterator["TreeNode"]:
    while node.parent is not None and node.start >= start:
        yield node
        node = node.parent
