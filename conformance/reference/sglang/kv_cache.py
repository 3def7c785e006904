"""What requests hold of the KV cache: pages of their own, and prefixes in the radix tree.

Read from SGLang 0.5.23: `srt/mem_cache/common.py`, `allocation.py`, `unified_radix_cache.py`, `allocator/`.
"""

import math
from collections.abc import Sequence

from conformance.reference.sglang.kv_pool import KVPool, ServerEndsError
from conformance.reference.sglang.state_slots import StateSlots
from simulator.engines.sglang.engine import WINDOW_EVICTION_INTERVAL, EngineConfig
from simulator.engines.sglang.radix_cache import RadixCache, TreeNode
from simulator.engines.sglang.request import Request
from simulator.engines.sglang.token_spans import Spans, bigram_spans
from simulator.engines.sglang.tree_states import TreeStates
from simulator.engines.sglang.window_tokens import WindowTokens


class OutOfKVCacheError(ServerEndsError):
    """A prefill was admitted whose pages cannot be had."""


class KVCache:
    """The pools, the radix tree, and the rows of running requests.

    Layers with sliding windows may have a pool of their own, `window_pool`: then every token that is computed takes a
    place in both, and gives back the one there once it has left the window. SSM and linear-attention layers have a pool
    of states, `states`.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config, self.page_size = config, config.page_size
        self.is_tree_disabled = config.disable_radix_cache
        self.has_bigrams = config.tree_has_bigrams
        self.pool = KVPool(config.max_total_num_tokens, config.page_size)
        self.window_pool: KVPool | None = None
        self.windows: WindowTokens | None = None
        if config.sliding_window_size:
            self.window_pool = KVPool(config.swa_max_total_num_tokens, config.page_size)
            self.windows = WindowTokens(config.sliding_window_size, config.page_size)
        tree_states = TreeStates() if config.max_mamba_cache_size else None
        self.tree = RadixCache(
            config.page_size, config.radix_eviction_policy, config.radix_eviction_tail, self.windows, tree_states
        )
        self.states: StateSlots | None = None
        if tree_states is not None:
            self.states = StateSlots(config, self.tree, tree_states, self._evict)
        self.num_free_rows = config.max_running_requests
        self.num_evicted_tokens = 0

    @property
    def available_and_evictable(self) -> int:
        """Tokens that could be had now."""
        return self.pool.available_size + self.tree.evictable_size

    @property
    def window_available_and_evictable(self) -> float:
        """The same of the pool of windows; without one, there is no limit."""
        if self.window_pool is None or self.windows is None:
            return math.inf
        return self.window_pool.available_size + self.windows.evictable_size

    def ceil_paged(self, num_tokens: int) -> int:
        """Rounded up to whole pages."""
        return -(-num_tokens // self.page_size) * self.page_size

    # -- prefixes

    def match(self, request: Request, num_tokens: int) -> None:
        """Find the longest known prefix of a request's first tokens."""
        num_known = 0 if self.is_tree_disabled else self._in_tree(num_tokens)
        request.last_node, known_len = self.tree.match(self._key(request), num_known)
        request.prefix_len = request.last_node.end
        if self.states is not None:
            request.branching_len = self.states.branching_len(request, known_len)
        else:
            request.branching_len = known_len if known_len > request.prefix_len else None
        request.num_matched_prefix_tokens = min(request.prefix_len, request.num_tokens - 1)

    def touch(self, request: Request) -> None:
        """Count what a waiting request would hit as used now."""
        self.tree.match_prefix(self._key(request), self._in_tree(request.num_tokens))

    def _key(self, request: Request) -> Spans:
        """What the tree knows a request by."""
        return bigram_spans(request.spans) if self.has_bigrams else request.spans

    def _in_tree(self, num_tokens: int) -> int:
        """Places that so many tokens take in the tree: of pairs, one less."""
        return max(num_tokens - self.has_bigrams, 0)

    def match_for_prefill(self, request: Request) -> None:
        """The same for a request that is about to be admitted: its last token is always computed."""
        self.match(request, request.num_tokens - 1)
        request.cache_protected_len = request.prefix_len
        if self.states is not None:
            self.states.copy_matched(request)

    def give_up_match(self, request: Request) -> None:
        """Undo what was taken for a request that is not admitted after all."""
        if self.states is not None:
            self.states.give_back(request)

    def checkpoint(self, request: Request) -> None:
        """Make what its batch has computed findable; its next chunk goes on from there."""
        self._insert(request, request.extend_end)
        request.prefix_len = request.extend_end

    def _insert(self, request: Request, num_tokens: int, *, is_last: bool = False) -> None:
        """Hand tokens to the tree. What the tree had already is freed, and the lock moves to the new end.

        A node ends where the prompt does, so that an answer can be evicted without it; not so with windows or states.
        With windows, what is handed over ends first where the tree's knowledge did, so that others find the window
        before that point; with states, where the latest of them is.
        """
        if self.is_tree_disabled:
            return
        if self.states is not None:
            num_tokens = self.states.hand_over(request, num_tokens, is_last=is_last)
            if num_tokens == 0:
                return
        branching = None if self.windows is None else request.branching_len
        is_branch = branching is not None and request.cache_protected_len < branching <= self._in_tree(num_tokens)
        if branching is not None and is_branch:
            num_tokens, request.branching_len = branching + self.has_bigrams, None
        if not is_last:
            self._slide_window(request, self._in_tree(num_tokens) - 1)
        key = self._key(request)
        num_tokens = self._in_tree(num_tokens) // self.page_size * self.page_size
        prompt_len = self._in_tree(request.num_prompt_tokens) // self.page_size * self.page_size
        found = self.tree.insert(
            key, num_tokens, inserted_len=request.cache_inserted_len,
            protected_len=request.cache_protected_len, window_start=request.window_start,
        )  # fmt: skip
        request.cache_inserted_len = max(request.cache_inserted_len, num_tokens)
        if prompt_len < num_tokens and self.windows is None and self.states is None:
            self.tree.insert(key, prompt_len, priority=1, inserted_len=prompt_len)
        self.pool.free(max(0, found.prefix_len - request.cache_protected_len) // self.page_size)
        if self.window_pool is not None:
            self.window_pool.free(found.num_window_duplicates // self.page_size)
        self._unlock(request)
        request.window_lock_start = self.tree.lock(found.last_node)
        request.lock = request.last_node = found.last_node
        request.cache_protected_len = num_tokens
        if self.states is not None:
            self.states.settle(request, had_state=found.had_state, is_last=is_last)
        if is_branch and not is_last:
            self._slide_window(request, self._in_tree(request.extend_end) - 1)

    def _unlock(self, request: Request) -> None:
        if request.lock is not None:
            self.tree.unlock(request.lock, request.window_lock_start)
        request.lock = None

    # -- windows

    def _slide_window(self, request: Request, num_tokens: int) -> None:
        """Give up what the next token after `num_tokens` and those after it no longer read; whole pages alone.

        For the tree a window in whole pages stays, and a page at least.
        """
        if self.windows is None or self.window_pool is None or not request.holds_kv:
            return
        if num_tokens - self.windows.window <= request.window_start:
            return
        request.window_start = max(request.window_start, request.cache_protected_len)
        kept = self.windows.window if self.is_tree_disabled else max(self.windows.paged_window, self.page_size)
        start = max(request.window_start, num_tokens - kept) // self.page_size * self.page_size
        self.window_pool.free((start - request.window_start) // self.page_size)
        request.window_start = start

    def _slide_windows_of_chunks(self, requests: Sequence[Request]) -> None:
        """Without a tree, what chunks before have left behind; with the overlap schedule, the last one still runs."""
        for request in requests:
            is_late = self.config.plans_in_flight > 1
            if self.is_tree_disabled and not (is_late and request.num_extend_batches < 2):
                running = (self.config.chunked_prefill_size or 0) if is_late else 0
                self._slide_window(request, request.prefix_len - running)
            request.num_extend_batches += 1

    def _slide_windows_of_decodes(self, requests: Sequence[Request]) -> None:
        """Not in a request's first decode, as its prefill may still run; then now and then."""
        for request in requests:
            num_tokens = request.num_tokens - 1
            window = math.inf if self.windows is None else self.windows.window
            is_due = num_tokens - window >= request.window_start + WINDOW_EVICTION_INTERVAL
            if request.num_decode_batches and is_due:
                self._slide_window(request, num_tokens)
            request.num_decode_batches += 1

    # -- pages

    def evict_to_free(self, num_tokens: int) -> bool:
        """Evict leaves until so many tokens are free; False where they cannot be.

        In the pool of windows too, where other nodes may become tombstones.
        """
        while self.pool.available_size < num_tokens and (leaf := self.tree.next_leaf()):
            self._evict(leaf)
        is_free = self.pool.available_size >= num_tokens
        if self.windows is None or self.window_pool is None:
            return is_free
        for node in self.windows.unlocked():
            if self.window_pool.available_size >= num_tokens:
                break
            if node in self.tree.leaves:
                self._evict(node)
            else:
                self.windows.drop(node)
                self.window_pool.free(node.num_tokens // self.page_size)
        return is_free and self.window_pool.available_size >= num_tokens

    def _evict(self, leaf: TreeNode) -> None:
        num_pages = leaf.num_tokens // self.page_size
        if self.window_pool is not None:
            self.window_pool.free(num_pages * leaf.has_window)
        if self.states is not None and leaf.has_state:
            self.states.num_free += 1
        self.tree.evict(leaf)
        self.pool.free(num_pages)
        self.num_evicted_tokens += leaf.num_tokens

    def _take(self, num_pages: int) -> bool:
        """Whether so many pages were free in each pool; then they are taken."""
        if self.window_pool is not None and num_pages > self.window_pool.num_free_pages:
            return False
        is_taken = self.pool.take(num_pages)
        if is_taken and self.window_pool is not None:
            self.window_pool.take(num_pages)
        return is_taken

    def allocate_extend(self, requests: Sequence[Request]) -> None:
        """Take the pages for a prefill batch. Raises `OutOfKVCacheError` where there are too few."""
        self._slide_windows_of_chunks(requests)
        if self.states is not None:
            self.states.bind(requests)
        num_tokens = sum(request.extend_len for request in requests)
        spare = len(requests) * self.page_size if self.page_size > 1 else 0  # as if each began a page
        self.evict_to_free(num_tokens + spare)
        if not self._take(sum(self.pool.pages_of(each.prefix_len, each.extend_end) for each in requests)):
            raise OutOfKVCacheError(f"{num_tokens:,} tokens are prefilled, {self.pool.available_size:,} are free")
        for request in requests:
            self.num_free_rows -= not request.holds_kv
            request.holds_kv = True
            request.kv_len = request.committed_len = request.extend_end
            if self.states is not None:
                self.states.track_extend(request)

    def fits_decode(self, requests: Sequence[Request]) -> bool:
        """Whether each request can have its next token's place, and its drafts', after evicting what must be."""
        return self.evict_to_free(self._new_pages(requests) * self.page_size)

    def allocate_decode(self, requests: Sequence[Request]) -> None:
        """Take the places of one token each, or of drafts, which fit."""
        self._slide_windows_of_decodes(requests)
        if not self.config.draft_reserve:
            self.evict_to_free(len(requests) * self.page_size)  # as if each began a page
        elif num_tokens := sum(self._reserved_len(request) - request.kv_len for request in requests):
            spare = len(requests) * self.page_size if self.page_size > 1 else 0
            self.evict_to_free(num_tokens + spare)
        is_taken = self._take(self._new_pages(requests))
        assert is_taken, "a decode batch was checked and does not fit"
        for request in requests:
            request.kv_len = self._reserved_len(request)
            if not self.config.draft_reserve:
                request.committed_len = request.kv_len

    def _reserved_len(self, request: Request) -> int:
        """How far the places of a request reach while it decodes; with drafts, in whole pages."""
        if not self.config.draft_reserve:
            return request.kv_len + 1
        return max(request.kv_len, self.ceil_paged(request.committed_len + self.config.draft_reserve))

    def _new_pages(self, requests: Sequence[Request]) -> int:
        return sum(self.pool.pages_of(request.kv_len, self._reserved_len(request)) for request in requests)

    def release(self, request: Request, *, checkpoint: bool) -> None:
        """Give up all that a request holds; with `checkpoint` the tree keeps what it can."""
        if checkpoint:
            end = min(request.committed_len, request.num_tokens)
            if not request.is_aborted:  # drafts past its last token are nobody's
                end = min(end, request.num_prompt_tokens + request.longest_answer)
            # A state that is not tracked has seen all that was computed, and cannot end before.
            is_whole = end == min(request.committed_len, request.num_tokens)
            if self.states is None or self.config.tracks_states or is_whole:
                self._insert(request, end, is_last=True)
        self.pool.free(self.pool.pages_of(request.cache_protected_len, request.kv_len))
        if self.window_pool is not None:
            own = max(request.cache_protected_len, request.window_start)
            self.window_pool.free(self.window_pool.pages_of(own, request.kv_len))
        if self.states is not None:
            self.states.release(request)
        self._unlock(request)
        self.num_free_rows += 1
        request.holds_kv, request.kv_len, request.committed_len, request.window_start = False, 0, 0, 0
