"""One step's decisions, compiled: the twin of `simulator.reference.Scheduler`."""

from typing import Any

from simulator.core import blocks, pool, queue
from simulator.core.jit import kernel
from simulator.core.latency import add_to_sums, clear_sums, remove_from_sums
from simulator.core.layout import (
    BLOCKED_BY_KV_BLOCKS,
    BLOCKED_BY_MAX_NUM_SEQS,
    BLOCKED_BY_TOKEN_BUDGET,
    NONE,
    NOT_BLOCKED,
    RUNNING,
)

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
    if p.decode_stagger > 0 and a.replicas[replica].step < req.next_decode_step:
        return 0
    wanted = capped(a, replica, req.prompt + req.output + req.drafts + req.placeholders - req.computed)
    return min(wanted, budget, p.max_model_len - 1 - req.computed)


@kernel
def set_quiet_until(a: Any, request: int) -> None:
    """How far a request that was just sampled can go on by one token per step, nothing else happening to it."""
    p = a.parameters[0]
    if p.takes_quiet_steps == 0:
        return
    req = a.requests[request]
    quiet_until = min(req.num_blocks * p.block_size, min(req.prompt + req.max_tokens, p.max_model_len) - 3)
    if p.prefix_caching == 1:
        quiet_until = min(quiet_until, (req.cached_blocks + 1) * p.block_size - 1)
    if p.num_windows > 0:
        quiet_until = min(quiet_until, a.skip_at[req.row])
    req.quiet_until = quiet_until


@kernel
def preempt(a: Any, replica: int, request: int) -> None:
    blocks.release(a, replica, request)
    req = a.requests[request]
    req.computed = 0
    req.quiet_until = NONE
    req.stale = req.in_flight
    req.placeholders = 0
    req.drafts = 0
    req.preemptions += 1
    a.totals[replica].preemptions += 1
    queue.enqueue_preempted(a, replica, request)


@kernel
def schedule_request(a: Any, replica: int, slot: int, request: int, tokens: int, drafts: int) -> int:
    """Enter a request into the plan, its counters advancing now, as in vLLM; returns 1 if the step samples it."""
    p = a.parameters[0]
    req = a.requests[request]
    req.computed += tokens
    req.in_flight += tokens
    sampled = 1 if req.computed >= req.prompt + req.output + req.placeholders else 0
    if sampled == 1 and p.asynchronous == 1:
        req.placeholders += 1 + drafts
    plan = a.plans[replica, slot]
    entry = a.entries[replica, slot, plan.count]
    entry.request = request
    entry.tokens = tokens
    entry.sampled = sampled
    if p.speculative_tokens > 0:
        entry.drafts = drafts
        entry.padded = 0
    add_to_sums(plan, req.computed, tokens, sampled, drafts, p.window)
    return sampled


@kernel
def schedule_quietly(a: Any, replica: int, slot: int, request: int) -> None:
    """`schedule_request` for one token that is sampled."""
    p = a.parameters[0]
    req = a.requests[request]
    req.computed += 1
    req.in_flight += 1
    req.placeholders += p.asynchronous
    plan = a.plans[replica, slot]
    entry = a.entries[replica, slot, plan.count]
    entry.request = request
    entry.tokens = 1
    entry.sampled = 1
    add_to_sums(plan, req.computed, 1, 1, 0, p.window)


@kernel
def after_scheduling(a: Any, request: int, sampled: int) -> None:
    """What the next steps need to know of one that may draft."""
    p = a.parameters[0]
    req = a.requests[request]
    req.prefilling = 1 - sampled
    req.drafts = 0
    if sampled == 1 and p.asynchronous == 1:
        req.drafts = p.speculative_tokens


@kernel
def stagger(a: Any, replica: int, slot: int) -> None:
    """Send what the step samples around the pipeline: it is decoded again when it has come back."""
    step = a.replicas[replica].step
    for place in range(a.plans[replica, slot].count):
        entry = a.entries[replica, slot, place]
        if entry.sampled == 1:
            a.requests[entry.request].next_decode_step = step + a.parameters[0].decode_stagger


