"""Which requests join a prefill batch, compiled: as in `conformance.reference.sglang.prefill_adder`.

The batch in the making is the plan's entries; its budgets are kept with the engine.
"""

import math

from simulator.core import waiting
from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import (
    BLOCKED_BY_KV_BLOCKS,
    BLOCKED_BY_MAX_NUM_SEQS,
    BLOCKED_BY_TOKEN_BUDGET,
    NONE,
    NOT_BLOCKED,
    RUNNING,
)
from simulator.core.sglang import decode, kv_cache, schedule_policy, state_slots, tree
from simulator.core.sglang.layout import EXTEND, MIXED, NO_BATCH, SHORTEST_PREFILL_FIRST
from simulator.core.state import Arrays
from simulator.core.types import SGLangPool

CLIP_MAX_NEW_TOKENS = 4096  # most tokens that an answer counts for at admission: SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION
NO_LIMIT = 1 << 40  # tokens of a chunk, where prompts are never cut

CONTINUE, NO_TOKEN, OTHER = 0, 1, 2  # another request may be tried; memory is spent; the batch is full


@rare_kernel
def new_batch_prefill(a: Arrays, p: SGLangPool, replica: int, slot: int, now_s: float) -> int:
    """A batch of the chunked request, if there is one, and of those waiting who fit; says what it computes."""
    state, engine = a.replicas[replica], a.sglang.engines[replica]
    if engine.batch_size == 0 or p.kept_window > 0:
        engine.batch_is_full = 0
    if engine.chunked_req == NONE:
        if engine.batch_is_full == 1 or state.num_waiting == 0:
            return NO_BATCH
        if num_allocatable(a, p, replica, 0) <= 0:
            engine.batch_is_full = 1
            state.block_reason = BLOCKED_BY_MAX_NUM_SEQS
            return NO_BATCH
    state.block_reason = NOT_BLOCKED
    schedule_policy.sort_queue(a, p, replica)
    open_budgets(a, p, replica)
    if engine.chunked_req != NONE:
        add_chunked(a, p, replica, slot)
    admit_waiting(a, p, replica, slot)
    if a.plans[replica, slot].count == 0:
        return NO_BATCH
    return extend_batch(a, p, replica, slot, now_s)


@kernel
def num_allocatable(a: Arrays, p: SGLangPool, replica: int, num_held_rows: int) -> int:
    """Requests that may join; `num_held_rows` of them have their row already."""
    num_left = p.max_running_requests - a.sglang.engines[replica].batch_size
    return int(min(num_left, p.max_running_requests - a.replicas[replica].num_running + num_held_rows))


# -- budgets


@kernel
def open_budgets(a: Arrays, p: SGLangPool, replica: int) -> None:
    """Of an empty batch: running requests count with what they are expected to write."""
    engine = a.sglang.engines[replica]
    num_mixed = engine.batch_size * p.is_mixed_chunk
    engine.rem_input_tokens = p.max_prefill_tokens - num_mixed
    engine.rem_chunk_tokens = NO_LIMIT if p.chunked_prefill_size == NONE else p.chunked_prefill_size - num_mixed
    engine.new_chunked_req = NONE
    engine.current_offset = num_mixed
    engine.window_offset = 0
    expected = 0.0
    for place in range(engine.batch_size):
        request = a.running[replica, place]
        left = a.sglang.requests[request].max_new_tokens - a.requests[request].output
        expected += min(left, CLIP_MAX_NEW_TOKENS) * engine.ratio
    engine.total_offset = num_mixed + expected


@kernel
def rem_total_tokens(a: Arrays, p: SGLangPool, replica: int) -> float:
    """Memory that is neither taken nor spoken for."""
    return a.replicas[replica].num_free_blocks * p.page_size - a.sglang.engines[replica].total_offset


@kernel
def rem_window_tokens(a: Arrays, p: SGLangPool, replica: int) -> int:
    """What is left of the pool of windows, without what running requests will write: their windows slide."""
    engine = a.sglang.engines[replica]
    num_pages = engine.num_free_window_pages + engine.num_evictable_window_pages
    return int(num_pages * p.page_size - engine.window_offset)


@kernel
def window_tokens(a: Arrays, p: SGLangPool, replica: int, extend_len: int, max_new_tokens: int) -> int:
    """What a prefill takes of the pool of windows: what a chunk computes beyond a window, and that window."""
    computed = min(extend_len, a.sglang.engines[replica].rem_chunk_tokens)
    in_window = min(extend_len + max_new_tokens, p.kept_window)
    return int(max(computed - p.kept_window, 0) + in_window + p.page_size)


