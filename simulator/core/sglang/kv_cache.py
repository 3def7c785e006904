"""What requests hold of the KV cache, compiled: as in `conformance.reference.sglang.kv_cache`.

`num_free_blocks` of an engine counts the pages that are free or could be by eviction, `num_cached_free_blocks` the
latter.
"""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.sglang import state_slots, tree, windows
from simulator.core.state import Arrays
from simulator.core.types import Replica, Request, SGLangPool

WINDOW_EVICTION_INTERVAL = 128  # tokens that leave a window before they are given up: SGLANG_SWA_EVICTION_INTERVAL


@kernel
def ceil_paged(p: SGLangPool, num_tokens: int) -> int:
    """Rounded up to whole pages."""
    return (num_tokens + p.page_size - 1) // p.page_size * p.page_size


@kernel
def pages_of(p: SGLangPool, start: int, end: int) -> int:
    """Pages that a sequence adds when it grows from `start` to `end` tokens."""
    return (end + p.page_size - 1) // p.page_size - (start + p.page_size - 1) // p.page_size


@kernel
def num_tokens_of(req: Request) -> int:
    """Prompt and answer so far."""
    return int(req.prompt + req.output)


# -- prefixes


@kernel
def match(a: Arrays, p: SGLangPool, replica: int, request: int, num_tokens: int) -> None:
    """Find the longest known prefix of a request's first tokens."""
    req, of = a.requests[request], a.sglang.requests[request]
    places = 0 if p.is_tree_disabled == 1 else tree.in_tree(p, num_tokens)
    node, known = tree.match_prefix(a, p, replica, req.span_start, places)
    of.last_node = node
    of.prefix_len = a.sglang.nodes[node].end
    if p.kept_window > 0:
        a.sglang.window_requests[request].branching = known if known > of.prefix_len else 0
    if p.has_states == 1:
        known -= known % p.state_chunk
        a.sglang.state_requests[request].branching = known if known > of.prefix_len else 0
    of.matched = min(of.prefix_len, num_tokens_of(req) - 1)


@kernel
def checkpoint(a: Arrays, p: SGLangPool, replica: int, request: int) -> None:
    """Make what its batch has computed findable; its next chunk goes on from there.

    With windows, what is handed over first ends where the tree's knowledge did, so that others find the window there.
    """
    of = a.sglang.requests[request]
    end, branch = int(of.extend_end), 0
    if p.kept_window > 0 and p.is_tree_disabled == 0:
        branch = branch_end(a, p, request, end)
        end = branch if branch > 0 else end
        slide_window(a, p, replica, request, tree.in_tree(p, end) - 1)
    hand_over(a, p, replica, request, end, 0)
    if branch > 0:
        slide_window(a, p, replica, request, tree.in_tree(p, of.extend_end) - 1)
    of.prefix_len = of.extend_end


@kernel
def branch_end(a: Arrays, p: SGLangPool, request: int, num_tokens: int) -> int:
    """Where what is handed over ends once, before so many tokens; 0: there."""
    in_windows = a.sglang.window_requests[request]
    branch = int(in_windows.branching)
    if branch <= a.sglang.requests[request].protected or branch > tree.in_tree(p, num_tokens):
        return 0
    in_windows.branching = 0
    return branch + int(p.bigrams)


@rare_kernel
def hand_over(a: Arrays, p: SGLangPool, replica: int, request: int, num_tokens: int, is_last: int) -> None:
    """Give tokens to the tree. What it had already is freed, and the lock moves to the new end.

    A node ends where the prompt does, so that an answer can be evicted without it; not so with windows or states. With
    states, what is given ends where the latest of them is.
    """
    if p.is_tree_disabled == 1:
        return
    if p.has_states == 1:
        num_tokens = state_slots.state_to_hand_over(a, p, replica, request, num_tokens, is_last)
        if num_tokens == 0:
            return
    req, of = a.requests[request], a.sglang.requests[request]
    span = int(req.span_start)
    window_start = int(a.sglang.window_requests[request].start) if p.kept_window > 0 else 0
    num_tokens = tree.whole_pages(p, tree.in_tree(p, num_tokens))
    prompt_len = tree.whole_pages(p, tree.in_tree(p, req.prompt))
    known, node = tree.insert(a, p, replica, span, num_tokens, 0, of.inserted, of.protected, window_start)
    of.inserted = max(of.inserted, num_tokens)
    if p.has_states == 1:
        state_slots.give_state(a, p, replica, request, node, known < num_tokens, is_last)
    elif p.kept_window == 0 and prompt_len < num_tokens:
        tree.insert(a, p, replica, span, prompt_len, 1, prompt_len, 0, 0)
    a.replicas[replica].num_free_blocks += max(0, known - of.protected) // p.page_size
    let_go(a, p, replica, request)
    keep(a, p, replica, request, node)
    of.last_node = node
    of.protected = num_tokens


