"""One step's decisions, compiled: the twin of `simulator.reference.Scheduler`."""

from typing import Any

from simulator.core import pool
from simulator.core.jit import kernel
from simulator.core.latency import add_to_sums, clear_sums, remove_from_sums
from simulator.core.layout import (
    BLOCKED_BY_KV_BLOCKS,
    BLOCKED_BY_MAX_NUM_SEQS,
    BLOCKED_BY_TOKEN_BUDGET,
    NONE,
    NOT_BLOCKED,
    RUNNING,
    WAITING,
)

# -- the waiting queue, a list through the requests


@kernel
def enqueue_last(a: Any, replica: int, request: int) -> None:
    state = a.replicas[replica]
    a.requests[request].previous = state.waiting_tail
    a.requests[request].next = NONE
    if state.waiting_tail == NONE:
        state.waiting_head = request
    else:
        a.requests[state.waiting_tail].next = request
    state.waiting_tail = request
    state.num_waiting += 1
    a.requests[request].status = WAITING


@kernel
def enqueue_first(a: Any, replica: int, request: int) -> None:
    state = a.replicas[replica]
    a.requests[request].previous = NONE
    a.requests[request].next = state.waiting_head
    if state.waiting_head == NONE:
        state.waiting_tail = request
    else:
        a.requests[state.waiting_head].previous = request
    state.waiting_head = request
    state.num_waiting += 1
    a.requests[request].status = WAITING


@kernel
def is_sooner(a: Any, left: int, right: int) -> bool:
    """Whether `left` comes first under the priority policy: by priority, then arrival, then id."""
    one, other = a.requests[left], a.requests[right]
    if one.priority != other.priority:
        return one.priority < other.priority
    if one.arrival_s != other.arrival_s:
        return one.arrival_s < other.arrival_s
    return left < right


@kernel
def enqueue_by_rank(a: Any, replica: int, request: int) -> None:
    """Insert where the request's rank belongs, looking from the end, where new arrivals mostly go."""
    state = a.replicas[replica]
    before = state.waiting_tail
    while before != NONE and is_sooner(a, request, before):
        before = a.requests[before].previous
    if before == state.waiting_tail:
        enqueue_last(a, replica, request)
        return
    if before == NONE:
        enqueue_first(a, replica, request)
        return
    after = a.requests[before].next
    a.requests[request].previous = before
    a.requests[request].next = after
    a.requests[before].next = request
    a.requests[after].previous = request
    state.num_waiting += 1
    a.requests[request].status = WAITING


@kernel
def enqueue_arrival(a: Any, replica: int, request: int) -> None:
    if a.parameters[0].by_priority == 1:
        enqueue_by_rank(a, replica, request)
    else:
        enqueue_last(a, replica, request)


@kernel
def remove_waiting(a: Any, replica: int, request: int) -> None:
    state = a.replicas[replica]
    before, after = a.requests[request].previous, a.requests[request].next
    if before == NONE:
        state.waiting_head = after
    else:
        a.requests[before].next = after
    if after == NONE:
        state.waiting_tail = before
    else:
        a.requests[after].previous = before
    state.num_waiting -= 1


# -- blocks of one request


@kernel
def release_blocks(a: Any, replica: int, request: int) -> None:
    p = a.parameters[0]
    req = a.requests[request]
    pool.free_row(a.blocks, a.replicas, a.tables, replica, req.row, req.num_blocks, replica * p.num_blocks)
    state = a.replicas[replica]
    a.free_rows[replica, state.num_free_rows] = req.row
    state.num_free_rows += 1
    req.row = NONE
    req.num_blocks = 0
    req.cached_blocks = 0


@kernel
def grow(a: Any, replica: int, request: int, num_blocks: int) -> None:
    """Give the request new blocks up to `num_blocks`; they must be free."""
    p = a.parameters[0]
    req = a.requests[request]
    for index in range(req.num_blocks, num_blocks):
        a.tables[req.row, index] = pool.take(
            a.blocks, a.buckets, a.replicas, replica, replica * p.num_blocks, p.bucket_mask
        )
    req.num_blocks = max(req.num_blocks, num_blocks)


