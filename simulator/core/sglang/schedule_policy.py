"""In which order waiting requests are tried, compiled: as in `conformance.reference.sglang.schedule_policy`."""

import math

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.sglang import kv_cache, shuffle, tree
from simulator.core.sglang.layout import (
    DFS_WEIGHT,
    FCFS,
    HRRN,
    LOF,
    LPM,
    LRU,
    MATCHED_AT_MOST,
    RANDOM,
    ROUTING_KEY,
    SHORTEST_PREFILL_FIRST,
    SGLangArrays,
)
from simulator.core.state import Arrays
from simulator.core.types import SGLangPool

REFRESH_EVERY = 32  # sorts; so often, what waiting requests would hit is counted as used
SHORT_HIT = 32  # tokens; with a hit no longer than this, a request waits for one ahead of it that …
LONG_SHARE = 32  # … begins with at least so many of the same tokens
BEHIND_ALL = 2.0**40  # beyond any number of tokens


@rare_kernel
def sort_queue(a: Arrays, p: SGLangPool, replica: int) -> None:
    """Put first whom the policy puts first."""
    if a.replicas[replica].num_waiting == 0:
        return
    policy = p.schedule_policy
    if policy in (LPM, HRRN) and a.replicas[replica].num_waiting > MATCHED_AT_MOST:
        policy = FCFS
    if policy == ROUTING_KEY and not count_running_keys(a, replica):
        policy = FCFS
    if policy != FCFS:
        list_queue(a, p, replica, policy)
        if policy == DFS_WEIGHT:
            weigh(a, replica)
        if policy == RANDOM:
            shuffle.shuffle(a.sglang.shuffles[replica], a.sglang.order, a.replicas[replica].num_waiting)
        else:
            order_queue(a, replica, policy)
        link_queue(a, replica)
    if policy < LPM and p.eviction_policy == LRU:
        keep_prefixes(a, p, replica)


@kernel
def keep_prefixes(a: Arrays, p: SGLangPool, replica: int) -> None:
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
        tree.match_prefix(a, p, replica, req.span_start, tree.in_tree(p, kv_cache.num_tokens_of(req)))
        request = req.previous


@kernel
def list_queue(a: Arrays, p: SGLangPool, replica: int, policy: int) -> None:
    """Enter the waiting requests with what they are sorted by, the lowest first."""
    place, mask = 0, clear_contents(a, replica, policy)
    request = a.replicas[replica].waiting_head
    while policy >= LPM and request != NONE:
        kv_cache.match(a, p, replica, request, kv_cache.num_tokens_of(a.requests[request]))
        request = a.requests[request].next
    request = a.replicas[replica].waiting_head
    while request != NONE:
        is_later = False
        if mask > 0 and a.sglang.requests[request].prefix_len <= SHORT_HIT:
            is_later = begins_like_another(a, request, mask)
        a.sglang.order[place] = request
        a.sglang.sort_key[place] = sort_key(a, replica, request, policy, is_later)
        place += 1
        request = a.requests[request].next


@kernel
def sort_key(a: Arrays, replica: int, request: int, policy: int, is_later: bool) -> float:
    of, key = a.sglang.requests[request], 0.0  # dfs-weight goes by nodes, random by nothing
    if policy == SHORTEST_PREFILL_FIRST:
        key = work(a, request) + (BEHIND_ALL if is_later else 0.0)
    elif is_later:
        key = math.inf
    elif policy == LOF:
        key = -float(of.max_new_tokens)
    elif policy == LPM:
        key = -float(of.matched)
    elif policy == HRRN:
        key = -response_ratio(a, replica, request)
    elif policy == ROUTING_KEY:  # whose key most running requests have, then by key
        counts = a.sglang.key_counts
        key = of.routing_key - float(counts[of.routing_key]) * len(counts)
    return key


@kernel
def response_ratio(a: Arrays, replica: int, request: int) -> float:
    of = a.sglang.requests[request]
    num_uncached = a.requests[request].prompt - of.matched
    if num_uncached <= 0:
        return math.inf
    return max(0, a.sglang.engines[replica].num_processed_tokens - of.arrival_processed_tokens) / num_uncached


@kernel
def weigh(a: Arrays, replica: int) -> None:
    """Count at each node how many of the listed requests have matched up to it or further."""
    t = a.sglang
    for added in range(2):  # first nothing, so that all begin at 0
        for place in range(a.replicas[replica].num_waiting):
            node = t.requests[t.order[place]].last_node
            while node != NONE:
                t.nodes[node].weight = added * (t.nodes[node].weight + 1)
                node = t.nodes[node].parent