@kernel
def keep(a: Arrays, p: SGLangPool, replica: int, request: int, node: int) -> None:
    """Lock a prefix for a request."""
    a.sglang.requests[request].lock = node
    window_start = tree.lock(a, p, replica, node)
    if p.kept_window > 0:
        a.sglang.window_requests[request].lock_start = window_start


@kernel
def let_go(a: Arrays, p: SGLangPool, replica: int, request: int) -> None:
    of = a.sglang.requests[request]
    if of.lock != NONE:
        tree.unlock(a, p, replica, of.lock, a.sglang.window_requests[request].lock_start if p.kept_window > 0 else 0)
    of.lock = NONE


# -- windows


@rare_kernel
def slide_window(a: Arrays, p: SGLangPool, replica: int, request: int, num_tokens: int) -> None:
    """Give up what the next token after `num_tokens` and those after it no longer read; whole pages alone.

    For the tree a window in whole pages stays, and a page at least.
    """
    of, in_windows = a.sglang.requests[request], a.sglang.window_requests[request]
    if of.holds_kv == 0 or num_tokens - p.kept_window <= in_windows.start:
        return
    in_windows.start = max(in_windows.start, of.protected)
    kept = int(p.kept_window)
    if p.is_tree_disabled == 0:
        kept = ceil_paged(p, max(kept, int(p.page_size)))
    start = tree.whole_pages(p, max(in_windows.start, num_tokens - kept))
    a.sglang.engines[replica].num_free_window_pages += (start - in_windows.start) // p.page_size
    in_windows.start = start
    if a.sglang.engines[replica].num_free_window_pages > p.num_window_pages:
        a.cursor[0].stalled_request = request  # of a prompt that was taken to be whole; SGLang's server ends, too


@kernel
def slide_windows_of_chunks(a: Arrays, p: SGLangPool, replica: int, slot: int) -> None:
    """Without a tree, what chunks before have left behind; with the overlap schedule, the last one still runs."""
    is_late = a.pools[a.replicas[replica].pool].plans_in_flight > 1
    for place in range(a.plans[replica, slot].count):
        request = a.entries[replica, slot, place].request
        in_windows = a.sglang.window_requests[request]
        if p.is_tree_disabled == 1 and not (is_late and in_windows.extend_batches < 2):
            running = max(p.chunked_prefill_size, 0) if is_late else 0
            slide_window(a, p, replica, request, a.sglang.requests[request].prefix_len - running)
        in_windows.extend_batches += 1


@kernel
def slide_windows_of_decodes(a: Arrays, p: SGLangPool, replica: int, count: int) -> None:
    """Not in a request's first decode, as its prefill may still run; then now and then."""
    for place in range(count):
        request = a.running[replica, place]
        in_windows = a.sglang.window_requests[request]
        num_tokens = num_tokens_of(a.requests[request]) - 1
        if in_windows.decode_batches > 0 and num_tokens - p.kept_window >= in_windows.start + WINDOW_EVICTION_INTERVAL:
            slide_window(a, p, replica, request, num_tokens)
        in_windows.decode_batches += 1


@rare_kernel
def evict_to_free_in_windows(a: Arrays, p: SGLangPool, replica: int, num_tokens: int) -> bool:
    """Evict leaves and make other nodes tombstones until so many tokens are free; False where they cannot be."""
    t, state = a.sglang, a.sglang.engines[replica]
    node = int(state.oldest_side)
    while node != NONE and state.num_free_window_pages * p.page_size < num_tokens:
        newer = int(t.side_nodes[node].newer)
        if t.side_nodes[node].lock_ref == 0:
            if t.nodes[node].leaf_place != NONE:
                tree.evict(a, p, replica, node)
            else:
                windows.drop(t, p, state, node)
        node = newer
    return bool(state.num_free_window_pages * p.page_size >= num_tokens)


# -- pages


@kernel
def num_free_pages(state: Replica) -> int:
    return int(state.num_free_blocks - state.num_cached_free_blocks)


@rare_kernel
def evict_to_free(a: Arrays, p: SGLangPool, replica: int, num_tokens: int) -> bool:
    """Evict leaves until so many tokens are free, in both pools; False where they cannot be."""
    state, is_free = a.replicas[replica], True
    while is_free and num_free_pages(state) * p.page_size < num_tokens:
        is_free = a.sglang.engines[replica].num_leaves > 0
        if is_free:
            tree.evict_leaf(a, p, replica)
    if p.kept_window > 0:
        return evict_to_free_in_windows(a, p, replica, num_tokens) and is_free
    return is_free


