"""SGLang's radix tree in plain Python: prefixes that requests share, in whole pages.

A node stands for a run of tokens after its parent's; the way from the root to it is a prefix. A request locks the way
to the end of its own prefix; leaves without a lock are evicted. Time is a counter: every use of a node is later than
the one before it.

Read from SGLang 0.5.23: `srt/mem_cache/unified_radix_cache.py`, `unified_cache/unified_tree_core.py`,
`unified_cache/components/full.py`, `base_prefix_cache.py`.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from simulator.engines.sglang.eviction import TailBudget, eviction_rank
from simulator.engines.sglang.token_spans import PageKey, Spans, first_difference, page_key
from simulator.engines.sglang.tree_states import TreeStates
from simulator.engines.sglang.window_tokens import WindowTokens

_MOMENT = 1e-5  # by which a prefix counts as used before what follows it


@dataclass(kw_only=True, eq=False)
class TreeNode:
    """Positions [start, end) of the sequence that `spans` describes."""

    spans: Spans
    start: int
    end: int
    parent: "TreeNode | None"
    last_access_time: float
    priority: int = 0
    lock_ref: int = 0
    hit_count: int = 0
    history_len: int = 0  # how deep the branch has ever been; eviction does not take it back
    has_window: bool = False  # layers with sliding windows have its tokens, too
    window_lock_ref: int = 0
    has_state: bool = False  # of SSM or linear-attention layers, at its end
    state_lock_ref: int = 0
    children: dict[PageKey, "TreeNode"] = field(default_factory=dict)

    @property
    def num_tokens(self) -> int:
        return self.end - self.start


class MatchResult(NamedTuple):
    """The node at the end of the prefix that can be used, and how far the tree knows the sequence.

    With sliding windows, a prefix can be used where the window before its end is whole; with SSM or linear-attention
    layers, where a state is.
    """

    last_node: TreeNode
    known_len: int


class InsertResult(NamedTuple):
    """How much of a sequence the tree had before, and the node at its end.

    Of what a request hands over, the tree may have had some tokens in windows, or the state, already.
    """

    prefix_len: int
    last_node: TreeNode
    num_window_duplicates: int = 0
    had_state: bool = False


class RadixCache:
    """Match, insert, lock, evict."""

    def __init__(
        self,
        page_size: int = 1,
        eviction_policy: str = "lru",
        tail: TailBudget | None = None,
        windows: WindowTokens | None = None,
        states: TreeStates | None = None,
    ) -> None:
        self.page_size = page_size
        self.windows, self.states = windows, states
        self._rank = eviction_rank(eviction_policy, tail or TailBudget())
        self._clock = 0.0
        self.root = TreeNode(spans=(), start=0, end=0, parent=None, last_access_time=self._now(), lock_ref=1)
        self.evictable_size = 0
        self.protected_size = 0
        self.leaves: set[TreeNode] = set()  # that may be evicted

    def nodes(self) -> Iterator[TreeNode]:
        """All but the root."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    # -- match

    def match_prefix(self, spans: Spans, num_tokens: int) -> TreeNode:
        """The node at whose end the longest usable prefix of the first `num_tokens` ends."""
        return self.match(spans, num_tokens).last_node

    def match(self, spans: Spans, num_tokens: int) -> MatchResult:
        """The same, and how far the sequence is known; splits a node to have one that ends there."""
        end = self._whole_pages(num_tokens)
        node = usable = self.root
        in_window = math.inf  # tokens before a node's end without a tombstone
        while node.end < end:
            child = node.children.get(page_key(spans, node.end, self.page_size))
            if child is None:
                break
            known = self._shared_end(child, spans, end)
            node = child if known == child.end else self._split(child, known)
            in_window = in_window + node.num_tokens if node.has_window else 0
            if self._is_usable(node, in_window):
                usable = node
            if node is not child:
                break
        if end:
            self._touch_path(usable)
        return MatchResult(usable, node.end)

    def _is_usable(self, node: TreeNode, in_window: float) -> bool:
        if self.states is not None:
            return node.has_state
        return self.windows is None or in_window >= self.windows.window

    def _touch_path(self, node: TreeNode) -> None:
        if self.windows is not None:
            self.windows.touch(node)
        if self.states is not None:
            self.states.touch(node)
        time = self._now()
        for ancestor in _path(node):
            ancestor.last_access_time = time
            time -= _MOMENT

    # -- insert

    def insert(
        self,
        spans: Spans,
        num_tokens: int,
        *,
        priority: int = 0,
        inserted_len: int = 0,
        protected_len: int = 0,
        window_start: int = 0,
    ) -> InsertResult:
        """Make the whole pages of the first `num_tokens` findable.

        A node is hit where it ends after `inserted_len`, up to which the same request has inserted before. Tokens up to
        `protected_len` are the tree's already; of the others, the request has those from `window_start` on in windows.
        """
        end = self._whole_pages(num_tokens)
        node, num_window_duplicates = self.root, 0
        while node.end < end:
            child = node.children.get(page_key(spans, node.end, self.page_size))
            if child is None:
                break
            child.last_access_time = self._now()
            known = self._shared_end(child, spans, end)
            node = child if known == child.end else self._split(child, known)
            node.priority = max(node.priority, priority)
            if node.end > protected_len:
                num_window_duplicates += self._give_window(node, max(protected_len, node.start), window_start)
            node.hit_count += node.end > inserted_len
        prefix_len = node.end
        if prefix_len < end:
            node = self._add_leaf(node, spans, end, priority)
            self._give_window_to_leaf(node, window_start)
            node.hit_count += prefix_len + node.num_tokens > inserted_len
        if self.windows is not None:
            self.windows.touch(node)
        had_state = self.states is not None and self._give_state(node, is_new=prefix_len < end)
        return InsertResult(prefix_len, node, num_window_duplicates, had_state)

    def _give_state(self, node: TreeNode, *, is_new: bool) -> bool:
        """Give a node a state; whether it had one."""
        assert self.states is not None
        had_state = node.has_state or node is self.root
        if not is_new and node is not self.root:
            node.last_access_time = self._now()
        if had_state:
            self.states.touch(node)
        else:
            self.states.add(node)
        return had_state

    def _give_window(self, node: TreeNode, start: int, window_start: int) -> int:
        """Hand a tombstone what a request has of its window. Returns how many such tokens the node had already."""
        if self.windows is None:
            return 0
        if node.has_window:
            return max(0, node.end - max(start, window_start))
        if window_start < node.end:
            self._cut_front(node, window_start)
            self.windows.add(node)
        return 0

    def _give_window_to_leaf(self, leaf: TreeNode, window_start: int) -> None:
        """The same of a new leaf, of which the last window becomes a node, so that locks hold no more than that."""
        if self.windows is None or window_start >= leaf.end:
            return
        self._cut_front(leaf, window_start)
        front = self._cut_front(leaf, leaf.end - self.windows.paged_window)
        if front is not None:
            self.windows.add(front)
        self.windows.add(leaf)

    def _cut_front(self, node: TreeNode, at: int) -> TreeNode | None:
        """The part of a node before a position, as a node of its own; None where there is none."""
        return self._split(node, at) if at > node.start else None

    def _add_leaf(self, parent: TreeNode, spans: Spans, end: int, priority: int) -> TreeNode:
        leaf = TreeNode(
            spans=spans, start=parent.end, end=end, parent=parent, priority=priority, last_access_time=self._now()
        )
        parent.children[page_key(spans, leaf.start, self.page_size)] = leaf
        self.evictable_size += leaf.num_tokens
        for node in _path(leaf):
            node.history_len = max(node.history_len, end)
        self._update_leaf(parent)
        self._update_leaf(leaf)
        return leaf

    def _split(self, child: TreeNode, at: int) -> TreeNode:
        """Cut a node in two; the front part is new, so that what holds the node still holds all of it."""
        assert child.parent is not None
        front = TreeNode(
            spans=child.spans, start=child.start, end=at, parent=child.parent, last_access_time=self._now(),
            priority=child.priority, lock_ref=child.lock_ref, hit_count=child.hit_count, history_len=child.history_len,
        )  # fmt: skip
        child.parent.children[page_key(child.spans, child.start, self.page_size)] = front
        child.start, child.parent = at, front
        front.children = {page_key(child.spans, at, self.page_size): child}
        child.last_access_time = self._now()
        if self.windows is not None:
            self.windows.split(front, child)
        return front

    def _shared_end(self, node: TreeNode, spans: Spans, end: int) -> int:
        return self._whole_pages(first_difference(node.spans, spans, node.start, min(node.end, end)))

    # -- locks

    def lock(self, node: TreeNode) -> int:
        """Keep a prefix from eviction until `unlock`, with its last window or state; it may be locked many times.

        Returns where that window starts.
        """
        if self.states is not None and node is not self.root:
            self.states.lock(node)
        for held in _path(node)[:-1]:
            if held.lock_ref == 0:
                self.evictable_size -= held.num_tokens
                self.protected_size += held.num_tokens
            held.lock_ref += 1
            self.leaves.discard(held)
        return 0 if self.windows is None else self.windows.lock(node)

    def unlock(self, node: TreeNode, window_lock_start: int = 0) -> None:
        """Undo one `lock` of the same node, which returned `window_lock_start`."""
        if self.states is not None and node is not self.root:
            self.states.unlock(node)
        if self.windows is not None:
            self.windows.unlock(node, window_lock_start)
        for held in _path(node)[:-1]:
            assert held.lock_ref > 0, "a node was unlocked more often than locked"
            held.lock_ref -= 1
            if held.lock_ref == 0:
                self.evictable_size += held.num_tokens
                self.protected_size -= held.num_tokens
            self._update_leaf(held)

    # -- eviction

    def next_leaf(self) -> TreeNode | None:
        """The leaf that the policy ranks first; None where all are locked."""
        return min(self.leaves, key=self._rank, default=None)

    def evict(self, leaf: TreeNode) -> None:
        """Drop a leaf."""
        assert leaf.parent is not None
        assert leaf.lock_ref == 0, "a locked leaf was evicted"
        if self.windows is not None and leaf.has_window:
            self.windows.drop(leaf)
        if self.states is not None and leaf.has_state:
            self.states.drop(leaf)
        del leaf.parent.children[page_key(leaf.spans, leaf.start, self.page_size)]
        self.leaves.discard(leaf)
        self.evictable_size -= leaf.num_tokens
        self._update_leaf(leaf.parent)

    def evict_leaf(self) -> int:
        """Drop the leaf that the policy ranks first. Returns its tokens; 0 where all are locked."""
        leaf = self.next_leaf()
        if leaf is None:
            return 0
        self.evict(leaf)
        return leaf.num_tokens

    def _update_leaf(self, node: TreeNode) -> None:
        if node is not self.root and node.lock_ref == 0 and not node.children:
            self.leaves.add(node)
        else:
            self.leaves.discard(node)

    # -- order

    def dfs_weight_order(self, last_nodes: Sequence[TreeNode]) -> list[int]:
        """Indices of `last_nodes` depth first, branches with most of them first."""
        weights = Counter(node for last_node in last_nodes for node in _path(last_node))
        waiting: dict[TreeNode, list[int]] = {}
        for index, node in enumerate(last_nodes):
            waiting.setdefault(node, []).append(index)

        order: list[int] = []
        stack = [(self.root, False)]
        while stack:
            node, has_children_done = stack.pop()
            if has_children_done:
                order += waiting.get(node, [])
                continue
            stack.append((node, True))
            heaviest_first = sorted(node.children.values(), key=lambda child: -weights[child])
            stack += [(child, False) for child in reversed(heaviest_first) if weights[child]]
        return order

    # -- shared

    def _whole_pages(self, num_tokens: int) -> int:
        return num_tokens // self.page_size * self.page_size

    def _now(self) -> float:
        self._clock += 1
        return self._clock


def _path(node: TreeNode) -> list[TreeNode]:
    """From a node up to the root."""
    path = [node]
    while path[-1].parent is not None:
        path.append(path[-1].parent)
    return path