@kernel
def unschedule(a: Any, replica: int, slot: int, request: int) -> int:
    """Take a request out of the plan again; returns the tokens it gives back."""
    plan = a.plans[replica, slot]
    for place in range(plan.count):
        if a.entries[replica, slot, place].request != request:
            continue
        req = a.requests[request]
        entry = a.entries[replica, slot, place]
        tokens = entry.tokens
        remove_from_sums(plan, req.computed, tokens, entry.sampled, entry.drafts, a.parameters[0].window)
        for later in range(place, plan.count):
            into, source = a.entries[replica, slot, later], a.entries[replica, slot, later + 1]
            into.request = source.request
            into.tokens = source.tokens
            into.sampled = source.sampled
            into.drafts = source.drafts
            into.padded = source.padded
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
def make_room(a: Any, replica: int, slot: int, place: int, num_blocks: int) -> Any:
    """Preempt until the request at `place` in `running` can have `num_blocks` per group: itself, if need be.

    Returns the budget that comes back, by how many places `running` moves up, and how many were preempted.
    """
    p = a.parameters[0]
    state = a.replicas[replica]
    request = a.running[replica, place]
    missing = (num_blocks - a.requests[request].num_blocks) * p.num_groups
    refund, shift, num_preempted = 0, 0, 0
    while missing > state.num_free_blocks:
        worst = victim_place(a, replica)
        victim = a.running[replica, worst]
        remove_running(a, replica, worst)
        if worst < place - shift:  # it had its turn in this step
            tokens = unschedule(a, replica, slot, victim)
            if tokens > 0:
                refund += tokens + p.draft_slots
            if tokens > 0 or p.skipped_victim_shifts_scan == 1:
                shift += 1
        preempt(a, replica, victim)
        num_preempted += 1
        if p.log_steps == 1:
            log_word(a, victim)
        if victim == request:
            break
    return refund, shift, num_preempted


@kernel
def schedule_running(a: Any, replica: int, slot: int) -> Any:
    """Returns the budget left, how many were preempted, and whether a prefill was scheduled."""
    p = a.parameters[0]
    state = a.replicas[replica]
    budget = p.token_budget
    num_preempted, any_prefills = 0, 0
    index = 0
    while index < state.num_running and budget > p.draft_slots:
        request = a.running[replica, index]
        req = a.requests[request]
        index += 1
        if req.computed < req.quiet_until:
            schedule_quietly(a, replica, slot, request)
            budget -= 1
            continue
        tokens = want(a, replica, request, budget - p.draft_slots)
        if tokens == 0:  # nothing to compute now; the scan goes on
            continue
        num_tokens = req.computed + tokens
        if p.num_windows > 0:
            blocks.free_skipped(a, replica, request)
        num_slots = min(num_tokens + p.lookahead_tokens, p.max_model_len)
        if num_slots > req.num_blocks * p.block_size:
            num_blocks = blocks.num_blocks_of(num_slots, p.block_size)
            refund, shift, preempted = make_room(a, replica, slot, index - 1, num_blocks)
            budget += refund
            index -= shift
            num_preempted += preempted
            if req.status != RUNNING:
                break  # it preempted itself
            blocks.grow(a, replica, request, num_blocks)
        blocks.cache(a, replica, request, min(num_tokens, req.prompt + req.output))
        req.quiet_until = NONE
        any_prefills = max(any_prefills, req.prefilling)
        drafts = max(min(num_tokens - req.prompt - req.output - req.placeholders, req.drafts), 0)
        sampled = schedule_request(a, replica, slot, request, tokens, drafts)
        after_scheduling(a, request, sampled)
        if sampled == 1:
            set_quiet_until(a, request)
        budget -= tokens + p.draft_slots
    return budget, num_preempted, any_prefills


# -- waiting requests


@kernel
def is_still_blocked(a: Any, replica: int, request: int) -> bool:
    """Whether the head of the queue, found not to fit earlier, cannot fit now either.

    Its deficit shrinks by at most one for each block freed, unless the first block it missed has been cached.
    """
    p = a.parameters[0]
    state = a.replicas[replica]
    if p.watermark_blocks > 0 or p.reserve_full_isl == 0 or p.num_windows > 0 or p.speculative_tokens > 0:
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
def remember_blocked(a: Any, replica: int, request: int, deficit: int, hits: int, limit: int) -> None:
    p = a.parameters[0]
    state = a.replicas[replica]
    miss = hits + 1 if hits > 0 and p.drops_last_hit == 1 else hits
    state.blocked_request = request
    state.blocked_deficit = deficit
    state.freed_at_block = state.num_freed
    state.blocked_miss_index = NONE
    if p.prefix_caching == 0 or miss >= limit:
        return
    span = a.requests[request].span_start
    while a.spans[span].end < (miss + 1) * p.block_size:
        span += 1
    state.blocked_miss_index = miss
    state.blocked_miss_content = a.spans[span].content


