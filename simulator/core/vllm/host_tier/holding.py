"""Which waiting requests enter a step of an engine with a host tier, compiled.

As in `conformance.reference.vllm.connectors.offloading_scheduler`: requests that wait and hold blocks lie in a queue
of their own, before all others.
"""

from simulator.core import waiting
from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import (
    BLOCKED_BY_KV_BLOCKS,
    BLOCKED_BY_MAX_NUM_SEQS,
    BLOCKED_BY_TOKEN_BUDGET,
    LMCACHE,
    NIXL,
    NONE,
    NOT_BLOCKED,
)
from simulator.core.state import Arrays
from simulator.core.types import Pool, Replica, Request
from simulator.core.vllm import admission, blocks, plan, prefix, queue
from simulator.core.vllm.disaggregation import reading, windows
from simulator.core.vllm.host_tier import lmcache, loads, store


@rare_kernel
def hold(a: Arrays, replica: int, request: int) -> None:
    """Move a request from the queue to those that hold blocks."""
    waiting.remove(a, replica, request)
    a.replicas[replica].num_waiting += 1
    tier = a.tiers[replica]
    before, after = tier.holding_tail, NONE
    if a.pools[a.replicas[replica].pool].by_priority == 1:
        while before != NONE and queue.is_sooner(a, request, before):
            before, after = a.requests[before].previous, before
    waiting.link(a, request, before, after)
    if before == NONE:
        tier.holding_head = request
    if after == NONE:
        tier.holding_tail = request
    a.offloads[request].holds = 1


@rare_kernel
def leave_queue(a: Arrays, replica: int, request: int) -> None:
    """Take a request out of the queue in which it waits."""
    if a.pools[a.replicas[replica].pool].connector == 0 or a.offloads[request].holds == 0:
        waiting.remove(a, replica, request)
        return
    tier = a.tiers[replica]
    if tier.holding_head == request:
        tier.holding_head = a.requests[request].next
    if tier.holding_tail == request:
        tier.holding_tail = a.requests[request].previous
    waiting.unlink(a, request)
    a.replicas[replica].num_waiting -= 1


@kernel
def full_tokens(p: Pool, req: Request) -> int:
    """What must fit for a request to be admitted, beside its next chunk."""
    return min(req.prompt + req.output, p.max_model_len) if p.reserve_full_isl == 1 else 0


@kernel
def watermark(state: Replica, p: Pool) -> int:
    return p.watermark_blocks if state.num_running > 0 else 0


@kernel
def missing_blocks(a: Arrays, p: Pool, num_blocks: int, held: int) -> int:
    """What a request that has `held` blocks in each group needs for `num_blocks`, of a window what it ever holds."""
    count = 0
    for group in range(p.num_groups):
        count += max(blocks.capped(a.groups, p, group, num_blocks) - held, 0)
    return count


@kernel
def missing_in_all(a: Arrays, p: Pool, req: Request) -> int:
    """What a request still needs to hold all its tokens."""
    num_blocks = blocks.num_blocks_of(min(req.prompt + req.output, p.max_model_len), p.block_size)
    return int(missing_blocks(a, p, num_blocks, req.num_blocks))


@kernel
def reserved_blocks(a: Arrays, replica: int) -> int:
    """What all need that have a part of their prompt to come."""
    state = a.replicas[replica]
    p, count = a.pools[state.pool], 0
    for index in range(state.num_running - state.num_quiet):
        req = a.requests[a.running[replica, index]]
        if req.prefilling == 1:
            count += missing_in_all(a, p, req)
    request = a.tiers[replica].holding_head
    while request != NONE:
        count += missing_in_all(a, p, a.requests[request])
        request = a.requests[request].next
    return count


@rare_kernel
def begin_load(a: Arrays, replica: int, request: int, row: int, hits: int, tokens: int) -> bool:
    """Give a request the blocks of its hits on the GPU and elsewhere, and load those; False: no room.

    It has `tokens` then.
    """
    state, req = a.replicas[replica], a.requests[request]
    p = a.pools[state.pool]
    num_blocks = blocks.num_blocks_of(tokens, p.block_size)
    full_blocks = blocks.num_blocks_of(full_tokens(p, req), p.block_size)
    free, full, loaded = state.num_free_blocks - watermark(state, p), 0, 0
    for group in range(p.num_groups):
        first = windows.first_held(a, p, row, group, hits, tokens)
        free -= prefix.num_held_free(a, p, row, group, min(first, hits), hits)
        full += max(blocks.capped(a.groups, p, group, full_blocks) - max(first, hits), 0)
        loaded += num_blocks - max(first, hits)
    if full > free or loaded > free - reserved_blocks(a, replica):
        return False
    if p.num_windows == 0:
        prefix.hold_hits(a, replica, request, row, hits)
        blocks.grow(a, replica, request, num_blocks)
    else:
        windows.hold(a, replica, request, row, hits, tokens)
        windows.grow(a, replica, request, hits, num_blocks)
    state.num_free_rows -= 1
    req.computed = tokens
    req.quiet_until = NONE
    if p.connector == NIXL:
        a.offloads[request].loading = 1
        a.offloads[request].local_blocks = hits
        reading.ask(a, replica, request, loaded)
    else:
        loads.load(a, replica, request, hits, tokens, loaded)
    hold(a, replica, request)
    return True