@kernel
def is_reached_before(t: SGLangArrays, first: int, second: int) -> bool:
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
def clear_contents(a: Arrays, replica: int, policy: int) -> int:
    """Make a hash table with room for the waiting requests' beginnings; returns its mask, 0 where nobody asks."""
    if policy not in (LPM, HRRN, SHORTEST_PREFILL_FIRST):
        return 0
    size = 2
    while size < 2 * a.replicas[replica].num_waiting:
        size *= 2
    for place in range(size):
        a.sglang.contents[place] = NONE
    return size - 1


@kernel
def begins_like_another(a: Arrays, request: int, mask: int) -> bool:
    """Whether one of those noted before shares its first LONG_SHARE tokens; if none does, note it."""
    req, contents = a.requests[request], a.sglang.contents
    if kv_cache.num_tokens_of(req) < LONG_SHARE:
        return False
    content = int(a.spans[tree.span_at(a.spans, req.span_start, LONG_SHARE - 1)].content)
    place = (content * 0x1E3779B1 >> 16) & mask
    while contents[place] != NONE:
        if contents[place] == content:
            return True
        place = (place + 1) & mask
    contents[place] = content
    return False


@kernel
def work(a: Arrays, request: int) -> int:
    """Tokens that its prefill computes."""
    return int(max(1, kv_cache.num_tokens_of(a.requests[request]) - a.sglang.requests[request].matched))


@kernel
def chunk_limit(a: Arrays, p: SGLangPool, replica: int, chunk_tokens: int) -> int:
    """The most tokens for the chunk that goes on, so that shorter prompts join its batch."""
    if chunk_tokens < 2 * p.page_size:
        return int(chunk_tokens)
    chunked = a.sglang.engines[replica].chunked_req
    remaining = kv_cache.num_tokens_of(a.requests[chunked]) - a.sglang.requests[chunked].prefix_len
    reserved = 0
    request = a.replicas[replica].waiting_head
    while request != NONE:
        charge = kv_cache.ceil_paged(p, work(a, request))
        if work(a, request) >= remaining or reserved + charge > chunk_tokens - p.page_size:
            break
        reserved += charge
        request = a.requests[request].next
    return tree.whole_pages(p, chunk_tokens - reserved) if reserved > 0 else int(chunk_tokens)


@kernel
def count_running_keys(a: Arrays, replica: int) -> bool:
    """Count the running requests of each routing key; whether any has one."""
    counts = a.sglang.key_counts
    for key in range(len(counts)):
        counts[key] = 0
    has_any = False
    for place in range(a.sglang.engines[replica].batch_size):
        key = a.sglang.requests[a.running[replica, place]].routing_key
        counts[key] += int(key > 0)
        has_any = has_any or key > 0
    return has_any


@kernel
def is_after(t: SGLangArrays, other: int, other_key: float, request: int, key: float, policy: int) -> bool:
    """Whether a request that came before another is to go after it."""
    if policy == DFS_WEIGHT:
        return is_reached_before(t, t.requests[request].last_node, t.requests[other].last_node)
    if other_key != key:
        return bool(other_key > key)
    if policy == SHORTEST_PREFILL_FIRST:
        return bool(t.requests[other].queue_entry > t.requests[request].queue_entry)
    return policy == HRRN and other > request


@kernel
def order_queue(a: Arrays, replica: int, policy: int) -> None:
    """Sort what `list_queue` has entered, equals as they came; it is mostly in order."""
    order, keys = a.sglang.order, a.sglang.sort_key
    for place in range(1, a.replicas[replica].num_waiting):
        request, key = order[place], keys[place]
        at = place
        while at > 0 and is_after(a.sglang, order[at - 1], keys[at - 1], request, key, policy):
            order[at], keys[at] = order[at - 1], keys[at - 1]
            at -= 1
        order[at], keys[at] = request, key


@kernel
def link_queue(a: Arrays, replica: int) -> None:
    """Let the queue be in the order that it was brought into."""
    order, state, before = a.sglang.order, a.replicas[replica], NONE
    state.waiting_head = order[0]
    for place in range(state.num_waiting):
        request = order[place]
        a.requests[request].previous = before
        if before != NONE:
            a.requests[before].next = request
        before = request
    a.requests[before].next = NONE
    state.waiting_tail = before