@kernel
def padded_tokens(a: Any, hit_tokens: int, budget: int, any_runs: bool) -> int:
    """The width of a drafting step, to which a request with one token left is padded; 1: it is not, 0: it must wait."""
    p = a.parameters[0]
    if not (any_runs or (hit_tokens > 0 and p.prefix_hit_joins_drafting == 1)):
        return 1
    width = 1 + p.speculative_tokens
    if hit_tokens + width + p.prefix_hit_joins_drafting > p.max_model_len:
        return p.prefix_hit_joins_drafting  # later releases do not pad there, earlier ones wait
    return width if width <= budget else 0


@kernel
def admit(a: Any, replica: int, slot: int, request: int, budget: int, any_runs: bool, any_prefills: int) -> int:
    """Take the request's blocks for its next chunk, entering it into the plan; 0 if it does not fit."""
    p = a.parameters[0]
    state = a.replicas[replica]
    if is_still_blocked(a, replica, request):
        return 0
    req = a.requests[request]
    known = req.prompt + req.output
    row = a.free_rows[replica, state.num_free_rows - 1]
    hits = 0
    if p.prefix_caching == 1:
        hits = blocks.find_hit(a, replica, request, row, known - 1)
    hit_tokens = hits * p.block_size
    tokens = known - hit_tokens
    padded = 0
    if p.speculative_tokens > 0 and tokens == 1 and any_prefills == 0:
        tokens = padded_tokens(a, hit_tokens, budget, any_runs)
        if tokens == 0:
            return 0
        padded = 1 if tokens > 1 else 0
    tokens = capped(a, replica, tokens)
    if tokens > budget and p.chunked_prefill == 0:
        return 0
    tokens = min(tokens, budget)
    full_tokens = min(known, p.max_model_len) if p.reserve_full_isl == 1 else 0
    num_slots = min(hit_tokens + tokens + p.lookahead_tokens, p.max_model_len)
    deficit = blocks.deficit(a, replica, row, hits, full_tokens, num_slots)
    if deficit > 0:
        remember_blocked(a, replica, request, deficit, hits, (known - 1) // p.block_size)
        return 0
    blocks.hold_hits(a, replica, request, row, hits)
    state.blocked_request = NONE
    state.num_free_rows -= 1
    req.computed = hit_tokens
    req.quiet_until = NONE
    if req.cached_tokens == NONE:
        req.cached_tokens = hit_tokens
        a.totals[replica].queried_tokens += known
        a.totals[replica].hit_tokens += hit_tokens
    blocks.grow(a, replica, request, blocks.num_blocks_of(num_slots, p.block_size))
    blocks.cache(a, replica, request, min(hit_tokens + tokens, known))
    place = a.plans[replica, slot].count
    sampled = schedule_request(a, replica, slot, request, tokens, p.speculative_tokens if padded == 1 else 0)
    if padded == 1:
        a.entries[replica, slot, place].padded = 1
    after_scheduling(a, request, sampled)
    return tokens


@kernel
def schedule_waiting(a: Any, replica: int, slot: int, budget: int, any_prefills: int, now_s: float) -> int:
    """Returns why the scan stopped."""
    p = a.parameters[0]
    state = a.replicas[replica]
    any_runs = a.plans[replica, slot].count > 0
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
        tokens = admit(a, replica, slot, request, budget - p.draft_slots, any_runs, any_prefills)
        if tokens == 0:
            return BLOCKED_BY_KV_BLOCKS
        queue.remove_waiting(a, replica, request)
        req = a.requests[request]
        req.status = RUNNING
        if req.scheduled_s != req.scheduled_s:  # NaN: first time
            req.scheduled_s = now_s
        a.running[replica, state.num_running] = request
        state.num_running += 1
        budget -= tokens + p.draft_slots
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
    budget, num_preempted, any_prefills = schedule_running(a, replica, slot)
    state.block_reason = NOT_BLOCKED
    if num_preempted == 0:
        state.block_reason = schedule_waiting(a, replica, slot, budget, any_prefills, now_s)
    elif state.num_waiting > 0:
        state.block_reason = BLOCKED_BY_KV_BLOCKS
    if a.parameters[0].decode_stagger > 0:
        stagger(a, replica, slot)
    if a.parameters[0].log_steps == 1:
        log_step(a, replica, slot, num_preempted)
    return num_preempted