@kernel
def receive(a: Arrays, replica: int, request: int) -> None:
    """Cache what was loaded; the last token is always computed."""
    req = a.requests[request]
    blocks.cache(a, replica, request, req.computed)
    req.computed = min(req.computed, req.prompt + req.output - 1)
    a.offloads[request].loading = 0


@kernel
def admit_holder(a: Arrays, replica: int, slot: int, request: int, budget: int) -> int:
    """Let a request go on whose KV was loaded; 0 if its next chunk does not fit."""
    state, req = a.replicas[replica], a.requests[request]
    p = a.pools[state.pool]
    tokens = plan.capped(state.threshold, req.prompt + req.output - req.computed)
    if tokens > budget and p.chunked_prefill == 0:
        return 0
    tokens = min(tokens, budget)
    num_blocks = max(blocks.num_blocks_of(req.computed + tokens, p.block_size), req.num_blocks)
    missing = missing_blocks(a, p, blocks.num_blocks_of(full_tokens(p, req), p.block_size), req.num_blocks)
    missing = max(missing, p.num_groups * (num_blocks - req.num_blocks))
    if missing + watermark(state, p) > state.num_free_blocks:
        return 0
    blocks.grow(a, replica, request, num_blocks)
    if req.cached_tokens == NONE:
        local = a.offloads[request].local_blocks * p.block_size
        req.cached_tokens = req.computed
        if p.connector == NIXL:  # its prompt was looked up where it was prefilled
            a.totals[replica].read_tokens += req.computed - local
        else:
            a.totals[replica].queried_tokens += req.prompt + req.output
            a.totals[replica].hit_tokens += local
            a.totals[replica].host_hit_tokens += req.computed - local
    blocks.cache(a, replica, request, req.computed + tokens)
    sampled = plan.schedule_request(a, replica, slot, request, tokens, 0)
    plan.after_scheduling(a, replica, request, sampled)
    return tokens


@kernel
def find_elsewhere(a: Arrays, replica: int, request: int, hits: int) -> int:
    """The tokens that a request has after its hits on the GPU and a load; NONE: ask again in the next step."""
    p = a.pools[a.replicas[replica].pool]
    if p.connector == NIXL:
        return a.requests[request].prompt if a.handovers[request].do_remote_prefill == 1 else 0
    if p.is_shared == 1:
        return (hits + store.find_hit(a, replica, request, hits)) * p.block_size
    loaded = loads.find_hit(a, replica, request, hits)
    return NONE if loaded == NONE else hits * p.block_size + loaded


@kernel
def admit(a: Arrays, replica: int, slot: int, request: int, budget: int) -> int:
    """The tokens of a request's next chunk; 0: it does not fit, NONE: it is passed over."""
    p = a.pools[a.replicas[replica].pool]
    off, req = a.offloads[request], a.requests[request]
    if off.loading == 1:
        return NONE
    if off.loading == 2:
        receive(a, replica, request)
    if off.holds == 1:
        return admit_holder(a, replica, slot, request, budget)
    if p.connector == LMCACHE:
        return lmcache.admit(a, replica, slot, request, budget)
    row = a.free_rows[replica, a.replicas[replica].num_free_rows - 1]
    hits = prefix.find_hit(a, replica, request, row, req.prompt + req.output - 1) if p.prefix_caching == 1 else 0
    tokens = find_elsewhere(a, replica, request, hits)
    if tokens == NONE:
        return NONE
    if tokens > hits * p.block_size:
        return NONE if begin_load(a, replica, request, row, hits, tokens) else 0
    return admission.admit(a, replica, slot, request, budget, False, 0)


@rare_kernel
def schedule_waiting(a: Arrays, replica: int, slot: int, budget: int, now_s: float) -> int:
    """Returns why the scan stopped."""
    p, state = a.pools[a.replicas[replica].pool], a.replicas[replica]
    request, follows_holding = a.tiers[replica].holding_head, True
    if request == NONE:
        request, follows_holding = state.waiting_head, False
    while request != NONE:
        if budget <= 0:
            return BLOCKED_BY_TOKEN_BUDGET
        if state.num_running >= p.max_num_seqs:
            return BLOCKED_BY_MAX_NUM_SEQS
        following = a.requests[request].next
        if following == NONE and follows_holding:
            following, follows_holding = state.waiting_head, False
        tokens = admit(a, replica, slot, request, budget)
        if tokens == 0:
            return BLOCKED_BY_KV_BLOCKS
        if tokens > 0:
            leave_queue(a, replica, request)
            a.offloads[request].holds = 0
            a.requests[request].quiet_until = NONE
            admission.enter_running(a, replica, request, now_s)
            budget -= tokens
        request = following
    return NOT_BLOCKED
