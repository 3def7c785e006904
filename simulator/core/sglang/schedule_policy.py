"""In which order waiting requests are tried, compiled: the twin of `simulator.engines.sglang.schedule_policy`."""

import math
from typing import Any

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.sglang import kv_cache, tree
from simulator.core.sglang.layout import DFS_WEIGHT, FCFS, HRRN, LOF, LPM, LRU, MATCHED_AT_MOST

REFRESH_EVERY = 32  # sorts; so often, what waiting requests would hit is counted as used
SHORT_HIT = 32  # tokens; with a hit no longer than this, a request waits for one ahead of it that …
LONG_SHARE = 32  # … begins with at least so many of the same tokens


@rare_kernel
def sort_queue(a: Any, p: Any, replica: int) -> None:
    """Put first whom the policy puts first."""
    if a.replicas[replica].num_waiting == 0:
        return
    policy = p.schedule_policy
    if policy in (LPM, HRRN) and a.replicas[replica].num_waiting > MATCHED_AT_MOST:
        policy = FCFS
    if policy != FCFS:
        list_queue(a, p, replica, policy)
        if policy == DFS_WEIGHT:
            weigh(a, replica)
        order_queue(a, replica, policy)
    if policy < LPM and p.eviction_policy == LRU:
        keep_prefixes(a, p, replica)


@kernel
def keep_prefixes(a: Any, p: Any, replica: int) -> None:
    """Now and then, count what waiting requests would hit as used, so that `lru` evicts it last."""
    state = a.sglang.engines[replica]
    request = a.replicas[replica].waiting_head
    state.num_sorts += 1
    if state.num_sorts % REFRESH_EVERY != 1:
        return
    for _ in range(MATCHED_AT_MOST - 1):
        if a.requests[request].next != NONE:
            request = a.requests[request].next
    while request != NONE:
        req = a.requests[request]
        tree.match_prefix(a, p, replica, req.span_start, kv_cache.num_tokens_of(req))
        request = req.previous


@kernel
def list_queue(a: Any, p: Any, replica: int, policy: int) -> None:
    """Enter the waiting requests with what they are sorted by, the lowest first."""
    place, num_contents = 0, 0
    request = a.replicas[replica].waiting_head
    while policy >= LPM and request != NONE:
        kv_cache.match(a, p, replica, request, kv_cache.num_tokens_of(a.requests[request]))
        request = a.requests[request].next
    request = a.replicas[replica].waiting_head
    while request != NONE:
        is_later = False
        if policy in (LPM, HRRN) and a.sglang.requests[request].prefix_len <= SHORT_HIT:
            is_later = begins_like_another(a, request, num_contents)
            num_contents += int(not is_later)
        a.sglang.order[place] = request
        a.sglang.sort_key[place] = math.inf if is_later else sort_key(a, replica, request, policy)
        place += 1
        request = a.requests[request].next


@kernel
def sort_key(a: Any, replica: int, request: int, policy: int) -> float:
    of = a.sglang.requests[request]
    if policy == LOF:
        return -float(of.max_new_tokens)
    if policy == DFS_WEIGHT:
        return 0.0  # by the nodes alone
    if policy == LPM:
        return -float(of.matched)
    num_uncached = a.requests[request].prompt - of.matched
    if num_uncached <= 0:
        return -math.inf
    return -(max(0, a.sglang.engines[replica].num_processed_tokens - of.arrival_processed_tokens) / num_uncached)


@kernel
def weigh(a: Any, replica: int) -> None:
    """Count at each node how many of the listed requests have matched up to it or further."""
    t = a.sglang
    for added in range(2):  # first nothing, so that all begin at 0
        for place in range(a.replicas[replica].num_waiting):
            node = t.requests[t.order[place]].last_node
            while node != NONE:
                t.nodes[node].weight = added * (t.nodes[node].weight + 1)
                node = t.nodes[node].parent


@kernel
def is_reached_before(t: Any, first: int, second: int) -> bool:
    """Whether the tree's walk leaves one node before another: depth first, the heaviest branch before others."""
    one = other = NONE  # the branches that they are in
    while first != second:
        if t.nodes[first].end >= t.nodes[second].end:
            one, first = first, int(t.nodes[first].parent)
        else:
            other, second = second, int(t.nodes[second].parent)
    if NONE in (one, other):
        return one != NONE  # what is below a node goes before it
    if t.nodes[one].weight != t.nodes[other].weight:
        return bool(t.nodes[one].weight > t.nodes[other].weight)
    return bool(t.nodes[one].entered < t.nodes[other].entered)


@kernel
def begins_like_another(a: Any, request: int, num_contents: int) -> bool:
    """Whether one of those noted before shares its first LONG_SHARE tokens; if none does, note it."""
    req = a.requests[request]
    content = NONE
    if kv_cache.num_tokens_of(req) >= LONG_SHARE:
        content = int(a.spans[tree.span_at(a.spans, req.span_start, LONG_SHARE - 1)].content)
    for place in range(num_contents):
        if content != NONE and a.sglang.contents[place] == content:
            return True
    a.sglang.contents[num_contents] = content
    return False


@kernel
def is_after(t: Any, other: int, other_key: float, request: int, key: float, policy: int) -> bool:
    """Whether a request that came before another is to go after it."""
    if policy == DFS_WEIGHT:
        return is_reached_before(t, t.requests[request].last_node, t.requests[other].last_node)
    return other_key > key or (policy == HRRN and other_key == key and other > request)


@kernel
def order_queue(a: Any, replica: int, policy: int) -> None:
    """Sort what `list_queue` has entered, equals as they came, and link the queue so; it is mostly in order."""
    order, keys, state = a.sglang.order, a.sglang.sort_key, a.replicas[replica]
    for place in range(1, state.num_waiting):
        request, key = order[place], keys[place]
        at = place
        while at > 0 and is_after(a.sglang, order[at - 1], keys[at - 1], request, key, policy):
            order[at], keys[at] = order[at - 1], keys[at - 1]
            at -= 1
        order[at], keys[at] = request, key
    before = NONE
    state.waiting_head = order[0]
    for place in range(state.num_waiting):
        request = order[place]
        a.requests[request].previous = before
        if before != NONE:
            a.requests[before].next = request
        before = request
    a.requests[before].next = NONE
    state.waiting_tail = before
