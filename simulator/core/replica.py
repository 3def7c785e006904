"""What happens when a replica's step is over."""

from simulator.core import delivery, waiting
from simulator.core.draws import accepted_drafts
from simulator.core.gateway import queue as gateway
from simulator.core.heap import set_next
from simulator.core.jit import kernel, rare_kernel
from simulator.core.latency import step_time_s
from simulator.core.layout import (
    AT_GATEWAY,
    BARELY_LESS,
    CALENDAR_STEPS,
    FINISHED,
    HELD,
    NONE,
    PREFILL,
    RUNNING,
    SENT,
    SGLANG,
    WAITING,
)
from simulator.core.occupancy import account, num_rounds
from simulator.core.routing import views
from simulator.core.sglang import scheduler as sglang
from simulator.core.state import Arrays
from simulator.core.types import Pool, Replica, Requests, Running
from simulator.core.vllm import adapters, blocks, decode_fast_forward, encoder, ends, scheduler
from simulator.core.vllm.disaggregation import writing
from simulator.core.vllm.host_tier import holding, offload


@kernel
def verify(a: Arrays, replica: int, request: int, drafts: int, padded: int, stale: bool) -> int:
    """How many drafts were right; the others are taken back, unless the request has started over."""
    pool = a.replicas[replica].pool
    req = a.requests[request]
    accepted = 0 if padded == 1 else accepted_drafts(a, pool, request, req.output, drafts)
    if not stale:
        req.computed -= drafts - accepted
        if a.pools[pool].asynchronous == 1:
            req.placeholders -= drafts - accepted
    return accepted


@kernel
def deliver_tokens(a: Arrays, replica: int, request: int, tokens: int, stale: bool) -> bool:
    """Append sampled tokens up to the one that ends the request; whether there is one."""
    p = a.pools[a.replicas[replica].pool]
    req = a.requests[request]
    ends_at = min(req.max_tokens, p.max_model_len - req.prompt)
    tokens = min(tokens, ends_at - req.output)
    req.output += tokens
    if p.asynchronous == 1 and not stale:
        req.placeholders -= tokens
    if p.caches_on_delivery == 1 and req.status == RUNNING:
        blocks.cache(a, replica, request, req.prompt + req.output - 1)  # all but the latest token are computed
    return req.output >= ends_at


@kernel
def finish(a: Arrays, replica: int, request: int, now_s: float) -> None:
    """Free a finished request; `complete` takes it out of `running`."""
    req = a.requests[request]
    if a.pools[a.replicas[replica].pool].role == PREFILL:
        req.status = AT_GATEWAY
        offload.end(a, replica, request, 0)
        delivery.log_finished(a, request)
        return
    if a.pools[a.replicas[replica].pool].encoder_budget > 0:
        encoder.free(a, replica, request)
    if a.pools[a.replicas[replica].pool].connector > 0:
        req.status = FINISHED
        offload.end(a, replica, request, 0)
    elif req.status == RUNNING:
        delivery.look_ahead(a, request)
        if a.pools[a.replicas[replica].pool].max_loras > 0:
            adapters.leave(a, replica, request)
        blocks.release(a, replica, request)
    else:
        waiting.remove(a, replica, request)
    delivery.finish(a, request, now_s)


@kernel
def abort(a: Arrays, request: int, status: int, now_s: float) -> None:
    """Take out a request whose client has gone (vLLM: `finish_requests`); a step in flight goes on without it."""
    take_out(a, request, status, now_s)
    if a.handovers.shape[0] > 0 and a.sides[0].pushes == 1:
        take_out_prefill(a, request, status, now_s)


@rare_kernel
def take_out_prefill(a: Arrays, request: int, status: int, now_s: float) -> None:
    """The same at its prefill engine, where both have it at once."""
    row = request + writing.num_rows(a)
    if WAITING <= a.requests[row].status <= SENT:
        take_out(a, row, status, now_s)
        a.cursor[0].num_finished -= 1  # it is one request
    writing.leave(a, request)


@kernel
def take_out(a: Arrays, request: int, status: int, now_s: float) -> None:
    """Off its engine, or out of the gateway's queue."""
    req = a.requests[request]
    if req.status <= AT_GATEWAY:
        if req.status == HELD:
            gateway.let_go(a, request, now_s)
        delivery.end(a, request, status, now_s)
        return
    replica, has_entered = req.replica, req.status != SENT
    account(a, replica, now_s)
    if has_entered and a.pools[a.replicas[replica].pool].engine == SGLANG:
        sglang.abort(a, request, status, now_s)
        return
    if has_entered and a.pools[a.replicas[replica].pool].encoder_budget > 0:
        encoder.free(a, replica, request)
    if req.status == RUNNING:
        if req.quiet_since > 0:
            decode_fast_forward.wake(a, replica, CALENDAR_STEPS)
        place = 0
        while a.running[replica, place] != request:
            place += 1
        scheduler.remove_running(a.replicas[replica], a.running, replica, place)
        if a.pools[a.replicas[replica].pool].max_loras > 0:
            adapters.leave(a, replica, request)
        req.quiet_until = NONE
    elif req.status == WAITING:
        holding.leave_queue(a, replica, request)
    req.status = status
    if a.pools[a.replicas[replica].pool].connector > 0 and has_entered:
        offload.end(a, replica, request, 1)
    elif req.row != NONE:
        blocks.release(a, replica, request)
    views.note_ended(a, request)
    delivery.end(a, request, status, now_s)