@kernel
def cache_blocks(a: Any, replica: int, request: int, num_tokens: int) -> None:
    """Hash the request's blocks that `num_tokens` tokens fill."""
    p = a.parameters[0]
    req = a.requests[request]
    if p.prefix_caching == 0 or num_tokens < (req.cached_blocks + 1) * p.block_size:  # divisions are slow here
        return
    num_full = num_tokens // p.block_size
    span = req.span_start
    for index in range(req.cached_blocks, num_full):
        last_position = (index + 1) * p.block_size - 1
        while a.spans[span].end <= last_position:
            span += 1
        pool.cache_block(
            a.blocks, a.buckets, replica, a.tables[req.row, index], a.spans[span].content, index, p.bucket_mask
        )
    req.cached_blocks = num_full


# -- running requests


@kernel
def capped(a: Any, replica: int, tokens: int) -> int:
    threshold = a.replicas[replica].threshold
    return min(tokens, threshold) if threshold > 0 else tokens


@kernel
def want(a: Any, replica: int, request: int, budget: int) -> int:
    p = a.parameters[0]
    req = a.requests[request]
    if req.placeholders > 0 and req.computed + 2 - req.placeholders >= req.prompt + req.max_tokens:
        return 0  # the token that ends it is in flight already
    wanted = capped(a, replica, req.prompt + req.output + req.placeholders - req.computed)
    return min(wanted, budget, p.max_model_len - 1 - req.computed)


@kernel
def set_quiet_until(a: Any, request: int) -> None:
    """How far a request that was just sampled can go on by one token per step, nothing else happening to it."""
    p = a.parameters[0]
    req = a.requests[request]
    quiet_until = min(req.num_blocks * p.block_size, min(req.prompt + req.max_tokens, p.max_model_len) - 3)
    if p.prefix_caching == 1:
        quiet_until = min(quiet_until, (req.cached_blocks + 1) * p.block_size - 1)
    req.quiet_until = quiet_until


@kernel
def preempt(a: Any, replica: int, request: int) -> None:
    release_blocks(a, replica, request)
    req = a.requests[request]
    req.computed = 0
    req.quiet_until = NONE
    req.stale = req.in_flight
    req.placeholders = 0
    req.preemptions += 1
    a.totals[replica].preemptions += 1
    if a.parameters[0].by_priority == 1:
        enqueue_by_rank(a, replica, request)
    else:
        enqueue_first(a, replica, request)


@kernel
def schedule_request(a: Any, replica: int, slot: int, request: int, tokens: int) -> int:
    """Enter a request into the plan, its counters advancing now, as in vLLM; returns 1 if the step samples it."""
    req = a.requests[request]
    req.computed += tokens
    req.in_flight += tokens
    sampled = 1 if req.computed >= req.prompt + req.output + req.placeholders else 0
    if sampled == 1:
        req.placeholders += a.parameters[0].asynchronous
    plan = a.plans[replica, slot]
    entry = a.entries[replica, slot, plan.count]
    entry.request = request
    entry.tokens = tokens
    entry.sampled = sampled
    add_to_sums(plan, req.computed, tokens, sampled, a.parameters[0].window)
    return sampled


@kernel
def unschedule(a: Any, replica: int, slot: int, request: int) -> int:
    """Take a request out of the plan again; returns the tokens it gives back."""
    plan = a.plans[replica, slot]
    for place in range(plan.count):
        if a.entries[replica, slot, place].request != request:
            continue
        req = a.requests[request]
        tokens, sampled = a.entries[replica, slot, place].tokens, a.entries[replica, slot, place].sampled
        remove_from_sums(plan, req.computed, tokens, sampled, a.parameters[0].window)
        for later in range(place, plan.count):
            a.entries[replica, slot, later].request = a.entries[replica, slot, later + 1].request
            a.entries[replica, slot, later].tokens = a.entries[replica, slot, later + 1].tokens
            a.entries[replica, slot, later].sampled = a.entries[replica, slot, later + 1].sampled
        req.in_flight -= tokens
        return tokens
    return 0


@kernel
def victim_place(a: Any, replica: int) -> int:
    """Where in `running` the request stands that is preempted next: the last, or the least under priority."""
    last = a.replicas[replica].num_running - 1
    if a.parameters[0].by_priority == 0:
        return last
    worst = 0
    for place in range(1, last + 1):
        one, other = a.requests[a.running[replica, place]], a.requests[a.running[replica, worst]]
        if one.priority > other.priority or (one.priority == other.priority and one.arrival_s > other.arrival_s):
            worst = place
    return worst


