"""One step's decisions, compiled: as in `conformance.reference.vllm.scheduler.Scheduler`."""

from simulator.core.jit import kernel
from simulator.core.layout import BLOCKED_BY_KV_BLOCKS, NONE, NOT_BLOCKED, OFFLOADING, RUNNING
from simulator.core.state import Arrays
from simulator.core.step_log import log_step, log_word
from simulator.core.types import Pool, Replica, Running
from simulator.core.vllm import (
    adapters,
    admission,
    blocks,
    decode_fast_forward,
    encoder,
    plan,
    pool,
    prefill_cadence,
    queue,
    states,
)
from simulator.core.vllm.host_tier import holding, offload


@kernel
def want(a: Arrays, replica: int, request: int, budget: int) -> int:
    p = a.pools[a.replicas[replica].pool]
    req = a.requests[request]
    if req.placeholders > 0 and req.computed + 2 - req.placeholders >= req.prompt + req.max_tokens:
        return 0  # the token that ends it is in flight already
    if p.decode_stagger > 0 and a.replicas[replica].step < req.next_decode_step:
        return 0
    wanted = plan.capped(
        a.replicas[replica].threshold, req.prompt + req.output + req.drafts + req.placeholders - req.computed
    )
    wanted = min(wanted, budget, p.max_model_len - 1 - req.computed)
    return wanted if p.num_states == 0 else states.up_to_state(p, req, req.computed, wanted)


@kernel
def next_tokens(a: Arrays, replica: int, request: int, budget: int) -> int:
    """How many tokens a running request computes in this step; without any its adapter may not count."""
    p = a.pools[a.replicas[replica].pool]
    tokens = want(a, replica, request, budget)
    if p.prefill_interval > 1 and a.replicas[replica].defers == 1 and a.requests[request].prefilling == 1:
        tokens = 0
    if tokens > 0 and p.encoder_budget > 0:
        tokens = encoder.plan(a, replica, request, a.requests[request].computed, tokens)
    if tokens == 0 and p.max_loras > 0 and p.idle_adapters_count == 0:
        adapters.set_aside(a, replica, request)
    return tokens


@kernel
def set_quiet_until(a: Arrays, replica: int, request: int) -> None:
    """How far a request that was just sampled can go on by one token per step, nothing else happening to it."""
    p = a.pools[a.replicas[replica].pool]
    if p.takes_quiet_steps == 0:
        return
    if p.encoder_budget > 0 and a.images_of[request].num_held > 0:
        return  # the end of its prompt's step frees them
    req = a.requests[request]
    req.quiet_until = decode_fast_forward.quiet_until(req, p)
    if p.num_windows > 0:
        req.quiet_until = min(req.quiet_until, a.skip_at[req.row])


@kernel
def preempt(a: Arrays, replica: int, request: int) -> None:
    if a.pools[a.replicas[replica].pool].connector == OFFLOADING:
        offload.preempt(a, replica, request)
    else:
        blocks.release(a, replica, request)
    if a.pools[a.replicas[replica].pool].max_loras > 0:
        adapters.leave(a, replica, request)
    if a.pools[a.replicas[replica].pool].encoder_budget > 0:
        encoder.free(a, replica, request)
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
def victim_place(a: Arrays, replica: int) -> int:
    """Where in `running` the request stands that is preempted next: the last, or the least under priority."""
    last = a.replicas[replica].num_running - 1
    if a.pools[a.replicas[replica].pool].by_priority == 0:
        return last
    worst = 0
    for place in range(1, last + 1):
        one, other = a.requests[a.running[replica, place]], a.requests[a.running[replica, worst]]
        if one.priority > other.priority or (one.priority == other.priority and one.arrival_s > other.arrival_s):
            worst = place
    return worst


@kernel
def remove_running(state: Replica, running: Running, replica: int, place: int) -> None:
    state.num_running -= 1
    for later in range(place, state.num_running):
        running[replica, later] = running[replica, later + 1]


@kernel
def make_room(a: Arrays, replica: int, slot: int, place: int, num_blocks: int) -> tuple[int, int, int]:
    """Preempt until the request at `place` in `running` can have `num_blocks` of the smallest: itself, if need be.

    Returns the budget that comes back, by how many places `running` moves up, and how many were preempted.
    """
    p = a.pools[a.replicas[replica].pool]
    state = a.replicas[replica]
    request = a.running[replica, place]
    missing = blocks.num_missing(a, p, request, num_blocks)
    refund, shift, num_preempted = 0, 0, 0
    while missing > state.num_free_blocks:
        worst = victim_place(a, replica)
        victim = a.running[replica, worst]
        if p.defers_frees == 1 and not offload.may_free(a, replica, victim, plan.tokens_of(a, replica, slot, victim)):
            break
        remove_running(state, a.running, replica, worst)
        if worst < place - shift:  # it had its turn in this step
            tokens = plan.unschedule(a, replica, slot, victim)
            if tokens > 0:
                refund += tokens + p.draft_slots
            if tokens > 0 or p.skipped_victim_shifts_scan == 1:
                shift += 1
        preempt(a, replica, victim)
        num_preempted += 1
        if a.cursor[0].log_steps == 1:
            log_word(a.cursor[0], a.log, victim)
        if victim == request:
            break
    return refund, shift, num_preempted