@kernel
def allocate_extend(a: Arrays, p: SGLangPool, replica: int, slot: int) -> bool:
    """Take the pages for the prefill batch in a plan; False where there are too few: SGLang's server ends there."""
    state, plan = a.replicas[replica], a.plans[replica, slot]
    if p.kept_window > 0:
        slide_windows_of_chunks(a, p, replica, slot)
    if p.has_states == 1:
        state_slots.bind(a, p, replica, slot)
    num_tokens, num_pages = 0, 0
    for place in range(plan.count):
        of = a.sglang.requests[a.entries[replica, slot, place].request]
        num_tokens += of.extend_end - of.prefix_len
        num_pages += pages_of(p, of.prefix_len, of.extend_end)
    spare = plan.count * p.page_size if p.page_size > 1 else 0  # as if each began a page
    evict_to_free(a, p, replica, num_tokens + spare)
    if num_pages > num_free_pages(state):
        return False
    if p.kept_window > 0:
        if num_pages > a.sglang.engines[replica].num_free_window_pages:
            return False
        a.sglang.engines[replica].num_free_window_pages -= num_pages
    state.num_free_blocks -= num_pages
    for place in range(plan.count):
        request = a.entries[replica, slot, place].request
        of = a.sglang.requests[request]
        state.num_running += 1 - of.holds_kv
        of.holds_kv = 1
        a.requests[request].computed = of.reserved = of.extend_end
        if p.has_states == 1:
            state_slots.track_extend(a, p, request)
    return True


@kernel
def num_new_pages(a: Arrays, p: SGLangPool, replica: int, count: int) -> int:
    """What the next token of each of the first `count` running requests takes, with its drafts."""
    if p.draft_tokens > 0:
        num_pages = 0
        for place in range(count):
            request = a.running[replica, place]
            num_pages += pages_of(p, a.sglang.requests[request].reserved, reserve_end(a, p, request))
        return num_pages
    if p.page_size == 1:
        return count
    num_pages = 0
    for place in range(count):
        num_pages += int(a.requests[a.running[replica, place]].computed % p.page_size == 0)
    return num_pages


@kernel
def reserve_end(a: Arrays, p: SGLangPool, request: int) -> int:
    """Up to which a request that drafts holds places."""
    end = ceil_paged(p, a.requests[request].computed + p.draft_reserve)
    return max(int(a.sglang.requests[request].reserved), int(end))


@kernel
def fits_decode(a: Arrays, p: SGLangPool, replica: int, count: int) -> bool:
    """Whether each of the first `count` running requests can have its next token's place, after evicting what must."""
    return evict_to_free(a, p, replica, num_new_pages(a, p, replica, count) * p.page_size)


@kernel
def allocate_decode(a: Arrays, p: SGLangPool, replica: int, count: int) -> None:
    """Take the places of one token of each running request, or of its drafts, which fit."""
    if p.kept_window > 0:
        slide_windows_of_decodes(a, p, replica, count)
    if p.draft_tokens > 0:
        reserve(a, p, replica, count)
        return
    evict_to_free(a, p, replica, count * p.page_size)  # as if each began a page
    num_pages = num_new_pages(a, p, replica, count)
    a.replicas[replica].num_free_blocks -= num_pages
    if p.kept_window > 0:
        a.sglang.engines[replica].num_free_window_pages -= num_pages


@kernel
def reserve(a: Arrays, p: SGLangPool, replica: int, count: int) -> None:
    """Take the places of the drafts of each running request."""
    num_tokens, num_pages = 0, num_new_pages(a, p, replica, count)
    for place in range(count):
        request = a.running[replica, place]
        num_tokens += reserve_end(a, p, request) - a.sglang.requests[request].reserved
    if num_tokens > 0:
        spare = count * p.page_size if p.page_size > 1 else 0  # as if each began a page
        evict_to_free(a, p, replica, num_tokens + spare)
    a.replicas[replica].num_free_blocks -= num_pages
    if p.kept_window > 0:
        a.sglang.engines[replica].num_free_window_pages -= num_pages
    for place in range(count):
        request = a.running[replica, place]
        a.sglang.requests[request].reserved = reserve_end(a, p, request)


@rare_kernel
def release(a: Arrays, p: SGLangPool, replica: int, request: int, to_tree: bool) -> None:
    """Give up all that a request holds; the tree keeps what it can, where it is to."""
    req, of = a.requests[request], a.sglang.requests[request]
    state = a.replicas[replica]
    if to_tree:
        end = min(int(req.computed), num_tokens_of(req))
        if p.draft_tokens > 0 and of.is_aborted == 1:
            end = int(req.computed)
        branch = branch_end(a, p, request, end) if p.kept_window > 0 else 0
        # A state that is not tracked has seen all that was computed, and cannot end before.
        is_whole = p.has_states == 0 or p.num_tracking_slots > 0 or p.draft_tokens == 0 or end == req.computed
        if is_whole:
            hand_over(a, p, replica, request, branch if branch > 0 else end, 1)
    held = int(of.reserved) if p.draft_tokens > 0 else int(req.computed)
    state.num_free_blocks += pages_of(p, of.protected, held)
    if p.kept_window > 0:
        in_windows = a.sglang.window_requests[request]
        own = max(of.protected, in_windows.start)
        a.sglang.engines[replica].num_free_window_pages += pages_of(p, own, held)
        in_windows.start = 0
    if p.has_states == 1:
        state_slots.free_slots(a, replica, request)
    let_go(a, p, replica, request)
    state.num_running -= 1
    of.holds_kv = 0