@kernel
def remove_running(a: Any, replica: int, place: int) -> None:
    state = a.replicas[replica]
    state.num_running -= 1
    for later in range(place, state.num_running):
        a.running[replica, later] = a.running[replica, later + 1]


@kernel
def log_word(a: Any, word: int) -> None:
    a.log[a.cursor[0].log_size] = word
    a.cursor[0].log_size += 1


@kernel
def schedule_running(a: Any, replica: int, slot: int) -> Any:
    """Returns the budget left and how many were preempted."""
    p = a.parameters[0]
    state = a.replicas[replica]
    budget = p.max_num_batched_tokens
    num_preempted = 0
    index = 0
    while index < state.num_running and budget > 0:
        request = a.running[replica, index]
        req = a.requests[request]
        index += 1
        if req.computed < req.quiet_until:
            schedule_request(a, replica, slot, request, 1)
            budget -= 1
            continue
        tokens = want(a, replica, request, budget)
        if tokens == 0:  # nothing to compute now; the scan goes on
            continue
        num_tokens = req.computed + tokens
        if num_tokens > req.num_blocks * p.block_size:
            num_blocks = (num_tokens + p.block_size - 1) // p.block_size
            while num_blocks - req.num_blocks > state.num_free_blocks:
                place = victim_place(a, replica)
                victim = a.running[replica, place]
                remove_running(a, replica, place)
                if place < index - 1:  # it had its turn in this step
                    refund = unschedule(a, replica, slot, victim)
                    budget += refund
                    if refund > 0 or p.skipped_victim_shifts_scan == 1:
                        index -= 1
                preempt(a, replica, victim)
                num_preempted += 1
                if p.log_steps == 1:
                    log_word(a, victim)
                if victim == request:
                    break
            if req.status != RUNNING:
                break  # it preempted itself
            grow(a, replica, request, num_blocks)
        cache_blocks(a, replica, request, min(num_tokens, req.prompt + req.output))
        req.quiet_until = NONE
        if schedule_request(a, replica, slot, request, tokens) == 1:
            set_quiet_until(a, request)
        budget -= tokens
    return budget, num_preempted


# -- waiting requests


@kernel
def is_still_blocked(a: Any, replica: int, request: int) -> bool:
    """Whether the head of the queue, found not to fit earlier, cannot fit now either.

    Its deficit shrinks by at most one for each block freed, unless the first block it missed has been cached.
    """
    p = a.parameters[0]
    state = a.replicas[replica]
    if p.watermark_blocks > 0 or p.reserve_full_isl == 0:
        return False  # what must fit then changes from step to step
    if state.blocked_request != request or state.num_freed - state.freed_at_block >= state.blocked_deficit:
        return False
    if p.prefix_caching == 0 or state.blocked_miss_index == NONE:
        return True
    return (
        pool.find_cached(
            a.blocks, a.buckets, replica, state.blocked_miss_content, state.blocked_miss_index, p.bucket_mask
        )
        == NONE
    )


@kernel
def remember_blocked(a: Any, replica: int, request: int, deficit: int, miss_index: int, miss_content: int) -> None:
    state = a.replicas[replica]
    state.blocked_request = request
    state.blocked_deficit = deficit
    state.blocked_miss_index = miss_index
    state.blocked_miss_content = miss_content
    state.freed_at_block = state.num_freed


