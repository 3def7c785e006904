"""Which waiting requests enter a step, compiled."""

from simulator.core import waiting
from simulator.core.jit import kernel
from simulator.core.layout import (
    BLOCKED_BY_KV_BLOCKS,
    BLOCKED_BY_MAX_LORAS,
    BLOCKED_BY_MAX_NUM_SEQS,
    BLOCKED_BY_TOKEN_BUDGET,
    NONE,
    NOT_BLOCKED,
    RUNNING,
)
from simulator.core.state import Arrays
from simulator.core.types import Pool
from simulator.core.vllm import adapters, blocks, encoder, ends, plan, prefix, states

DEFERRED = -2


@kernel
def is_still_blocked(a: Arrays, replica: int, request: int) -> bool:
    """Whether the head of the queue, found not to fit earlier, cannot fit now either.

    Its deficit shrinks by at most one for each block freed, unless the first block it missed has been cached.
    """
    p = a.pools[a.replicas[replica].pool]
    state = a.replicas[replica]
    if (
        p.connector > 0
        or p.watermark_blocks > 0
        or p.reserve_full_isl == 0
        or p.num_windows > 0
        or p.speculative_tokens > 0
    ):
        return False  # what must fit then changes from step to step
    if p.encoder_budget > 0 and a.images_of[request].num > 0:
        return False  # being looked at makes its cached images those that were used last
    if state.blocked_request != request or state.num_freed - state.freed_at_block >= state.blocked_deficit:
        return False
    if p.prefix_caching == 0 or state.blocked_miss_index == NONE:
        return True
    return not blocks.is_cached(a, replica, state.blocked_miss_content, state.blocked_miss_index)


@kernel
def forget_images(a: Arrays, p: Pool, replica: int, request: int) -> None:
    """A request that was looked at does not enter: it needs none of the images that are cached."""
    if p.encoder_budget > 0:
        encoder.free(a, replica, request)


@kernel
def remember_blocked(a: Arrays, replica: int, request: int, deficit: int, hits: int, limit: int) -> None:
    p = a.pools[a.replicas[replica].pool]
    state = a.replicas[replica]
    state.blocked_request = request
    state.blocked_deficit = deficit
    state.freed_at_block = state.num_freed
    state.blocked_miss_index = NONE
    forget_images(a, p, replica, request)
    if p.prefix_caching == 0 or hits >= limit:
        return
    span = a.requests[request].span_start
    while a.spans[span].end < (hits + 1) * p.block_size:
        span += 1
    state.blocked_miss_index = hits
    state.blocked_miss_content = a.spans[span].content


@kernel
def padded_tokens(p: Pool, hit_tokens: int, budget: int, any_runs: bool) -> int:
    """The width of a drafting step, to which a request with one token left is padded; 1: it is not, 0: it must wait."""
    if not (any_runs or (hit_tokens > 0 and p.prefix_hit_joins_drafting == 1)):
        return 1
    width = 1 + p.speculative_tokens
    if hit_tokens + width + p.prefix_hit_joins_drafting > p.max_model_len:
        return p.prefix_hit_joins_drafting  # later releases do not pad there, earlier ones wait
    return width if width <= budget else 0


@kernel
def fitted(a: Arrays, replica: int, request: int, row: int, hits: int, tokens: int) -> int:
    """As many of the tokens behind a hit as allow states that the prefix cache keeps, and images.

    Returns 0, NONE or DEFERRED where there are none, as of `admit`.
    """
    p = a.pools[a.replicas[replica].pool]
    req, hit_tokens = a.requests[request], hits * p.block_size
    if p.prefill_interval > 1 and a.replicas[replica].defers == 1 and hit_tokens < req.prompt + req.output - 1:
        return DEFERRED
    if p.num_states > 0:
        tokens = states.up_to_state(p, req, hit_tokens, tokens)
        if tokens == 0:
            return 0
    if p.encoder_budget > 0:
        tokens = encoder.plan(a, replica, request, hit_tokens, tokens)
        if tokens == 0:
            return NONE
    if p.num_states > 0:
        if hits > 0 and states.is_fresh(a, replica, row, hits):
            forget_images(a, p, replica, request)
            return 0
        req.checkpoint = states.leaves_checkpoint(p, req, hit_tokens, hit_tokens + tokens)
    return tokens


