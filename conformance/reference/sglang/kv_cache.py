"""What requests hold of the KV cache: pages of their own, and prefixes in the radix tree.

Read from SGLang 0.5.23: `srt/mem_cache/common.py`, `allocation.py`, `unified_radix_cache.py`, `allocator/`.
"""

from collections.abc import Sequence

from conformance.reference.sglang.kv_pool import KVPool
from simulator.engines.sglang.engine import EngineConfig
from simulator.engines.sglang.radix_cache import RadixCache
from simulator.engines.sglang.request import Request


class OutOfKVCacheError(RuntimeError):
    """A prefill was admitted whose pages cannot be had; SGLang's server ends there, too."""


class KVCache:
    """The pool, the radix tree, and the rows of running requests."""

    def __init__(self, config: EngineConfig) -> None:
        self.page_size = config.page_size
        self.is_tree_disabled = config.disable_radix_cache
        self.pool = KVPool(config.max_total_num_tokens, config.page_size)
        self.tree = RadixCache(config.page_size, config.radix_eviction_policy, config.radix_eviction_tail)
        self.num_free_rows = config.max_running_requests
        self.num_evicted_tokens = 0

    @property
    def available_and_evictable(self) -> int:
        """Tokens that could be had now."""
        return self.pool.available_size + self.tree.evictable_size

    def ceil_paged(self, num_tokens: int) -> int:
        """Rounded up to whole pages."""
        return -(-num_tokens // self.page_size) * self.page_size

    # -- prefixes

    def match(self, request: Request, num_tokens: int) -> None:
        """Find the longest known prefix of a request's first tokens."""
        request.last_node = self.tree.match_prefix(request.spans, 0 if self.is_tree_disabled else num_tokens)
        request.prefix_len = request.last_node.end
        request.num_matched_prefix_tokens = min(request.prefix_len, request.num_tokens - 1)

    def touch(self, request: Request) -> None:
        """Count what a waiting request would hit as used now."""
        self.tree.match_prefix(request.spans, request.num_tokens)

    def match_for_prefill(self, request: Request) -> None:
        """The same for a request that is about to be admitted: its last token is always computed."""
        self.match(request, request.num_tokens - 1)
        request.cache_protected_len = request.prefix_len

    def checkpoint(self, request: Request) -> None:
        """Make what its batch has computed findable; its next chunk goes on from there."""
        self._insert(request, request.extend_end)
        request.prefix_len = request.extend_end

    def _insert(self, request: Request, num_tokens: int) -> None:
        """Hand tokens to the tree. What the tree had already is freed, and the lock moves to the new end.

        A node ends where the prompt does, so that an answer can be evicted without it.
        """
        if self.is_tree_disabled:
            return
        num_tokens = num_tokens // self.page_size * self.page_size
        prompt_len = request.num_prompt_tokens // self.page_size * self.page_size
        found = self.tree.insert(request.spans, num_tokens, inserted_len=request.cache_inserted_len)
        request.cache_inserted_len = max(request.cache_inserted_len, num_tokens)
        if prompt_len < num_tokens:
            self.tree.insert(request.spans, prompt_len, priority=1, inserted_len=prompt_len)
        self.pool.free(max(0, found.prefix_len - request.cache_protected_len) // self.page_size)
        self._unlock(request)
        self.tree.lock(found.last_node)
        request.lock = request.last_node = found.last_node
        request.cache_protected_len = num_tokens

    def _unlock(self, request: Request) -> None:
        if request.lock is not None:
            self.tree.unlock(request.lock)
        request.lock = None

    # -- pages

    def evict_to_free(self, num_tokens: int) -> bool:
        """Evict leaves until so many tokens are free; False where they cannot be."""
        while self.pool.available_size < num_tokens:
            freed = self.tree.evict_leaf()
            if not freed:
                return False
            self.pool.free(freed // self.page_size)
            self.num_evicted_tokens += freed
        return True

    def allocate_extend(self, requests: Sequence[Request]) -> None:
        """Take the pages for a prefill batch. Raises `OutOfKVCacheError` where there are too few."""
        num_tokens = sum(request.extend_len for request in requests)
        spare = len(requests) * self.page_size if self.page_size > 1 else 0  # as if each began a page
        self.evict_to_free(num_tokens + spare)
        if not self.pool.take(sum(self.pool.pages_of(each.prefix_len, each.extend_end) for each in requests)):
            raise OutOfKVCacheError(f"{num_tokens:,} tokens are prefilled, {self.pool.available_size:,} are free")
        for request in requests:
            self.num_free_rows -= not request.holds_kv
            request.holds_kv = True
            request.kv_len = request.extend_end

    def fits_decode(self, requests: Sequence[Request]) -> bool:
        """Whether each request can have its next token's place, after evicting what must be."""
        return self.evict_to_free(self._new_pages(requests) * self.page_size)

    def allocate_decode(self, requests: Sequence[Request]) -> None:
        """Take the places of one token each, which fit."""
        self.evict_to_free(len(requests) * self.page_size)  # as if each began a page
        is_taken = self.pool.take(self._new_pages(requests))
        assert is_taken, "a decode batch was checked and does not fit"
        for request in requests:
            request.kv_len += 1

    def _new_pages(self, requests: Sequence[Request]) -> int:
        return sum(request.kv_len % self.page_size == 0 for request in requests)

    def release(self, request: Request, *, checkpoint: bool) -> None:
        """Give up all that a request holds; with `checkpoint` the tree keeps what it can."""
        if checkpoint:
            self._insert(request, min(request.kv_len, request.num_tokens))
        self.pool.free(self.pool.pages_of(request.cache_protected_len, request.kv_len))
        self._unlock(request)
        self.num_free_rows += 1
        request.holds_kv, request.kv_len = False, 0