@kernel
def admit(a: Any, replica: int, request: int, budget: int) -> int:
    """Take the request's blocks for its next chunk; 0 if it does not fit."""
    p = a.parameters[0]
    state = a.replicas[replica]
    if is_still_blocked(a, replica, request):
        return 0
    req = a.requests[request]
    known = req.prompt + req.output
    row = a.free_rows[replica, state.num_free_rows - 1]
    hits, num_evictable, miss_index, miss_content = 0, 0, NONE, NONE
    if p.prefix_caching == 1:
        span = req.span_start
        for index in range((known - 1) // p.block_size):
            last_position = (index + 1) * p.block_size - 1
            while a.spans[span].end <= last_position:
                span += 1
            block = pool.find_cached(a.blocks, a.buckets, replica, a.spans[span].content, index, p.bucket_mask)
            if block == NONE:
                miss_index = index
                miss_content = a.spans[span].content
                break
            a.tables[row, index] = block
            num_evictable += a.blocks[block].ref_count == 0
            hits += 1
    hit_tokens = hits * p.block_size
    tokens = capped(a, replica, known - hit_tokens)
    if tokens > budget and p.chunked_prefill == 0:
        return 0
    tokens = min(tokens, budget)
    must_fit = hit_tokens + tokens
    if p.reserve_full_isl == 1:
        must_fit = max(must_fit, min(known, p.max_model_len))
    deficit = max((must_fit + p.block_size - 1) // p.block_size - hits, 0) + num_evictable - state.num_free_blocks
    if state.num_running > 0:
        deficit += p.watermark_blocks
    if deficit > 0:
        remember_blocked(a, replica, request, deficit, miss_index, miss_content)
        return 0
    for index in range(hits):
        pool.touch(a.blocks, a.replicas, replica, a.tables[row, index])
    state.blocked_request = NONE
    state.num_free_rows -= 1
    req.row = row
    req.num_blocks = hits
    req.cached_blocks = hits
    req.computed = hit_tokens
    req.quiet_until = NONE
    if req.cached_tokens == NONE:
        req.cached_tokens = hit_tokens
        a.totals[replica].queried_tokens += known
        a.totals[replica].hit_tokens += hit_tokens
    grow(a, replica, request, (hit_tokens + tokens + p.block_size - 1) // p.block_size)
    cache_blocks(a, replica, request, hit_tokens + tokens)
    return tokens


@kernel
def schedule_waiting(a: Any, replica: int, slot: int, budget: int, now_s: float) -> int:
    """Returns why the scan stopped."""
    p = a.parameters[0]
    state = a.replicas[replica]
    request = state.waiting_head
    while request != NONE:
        if budget == 0:
            return BLOCKED_BY_TOKEN_BUDGET
        if state.num_running >= p.max_num_seqs:
            return BLOCKED_BY_MAX_NUM_SEQS
        following = a.requests[request].next
        if a.requests[request].stale > 0:  # resuming now could sample a token twice: skipped, not blocking
            request = following
            continue
        tokens = admit(a, replica, request, budget)
        if tokens == 0:
            return BLOCKED_BY_KV_BLOCKS
        remove_waiting(a, replica, request)
        req = a.requests[request]
        req.status = RUNNING
        if req.scheduled_s != req.scheduled_s:  # NaN: first time
            req.scheduled_s = now_s
        a.running[replica, state.num_running] = request
        state.num_running += 1
        schedule_request(a, replica, slot, request, tokens)
        budget -= tokens
        request = following
    return NOT_BLOCKED


@kernel
def log_step(a: Any, replica: int, slot: int, num_preempted: int) -> None:
    """Append `[scheduled pairs] count preempted free running waiting step replica -3`: read from its end."""
    state = a.replicas[replica]
    plan = a.plans[replica, slot]
    for index in range(plan.count):
        log_word(a, a.entries[replica, slot, index].request)
        log_word(a, a.entries[replica, slot, index].tokens)
    log_word(a, plan.count)
    log_word(a, num_preempted)
    log_word(a, state.num_free_blocks)
    log_word(a, state.num_running)
    log_word(a, state.num_waiting)
    log_word(a, state.step)
    log_word(a, replica)
    log_word(a, -3)


@kernel
def schedule(a: Any, replica: int, slot: int, now_s: float) -> int:
    """Decide one step into plan `slot`; returns how many requests were preempted."""
    state = a.replicas[replica]
    state.step += 1
    clear_sums(a.plans[replica, slot])
    state.threshold = a.parameters[0].long_prefill_token_threshold
    if state.num_running + state.num_waiting <= 1 and a.parameters[0].threshold_spares_lone_request == 1:
        state.threshold = 0  # nobody to starve
    budget, num_preempted = schedule_running(a, replica, slot)
    state.block_reason = NOT_BLOCKED
    if num_preempted == 0:
        state.block_reason = schedule_waiting(a, replica, slot, budget, now_s)
    elif state.num_waiting > 0:
        state.block_reason = BLOCKED_BY_KV_BLOCKS
    if a.parameters[0].log_steps == 1:
        log_step(a, replica, slot, num_preempted)
    return num_preempted