@kernel
def chunk_limit(a: Arrays, p: SGLangPool, replica: int, extend_len: int, max_new_tokens: int) -> int:
    """The most tokens of a chunk: fewer where the pool of windows never holds the whole prompt.

    0 where it does not hold it now.
    """
    limit = int(a.sglang.engines[replica].rem_chunk_tokens)
    if p.kept_window == 0:
        return limit
    left = rem_window_tokens(a, p, replica)
    needed = window_tokens(a, p, replica, kv_cache.ceil_paged(p, extend_len), max_new_tokens)
    if needed < left:
        return limit
    if p.chunked_prefill_size == NONE or needed < p.num_window_pages * p.page_size:
        return 0
    in_pool = left - window_tokens(a, p, replica, 0, max_new_tokens)
    return max(0, min(limit, tree.whole_pages(p, max(in_pool, 0))))


@kernel
def budget_state(a: Arrays, p: SGLangPool, replica: int) -> int:
    engine = a.sglang.engines[replica]
    now = a.replicas[replica].num_free_blocks * p.page_size - engine.current_offset
    if rem_total_tokens(a, p, replica) <= 0 or now <= 0:
        return NO_TOKEN
    if p.kept_window > 0 and rem_window_tokens(a, p, replica) <= 0:
        return NO_TOKEN
    if engine.rem_input_tokens <= 0 or engine.rem_chunk_tokens <= 0:
        return OTHER
    return CONTINUE


@kernel
def add(a: Arrays, p: SGLangPool, replica: int, slot: int, request: int, extend_len: int, max_new_tokens: int) -> None:
    """Enter a request with the tokens that it computes, and those that it is charged for beyond."""
    engine, plan = a.sglang.engines[replica], a.plans[replica, slot]
    of = a.sglang.requests[request]
    of.extend_end = of.prefix_len + extend_len
    entry = a.entries[replica, slot, plan.count]
    entry.request = request
    entry.tokens = extend_len
    plan.count += 1
    charge = kv_cache.ceil_paged(p, extend_len)
    engine.total_offset += charge + p.page_size + max_new_tokens
    engine.current_offset += charge + p.page_size
    if p.kept_window > 0:
        engine.window_offset += window_tokens(a, p, replica, charge, max_new_tokens)
    engine.rem_input_tokens -= charge
    if p.chunked_prefill_size != NONE:
        engine.rem_chunk_tokens -= charge


# -- who joins


@kernel
def add_chunked(a: Arrays, p: SGLangPool, replica: int, slot: int) -> None:
    """Go on with the request of which a chunk is computed; with shortest-prefill-first, shorter prompts get room.

    With a pool of windows, it waits where memory lacks for a chunk.
    """
    engine = a.sglang.engines[replica]
    request = engine.chunked_req
    req, of = a.requests[request], a.sglang.requests[request]
    tokens = min(engine.rem_chunk_tokens, int(rem_total_tokens(a, p, replica)))
    if p.kept_window > 0:
        tokens = min(tokens, rem_window_tokens(a, p, replica) - p.page_size)
        if tokens <= 0:
            if engine.batch_size == 0 and a.replicas[replica].num_plans == 0:
                a.cursor[0].stalled_request = request  # nothing gives memory back
            return
    if tokens <= 0:  # only by going on can it ever give back what it holds
        tokens = engine.rem_chunk_tokens
    if p.schedule_policy == SHORTEST_PREFILL_FIRST:
        tokens = min(tokens, schedule_policy.chunk_limit(a, p, replica, engine.rem_chunk_tokens))
    remaining = kv_cache.num_tokens_of(req) - of.prefix_len
    if remaining > tokens:
        add(a, p, replica, slot, request, tokens, 0)
    else:
        add(a, p, replica, slot, request, remaining, min(of.max_new_tokens, CLIP_MAX_NEW_TOKENS))
        engine.chunked_req = NONE


@kernel
def admit_waiting(a: Arrays, p: SGLangPool, replica: int, slot: int) -> None:
    """In the queue's order, up to the first that does not fit; the engine keeps why, while its batch is full."""
    state, engine, plan = a.replicas[replica], a.sglang.engines[replica], a.plans[replica, slot]
    num_held_rows = plan.count  # the chunked request
    request = state.waiting_head
    while request != NONE:
        if budget_state(a, p, replica) == OTHER:
            state.block_reason = BLOCKED_BY_TOKEN_BUDGET
            return
        if plan.count >= num_allocatable(a, p, replica, num_held_rows):
            engine.batch_is_full = 1
            state.block_reason = BLOCKED_BY_MAX_NUM_SEQS
        if engine.batch_is_full == 1:
            return
        following = a.requests[request].next
        count = plan.count
        verdict = add_one(a, p, replica, slot, request)
        if plan.count > count:
            waiting.remove(a, replica, request)
        if verdict == NO_TOKEN:
            engine.batch_is_full = int(plan.count > 0 or engine.batch_size > 0)
        if verdict != CONTINUE:
            state.block_reason = BLOCKED_BY_KV_BLOCKS if verdict == NO_TOKEN else BLOCKED_BY_TOKEN_BUDGET
            return
        request = following