@kernel
def schedule_running(a: Arrays, replica: int, slot: int) -> tuple[int, int, int]:
    """Returns the budget left, how many were preempted, and whether a prefill was scheduled."""
    p = a.pools[a.replicas[replica].pool]
    state = a.replicas[replica]
    budget = p.token_budget - state.num_quiet
    num_preempted, any_prefills = 0, 0
    index = 0
    while index < state.num_running - state.num_quiet and budget > p.draft_slots:
        num_quiet = plan.schedule_quiet_run(a, replica, slot, index, budget - p.draft_slots)
        index += num_quiet
        budget -= num_quiet
        if index == state.num_running - state.num_quiet or budget <= p.draft_slots:
            break
        request = a.running[replica, index]
        req = a.requests[request]
        index += 1
        tokens = next_tokens(a, replica, request, budget - p.draft_slots)
        if tokens == 0:  # nothing to compute now; the scan goes on
            continue
        num_tokens, num_cached = req.computed + tokens, req.cached_blocks
        if p.num_windows > 0:
            decode_fast_forward.free_skipped(a, replica, request)
        if p.num_states > 0:
            req.checkpoint = states.leaves_checkpoint(p, req, req.computed, num_tokens)
        num_slots = min(num_tokens + p.lookahead_tokens, p.max_model_len)
        if num_slots > req.num_blocks * p.block_size:
            blocks.look_ahead(a, replica, request, num_tokens)
            num_blocks = blocks.num_blocks_of(num_slots, p.block_size)
            refund, shift, preempted = make_room(a, replica, slot, index - 1, num_blocks)
            budget += refund
            index -= shift
            num_preempted += preempted
            if req.status != RUNNING:  # it preempted itself
                if p.scan_goes_past_self_preemption == 0:
                    break
                index -= 1
                continue
            if p.defers_frees == 1 and blocks.num_missing(a, p, request, num_blocks) > state.num_free_blocks:
                break  # a step in flight writes the blocks that could be had
            blocks.grow(a, replica, request, num_blocks)
        blocks.cache(a, replica, request, num_tokens)
        if p.num_states > 0:
            states.note_fresh(a, replica, request, num_cached)
        req.quiet_until = NONE
        any_prefills = max(any_prefills, req.prefilling)
        drafts = max(min(num_tokens - req.prompt - req.output - req.placeholders, req.drafts), 0)
        sampled = plan.schedule_request(a, replica, slot, request, tokens, drafts)
        plan.after_scheduling(a, replica, request, sampled)
        if sampled == 1:
            set_quiet_until(a, replica, request)
        budget -= tokens + p.draft_slots
    return budget, num_preempted, any_prefills


@kernel
def new_step(a: Arrays, p: Pool, replica: int) -> None:
    """Begin what counts anew in each step."""
    if p.encoder_budget > 0:
        encoder.new_step(a, replica)
    if p.prefill_interval > 1:
        prefill_cadence.open_step(a, replica)


@kernel
def schedule(a: Arrays, replica: int, slot: int, now_s: float) -> int:
    """Decide one step into plan `slot`; returns how many requests were preempted."""
    p = a.pools[a.replicas[replica].pool]
    state = a.replicas[replica]
    is_enough, has_requests = decode_fast_forward.open_step(a, replica), state.num_running + state.num_waiting > 0
    state.step += 1
    state.num_fresh = 0
    new_step(a, p, replica)
    decode_fast_forward.schedule_quiet(state, a.plans[replica, slot])
    state.threshold = p.long_prefill_token_threshold
    if state.num_running + state.num_waiting <= 1 and p.threshold_spares_lone_request == 1:
        state.threshold = 0  # nobody to starve
    budget, num_preempted, any_prefills = schedule_running(a, replica, slot)
    if is_enough:
        decode_fast_forward.pass_before(a, replica, state.num_admitted)
        decode_fast_forward.close_step(state, p, a.running, a.requests, a.decode_fast_forward, replica)
    state.block_reason = NOT_BLOCKED
    if num_preempted == 0 and p.connector > 0:
        state.block_reason = holding.schedule_waiting(a, replica, slot, budget, now_s)
    elif num_preempted == 0:
        state.block_reason = admission.schedule_waiting(a, replica, slot, budget, any_prefills, now_s)
    elif state.num_waiting > 0:
        state.block_reason = BLOCKED_BY_KV_BLOCKS
    if p.prefill_interval > 1:
        prefill_cadence.close_step(a, replica, slot, num_preempted, any_prefills)
    if p.max_loras > 0:
        adapters.bring_back(a, replica)
    if p.decode_stagger > 0:
        plan.stagger(a, replica, slot)
    if p.connector > 0:
        offload.plan_transfers(a, replica, slot)
    decode_fast_forward.look_ahead(a, replica)
    if p.in_segments == 0:
        pool.look_ahead(state, p, a.blocks, a.free_queue, a.buckets, replica)
    if a.cursor[0].log_steps == 1 and has_requests:
        log_step(a, replica, slot, num_preempted, state.num_running)
    return num_preempted