@kernel
def gets_nothing(a: Arrays, p: Pool, replica: int, request: int, sampled: int) -> bool:
    """Whether a step gives a request no token, or turned out to be one too many; images that it computed are let go."""
    has_ended = a.requests[request].status >= FINISHED
    if p.encoder_budget > 0 and not has_ended and a.images_of[request].num_held > 0:
        encoder.free_computed(a, replica, request)
    return bool(sampled == 0 or has_ended)


@kernel
def complete(a: Arrays, replica: int, now_s: float) -> int:
    """Process the output of the oldest plan. Returns how many finished; they are its entries with tokens < 0."""
    state = a.replicas[replica]
    slot = state.oldest_plan
    if a.pools[state.pool].engine == SGLANG:
        return complete_batch(a, replica, now_s)
    if a.pools[state.pool].connector > 0 and not begin_to_complete(a, replica):
        return 0
    previous_s = state.last_completion_s
    p = a.pools[a.replicas[replica].pool]
    asynchronous = p.asynchronous
    num_finished, num_steady = 0, a.plans[replica, slot].num_quiet
    for index in range(a.plans[replica, slot].count - num_steady):
        entry = a.entries[replica, slot, index]
        request = entry.request
        req = a.requests[request]
        req.in_flight -= entry.tokens
        if entry.sampled == 1 and req.computed <= req.quiet_until and req.last_token_s == previous_s:
            req.output += 1
            req.placeholders -= asynchronous
            req.last_token_s = now_s
            num_steady += 1
            continue
        stale = req.stale > 0
        if stale:
            req.stale -= entry.tokens
        if gets_nothing(a, p, replica, request, entry.sampled):
            continue
        if stale and p.drops_stale == 1:
            continue
        num_steady += delivery.note_time(a, request, now_s, previous_s)
        tokens = 1
        if entry.drafts > 0:
            tokens += verify(a, replica, request, entry.drafts, entry.padded, stale)
        if deliver_tokens(a, replica, request, tokens, stale):
            finish(a, replica, request, now_s)
            entry.tokens = -1
            num_finished += 1
        elif asynchronous == 0:
            req.drafts = p.speculative_tokens
    if num_steady > 0:
        delivery.record_gaps(a, replica, now_s - previous_s, num_steady)
    if num_finished > 0:
        drop_finished(state, a.running, a.requests, replica)
    state.last_completion_s = now_s
    state.completed_step = a.plans[replica, slot].step
    close_plan(a, replica, slot)
    return num_finished


@kernel
def complete_batch(a: Arrays, replica: int, now_s: float) -> int:
    """The same for SGLang."""
    state = a.replicas[replica]
    num_finished = sglang.complete(a, replica, now_s)
    state.last_completion_s = now_s
    leave_pipeline(state, a.pools[state.pool].plans_in_flight)
    return int(num_finished)


@kernel
def close_plan(a: Arrays, replica: int, slot: int) -> None:
    """Drop the oldest plan, with the empty ones behind it; with a connector these have more to tell."""
    state = a.replicas[replica]
    p = a.pools[state.pool]
    if p.connector > 0:
        offload.take_in(a, replica, slot)
    leave_pipeline(state, p.plans_in_flight)
    while p.connector == 0 and state.num_plans > 0 and a.plans[replica, state.oldest_plan].count == 0:
        leave_pipeline(state, p.plans_in_flight)


@kernel
def begin_to_complete(a: Arrays, replica: int) -> bool:
    """Whether the oldest step of an engine with a connector is over, and had work."""
    if a.tiers[replica].is_blocking == 0:
        return False  # it looks at its transfers again
    if a.plans[replica, a.replicas[replica].oldest_plan].count == 0:
        complete_empty(a, replica)
        return False
    offload.step_is_over(a, replica)
    return True


@kernel
def complete_empty(a: Arrays, replica: int) -> None:
    """The oldest step of an engine with a connector had no work: it tells of transfers alone."""
    state = a.replicas[replica]
    offload.take_in(a, replica, state.oldest_plan)
    a.tiers[replica].num_empty_plans -= 1
    leave_pipeline(state, a.pools[state.pool].plans_in_flight)