@kernel
def add_one(a: Arrays, p: SGLangPool, replica: int, slot: int, request: int) -> int:
    """Try a waiting request; what does not fit the chunk is left for the next batch."""
    req, of = a.requests[request], a.sglang.requests[request]
    num_tokens = kv_cache.num_tokens_of(req)
    kv_cache.match(a, p, replica, request, num_tokens - 1)  # its last token is always computed
    of.protected = of.prefix_len
    if p.has_states == 1:
        state_slots.copy_matched(a, p, replica, request)
    kv_cache.keep(a, p, replica, request, of.last_node)  # what it matched cannot be evicted for it
    extend_len = num_tokens - of.prefix_len
    max_new_tokens = min(max(of.max_new_tokens - req.output, 0), CLIP_MAX_NEW_TOKENS)
    verdict = NO_TOKEN
    if extend_len + max_new_tokens + p.page_size < rem_total_tokens(a, p, replica):
        limit = chunk_limit(a, p, replica, extend_len, max_new_tokens)
        if p.kept_window == 0 or limit > 0:
            verdict = add_whole_or_chunk(a, p, replica, slot, request, extend_len, limit)
    if verdict == CONTINUE:
        return budget_state(a, p, replica)
    kv_cache.let_go(a, p, replica, request)
    if p.has_states == 1:
        state_slots.give_back(a, replica, request)
    return verdict


@kernel
def add_whole_or_chunk(
    a: Arrays, p: SGLangPool, replica: int, slot: int, request: int, extend_len: int, limit: int
) -> int:
    engine, of = a.sglang.engines[replica], a.sglang.requests[request]
    input_tokens = kv_cache.ceil_paged(p, extend_len)
    if p.chunked_prefill_size == NONE:
        if a.plans[replica, slot].count > 0 and input_tokens >= engine.rem_input_tokens:
            return OTHER
    elif input_tokens > limit:
        if engine.chunked_req != NONE and p.schedule_policy == SHORTEST_PREFILL_FIRST:
            return OTHER
        chunk = tree.whole_pages(p, of.prefix_len + tree.whole_pages(p, limit))
        if chunk <= of.prefix_len:
            return OTHER
        engine.new_chunked_req = request
        add(a, p, replica, slot, request, chunk - of.prefix_len, 0)
        return CONTINUE
    add(a, p, replica, slot, request, extend_len, min(of.max_new_tokens, CLIP_MAX_NEW_TOKENS))
    return CONTINUE


# -- the batch


@kernel
def extend_batch(a: Arrays, p: SGLangPool, replica: int, slot: int, now_s: float) -> int:
    """Take the batch's pages; says what it computes, and NO_BATCH where SGLang's server would end for want of them."""
    engine, plan = a.sglang.engines[replica], a.plans[replica, slot]
    if engine.new_chunked_req != NONE:
        engine.chunked_req = engine.new_chunked_req
    if engine.chunked_req != NONE:
        a.sglang.requests[engine.chunked_req].inflight_chunks += 1
    for place in range(plan.count):
        join(a, replica, a.entries[replica, slot, place].request, now_s)
    if not kv_cache.allocate_extend(a, p, replica, slot):
        a.cursor[0].stalled_request = a.entries[replica, slot, 0].request
        return NO_BATCH
    num_extend_tokens = 0
    for place in range(plan.count):
        entry = a.entries[replica, slot, place]
        entry.sampled = int(entry.request != engine.chunked_req)
        num_extend_tokens += entry.tokens
    plan.num_extending = plan.count
    engine.num_processed_tokens += num_extend_tokens
    engine.last_chunked = engine.chunked_req
    if p.is_mixed_chunk == 1 and engine.batch_size > 0:
        return mix_with_running(a, p, replica, slot)
    return EXTEND


@kernel
def join(a: Arrays, replica: int, request: int, now_s: float) -> None:
    """A request is computed from now on."""
    req, of = a.requests[request], a.sglang.requests[request]
    req.status = RUNNING
    of.is_retracted = 0
    if math.isnan(req.scheduled_s):
        req.scheduled_s = now_s
    if req.cached_tokens == NONE:
        req.cached_tokens = of.prefix_len
        a.totals[replica].queried_tokens += kv_cache.num_tokens_of(req)
        a.totals[replica].hit_tokens += of.prefix_len


@kernel
def mix_with_running(a: Arrays, p: SGLangPool, replica: int, slot: int) -> int:
    """Let running requests decode in a batch that prefills, if there is room for them all."""
    engine = a.sglang.engines[replica]
    if decode.leave_out_finishing(a, replica) > 0:
        engine.batch_is_full = 0
    if engine.batch_size == 0 or not kv_cache.fits_decode(a, p, replica, engine.batch_size):
        return EXTEND
    kv_cache.allocate_decode(a, p, replica, engine.batch_size)
    engine.num_processed_tokens += engine.batch_size
    decode.enter_running(a, p, replica, slot)
    engine.batch_size = 0
    engine.kept_extend_tokens = 0
    return MIXED