@kernel
def admit(a: Arrays, replica: int, slot: int, request: int, budget: int, any_runs: bool, any_prefills: int) -> int:
    """Take the request's blocks for its next chunk, entering it into the plan.

    Returns 0 if it does not fit, NONE if its next image does not, DEFERRED if this step computes no prompts.
    """
    p = a.pools[a.replicas[replica].pool]
    state = a.replicas[replica]
    if is_still_blocked(a, replica, request):
        return 0
    req = a.requests[request]
    known = req.prompt + req.output
    row = a.free_rows[replica, state.num_free_rows - 1]
    hits = 0
    if p.prefix_caching == 1:
        hits = prefix.find_hit(a, replica, request, row, known - 1)
    hit_tokens = hits * p.block_size
    tokens = known - hit_tokens
    padded = 0
    if p.speculative_tokens > 0 and tokens == 1 and any_prefills == 0:
        tokens = padded_tokens(p, hit_tokens, budget, any_runs)
        if tokens == 0:
            return 0
        padded = 1 if tokens > 1 else 0
    tokens = plan.capped(a.replicas[replica].threshold, tokens)
    if tokens > budget and p.chunked_prefill == 0:
        return 0
    tokens = min(tokens, budget)
    tokens = fitted(a, replica, request, row, hits, tokens)
    if tokens <= 0:
        return tokens
    full_tokens = min(known, p.max_model_len) if p.reserve_full_isl == 1 else 0
    num_slots = min(hit_tokens + tokens + p.lookahead_tokens, p.max_model_len)
    deficit = prefix.deficit(a, replica, request, row, hits, full_tokens, num_slots)
    if deficit > 0:
        remember_blocked(a, replica, request, deficit, hits, (known - 1) // p.block_size)
        return 0
    prefix.hold_hits(a, replica, request, row, hits)
    state.blocked_request = NONE
    state.num_free_rows -= 1
    req.computed = hit_tokens
    req.quiet_until = NONE
    if p.prefill_interval > 1 and hit_tokens < known - 1:
        state.has_prefill = 1
    if req.cached_tokens == NONE:
        req.cached_tokens = hit_tokens
        a.totals[replica].queried_tokens += known
        a.totals[replica].hit_tokens += hit_tokens
    blocks.grow(a, replica, request, blocks.num_blocks_of(num_slots, p.block_size))
    blocks.cache(a, replica, request, hit_tokens + tokens)
    if p.num_states > 0:
        states.note_fresh(a, replica, request, hits)
    place = a.plans[replica, slot].count - a.plans[replica, slot].num_quiet
    sampled = plan.schedule_request(a, replica, slot, request, tokens, p.speculative_tokens if padded == 1 else 0)
    if padded == 1:
        a.entries[replica, slot, place].padded = 1
    plan.after_scheduling(a, replica, request, sampled)
    return tokens


@kernel
def schedule_waiting(a: Arrays, replica: int, slot: int, budget: int, any_prefills: int, now_s: float) -> int:
    """Returns why the scan stopped."""
    p = a.pools[a.replicas[replica].pool]
    state = a.replicas[replica]
    any_runs, reason = a.plans[replica, slot].count > 0, NOT_BLOCKED
    request = state.waiting_head
    while request != NONE:
        if budget <= p.draft_slots:
            return BLOCKED_BY_TOKEN_BUDGET
        if state.num_running >= p.max_num_seqs:
            return BLOCKED_BY_MAX_NUM_SEQS
        following = a.requests[request].next
        if a.requests[request].stale > 0:  # resuming now could sample a token twice: skipped, not blocking
            a.requests[request].passed_over = 1
            request = following
            continue
        if p.max_loras > 0 and not adapters.may_enter(a, replica, request):
            a.requests[request].passed_over = 1
            request, reason = following, BLOCKED_BY_MAX_LORAS
            continue
        tokens = admit(a, replica, slot, request, budget - p.draft_slots, any_runs, any_prefills)
        if tokens == 0:
            return BLOCKED_BY_KV_BLOCKS
        if tokens == DEFERRED:
            return BLOCKED_BY_TOKEN_BUDGET
        if tokens == NONE:
            a.requests[request].passed_over = 1
            request, reason = following, BLOCKED_BY_TOKEN_BUDGET
            continue
        waiting.remove(a, replica, request)
        enter_running(a, replica, request, now_s)
        ends.note_running(a, replica, request)
        budget -= tokens + p.draft_slots
        request = following
    return reason


@kernel
def enter_running(a: Arrays, replica: int, request: int, now_s: float) -> None:
    """A request that has left its queue runs."""
    state, req = a.replicas[replica], a.requests[request]
    req.status = RUNNING
    if req.scheduled_s != req.scheduled_s:  # NaN: first time
        req.scheduled_s = now_s
    if a.pools[state.pool].max_loras > 0:
        adapters.enter(a, replica, request)
    a.running[replica, state.num_running - state.num_quiet] = request
    req.admission = state.num_admitted
    req.next = NONE
    state.num_running += 1
    state.num_admitted += 1