@kernel
def leave_pipeline(state: Replica, plans_in_flight: int) -> None:
    """Drop the oldest plan, which is over."""
    state.num_plans -= 1
    state.oldest_plan += 1
    if state.oldest_plan == plans_in_flight:
        state.oldest_plan = 0


@kernel
def drop_finished(state: Replica, running: Running, requests: Requests, replica: int) -> None:
    kept = 0
    for index in range(state.num_running - state.num_quiet):
        request = running[replica, index]
        if requests[request].status == RUNNING:
            running[replica, kept] = request
            kept += 1
    state.num_running = kept + state.num_quiet


@kernel
def decide_step(a: Arrays, replica: int, now_s: float) -> int:
    """Decide a step while others may be in flight, as vLLM's batch queue does. Returns its slot, or NONE.

    An empty step waits in the queue behind the one before it, and is over with it. With none in flight it is dropped,
    and vLLM decides again, which helps where the empty step freed blocks by preempting: one of a server's ranks, with
    the next step of the others.
    """
    p = a.pools[a.replicas[replica].pool]
    state = a.replicas[replica]
    while state.num_plans < p.plans_in_flight and state.num_running + state.num_waiting > 0:
        slot = state.oldest_plan + state.num_plans
        if slot >= p.plans_in_flight:
            slot -= p.plans_in_flight
        num_preempted = scheduler.schedule(a, replica, slot, now_s)
        if a.plans[replica, slot].count > 0 or state.num_plans > 0:
            state.num_plans += 1
            return slot
        if num_preempted == 0 or p.ranks > 1:
            break
    return NONE


@kernel
def decide_batch(a: Arrays, replica: int, now_s: float) -> int:
    """The same for SGLang, whose empty batches are dropped."""
    slot = next_batch(a, replica)
    if slot == NONE:
        return NONE
    sglang.schedule(a, replica, slot, now_s)
    return keep_batch(a, replica, slot)


@kernel
def next_batch(a: Arrays, replica: int) -> int:
    """The slot of a batch that may be decided now; NONE: the pipeline is full, or nobody is there."""
    state = a.replicas[replica]
    p = a.pools[state.pool]
    if state.num_plans == p.plans_in_flight:
        return NONE
    if state.num_running + state.num_waiting == 0:
        if state.num_plans == 0 and p.ranks == 1:
            sglang.go_idle(a, replica)
        return NONE
    return int((state.oldest_plan + state.num_plans) % p.plans_in_flight)


@kernel
def keep_batch(a: Arrays, replica: int, slot: int) -> int:
    """The slot of a batch that was decided; NONE of an empty one."""
    if a.plans[replica, slot].count == 0:
        return NONE
    a.replicas[replica].num_plans += 1
    return slot


@kernel
def fill_pipeline(a: Arrays, leader: int, now_s: float) -> None:
    """Decide steps, and enter when the oldest ends."""
    decide_steps(a, leader, now_s)
    await_oldest(a, leader, now_s)


@rare_kernel
def decide_steps(a: Arrays, leader: int, now_s: float) -> None:
    """Decide as many steps as the engine would have in flight, of a server's ranks one each at a time."""
    p = a.pools[a.replicas[leader].pool]
    while p.ranks == 1 or num_rounds(a.replicas[leader], now_s) < p.plans_in_flight:
        if p.ranks > 1 and p.engine == SGLANG:
            if decide_batches(a, leader, now_s):
                continue
            break
        tokens, num_decided, any_preempts = 0, 0, 0
        for rank in range(leader, leader + p.ranks):
            num_running = a.replicas[rank].num_running
            if p.ranks > 1:
                account(a, rank, now_s)
            slot = decide_batch(a, rank, now_s) if p.engine == SGLANG else decide_step(a, rank, now_s)
            a.replicas[rank].round_slot = NONE
            a.replicas[rank].known_waiting = a.replicas[rank].num_waiting
            if slot != NONE:
                num_decided += 1
                if a.plans[rank, slot].count > 0:
                    a.replicas[rank].round_slot = slot
                    tokens += a.plans[rank, slot].tokens
            elif p.ranks > 1 and a.replicas[rank].num_running < num_running:
                any_preempts = 1
        if p.ranks > 1 and (tokens > 0 or any_preempts == 1 or num_rounds(a.replicas[leader], now_s) > 0):
            a.replicas[leader].wave_step += 1
        if tokens == 0 and any_preempts == 0 and (p.ranks > 1 or num_decided == 0):
            break
        if p.ranks > 1 and tokens > 0:
            step_together(a, leader, tokens, now_s)
        elif tokens > 0:
            enter_pipeline(a, leader, a.replicas[leader].round_slot, now_s)


