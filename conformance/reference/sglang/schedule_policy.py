"""In which order waiting requests are tried, by `--schedule-policy`.

Read from SGLang 0.5.23: `srt/managers/schedule_policy.py` (`SchedulePolicy`).
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence

from conformance.reference.sglang.kv_cache import KVCache
from simulator.engines.sglang.engine import CACHE_AWARE_POLICIES, EngineConfig
from simulator.engines.sglang.radix_cache import RadixCache
from simulator.engines.sglang.request import Request

_MATCHED_AT_MOST = 128  # waiting requests; where there are more, lpm and hrrn take them as they came
_REFRESH_EVERY = 32  # sorts; so often, what waiting requests would hit is counted as used
_SHORT_HIT = 32  # tokens; with a hit no longer than this, a request waits for one ahead of it that …
_LONG_SHARE = 32  # … begins with at least so many of the same tokens

Key = Callable[[Request], tuple[float, ...]]


class SchedulePolicy:
    """Sorts the waiting queue in place."""

    def __init__(self, config: EngineConfig, cache: KVCache) -> None:
        self.policy = config.effective_policy
        self.page_size = config.page_size
        self._cache = cache
        self._eviction_policy = config.radix_eviction_policy
        self._num_sorts = 0
        self._random = random.Random(config.random_seed)

    def sort(self, waiting: list[Request], running: Sequence[Request], num_processed_tokens: int) -> None:
        """Put first whom the policy puts first."""
        policy = self.policy
        if policy in {"lpm", "hrrn"} and len(waiting) > _MATCHED_AT_MOST:
            policy = "fcfs"
        if policy in CACHE_AWARE_POLICIES:
            for request in waiting:
                self._cache.match(request, request.num_tokens)
        if policy == "random":
            self._random.shuffle(waiting)
        elif policy == "dfs-weight":
            nodes = [request.last_node for request in waiting if request.last_node is not None]
            waiting[:] = [waiting[index] for index in self._cache.tree.dfs_weight_order(nodes)]
        elif policy == "routing-key":
            _sort_by_routing_key(waiting, running)
        elif policy != "fcfs":
            later = self._duplicates(waiting) if policy in CACHE_AWARE_POLICIES else set[Request]()
            waiting.sort(key=self._key(later, num_processed_tokens))
        if policy not in CACHE_AWARE_POLICIES:
            self._keep_prefixes(waiting)

    def _keep_prefixes(self, waiting: Sequence[Request]) -> None:
        """Now and then, count what waiting requests would hit as used, so that `lru` evicts it last."""
        if self._eviction_policy != "lru" or not waiting:
            return
        self._num_sorts += 1
        if self._num_sorts % _REFRESH_EVERY == 1:
            for request in reversed(waiting[:_MATCHED_AT_MOST]):
                self._cache.touch(request)

    def _key(self, later: set[Request], num_processed_tokens: int) -> Key:
        def response_ratio(request: Request) -> float:
            num_uncached = request.num_prompt_tokens - request.num_matched_prefix_tokens
            if num_uncached <= 0:
                return math.inf
            return max(0, num_processed_tokens - request.arrival_processed_tokens) / num_uncached

        keys: dict[str, Key] = {
            "lof": lambda request: (-request.max_new_tokens,),
            "lpm": lambda request: (math.inf if request in later else -request.num_matched_prefix_tokens,),
            "hrrn": lambda request: (math.inf if request in later else -response_ratio(request), request.id),
            "shortest-prefill-first": lambda request: (request in later, _work(request), request.queue_entry),
        }
        return keys[self.policy]

    def _duplicates(self, waiting: Sequence[Request]) -> set[Request]:
        """Requests that hit little, and begin as one ahead of them does: once that one is computed, they hit more."""
        ahead, later = RadixCache(), set[Request]()
        for request in waiting:
            if request.prefix_len > _SHORT_HIT:
                continue
            if ahead.match_prefix(request.spans, request.num_tokens).end >= _LONG_SHARE:
                later.add(request)
            else:
                ahead.insert(request.spans, request.num_tokens)
        return later

    def shortest_prefill_chunk_limit(
        self, chunked_req: Request, waiting: Sequence[Request], chunk_tokens: int
    ) -> int | None:
        """The most tokens for the chunk that goes on, so that shorter prompts join its batch; None: no limit."""
        if self.policy != "shortest-prefill-first" or chunk_tokens < 2 * self.page_size:
            return None
        remaining = chunked_req.num_tokens - chunked_req.prefix_len
        reserved = 0
        for request in waiting:
            charge = self._cache.ceil_paged(_work(request))
            if _work(request) >= remaining or reserved + charge > chunk_tokens - self.page_size:
                break
            reserved += charge
        return (chunk_tokens - reserved) // self.page_size * self.page_size if reserved else None


def _work(request: Request) -> int:
    """Tokens that its prefill computes."""
    return max(1, request.num_tokens - request.num_matched_prefix_tokens)


def _sort_by_routing_key(waiting: list[Request], running: Sequence[Request]) -> None:
    """Those whose key most running requests have first."""
    counts = Counter(request.routing_key for request in running if request.routing_key)
    if counts:
        waiting.sort(key=lambda each: (-counts[each.routing_key], each.routing_key))