@rare_kernel
def decide_batches(a: Arrays, leader: int, now_s: float) -> bool:
    """Decide a batch of each of an SGLang server's ranks; whether another may follow at once.

    With drafts, no rank decodes while another prefills.
    """
    end, any_prefills = leader + a.pools[a.replicas[leader].pool].ranks, False
    for rank in range(leader, end):
        account(a, rank, now_s)
        slot = next_batch(a, rank)
        a.replicas[rank].round_slot = slot
        if slot != NONE:
            sglang.schedule_prefill(a, rank, slot, now_s)
            any_prefills |= sglang.prefills(a, rank)
    waits = any_prefills and a.sglang.pools[a.replicas[leader].pool].draft_tokens > 0
    tokens, num_retracted = 0, 0
    for rank in range(leader, end):
        slot = a.replicas[rank].round_slot
        if slot != NONE:
            num_retracted += sglang.schedule_rest(a, rank, slot, waits)
            a.replicas[rank].round_slot = keep_batch(a, rank, slot)
            tokens += a.plans[rank, slot].tokens
        a.replicas[rank].known_waiting = a.replicas[rank].num_waiting
    if tokens > 0:
        step_together(a, leader, tokens, now_s)
        return True
    is_idle = num_rounds(a.replicas[leader], now_s) == 0
    for rank in range(leader, end):
        if is_idle and a.replicas[rank].num_running + a.replicas[rank].num_waiting == 0:
            sglang.go_idle(a, rank)
    return bool(is_idle and num_retracted > 0)


@kernel
def await_oldest(a: Arrays, leader: int, now_s: float) -> None:
    """Enter when the oldest step of each rank ends; where none is in flight, what waits will wait for ever."""
    is_idle = num_rounds(a.replicas[leader], now_s) == 0
    for rank in range(leader, leader + a.pools[a.replicas[leader].pool].ranks):
        state = a.replicas[rank]
        if state.num_plans > 0:
            set_next(a.next_event_s, rank, ends.none_before_s(a, rank))
        elif is_idle and state.num_waiting > 0:
            a.cursor[0].stalled_request = state.waiting_head


@kernel
def enter_pipeline(a: Arrays, replica: int, slot: int, now_s: float) -> None:
    """A stage takes the next step while the following stages still work on this one."""
    state = a.replicas[replica]
    step_s = step_time_s(a, replica, slot, 0.0)
    state.latest_step_s = step_s * BARELY_LESS
    step_s += cold_s(a, replica, a.plans[replica, slot].prefill_tokens > 0, now_s)
    stage_s = step_s / a.pools[a.replicas[replica].pool].pipeline_stages
    start_s = max(state.stage_free_s, now_s)
    state.stage_free_s = start_s + stage_s
    state.last_end_s = max(start_s + step_s, state.last_end_s + stage_s)
    a.plans[replica, slot].end_s = state.last_end_s


@kernel
def cold_s(a: Arrays, leader: int, holds_prefill: bool, now_s: float) -> float:
    """What the next step of a cold server takes longer: the first does, then some with prompts, a while apart."""
    state, p = a.replicas[leader], a.pools[a.replicas[leader].pool]
    if p.cold_start_s == 0.0:
        return 0.0
    if state.last_end_s == 0.0:
        state.num_stalls = 0
    elif state.num_stalls >= p.cold_stalls or not holds_prefill or now_s < state.stalled_s + p.cold_apart_s:
        return 0.0
    state.num_stalls += 1
    state.stalled_s = now_s
    return float(p.cold_start_s)


# -- ranks of one server that share their experts: every step is taken by all of them, the idle ones without work


@kernel
def step_together(a: Arrays, leader: int, tokens: int, now_s: float) -> None:
    """All ranks take a step, with so many tokens between them: the slowest says how long it takes."""
    state = a.replicas[leader]
    end = leader + a.pools[state.pool].ranks
    step_s, shared_s, holds_prefill = 0.0, a.shared_time[state.pool, tokens], False
    for rank in range(leader, end):
        if a.replicas[rank].round_slot != NONE:
            holds_prefill |= a.plans[rank, a.replicas[rank].round_slot].prefill_tokens > 0
            step_s = max(step_s, step_time_s(a, rank, a.replicas[rank].round_slot, shared_s))
    end_s = max(state.last_end_s, now_s) + (step_s + cold_s(a, leader, holds_prefill, now_s))
    state.previous_end_s = state.last_end_s
    state.last_end_s = end_s
    for rank in range(leader, end):
        if a.replicas[rank].round_slot != NONE:
            a.plans[rank, a.replicas[rank].round_slot].end_s = end_s
