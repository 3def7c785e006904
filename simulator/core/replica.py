"""What happens when a replica's step is over."""

import math
from typing import Any

from simulator.core.draws import draft_hash
from simulator.core.jit import kernel
from simulator.core.latency import step_time_s
from simulator.core.layout import (
    CALENDAR_STEPS,
    FINISHED,
    ITL_BINS,
    ITL_GROWTH,
    ITL_MIN_S,
    NONE,
    RUNNING,
    WAITING,
)
from simulator.core.vllm import blocks, calendar, plan, queue, scheduler

_LOG_GROWTH = math.log(ITL_GROWTH)


@kernel
def account(a: Any, replica: int, now_s: float) -> None:
    """Carry the time integrals to `now_s`; call before anything changes."""
    state = a.replicas[replica]
    totals = a.totals[replica]
    elapsed_s = now_s - state.accounted_s
    used_blocks = state.num_usable_blocks - state.num_free_blocks
    totals.running_s += elapsed_s * state.num_running
    totals.waiting_s += elapsed_s * state.num_waiting
    totals.used_blocks_s += elapsed_s * used_blocks
    totals.blocked_s[state.block_reason] += elapsed_s
    if state.num_plans > 0:
        totals.busy_s += elapsed_s
    totals.max_used_blocks = max(totals.max_used_blocks, used_blocks)
    state.accounted_s = now_s


@kernel
def record_gaps(a: Any, gap_s: float, count: int) -> None:
    """Enter `count` inter-token gaps into the histogram."""
    cursor = a.cursor[0]
    cursor.itl_count += count
    cursor.itl_sum_s += gap_s * count
    place = 0
    if gap_s > ITL_MIN_S:
        place = min(int(math.log(gap_s / ITL_MIN_S) / _LOG_GROWTH), ITL_BINS - 1)
    a.itl_histogram[place] += count


@kernel
def note_time(a: Any, request: int, now_s: float, previous_s: float) -> int:
    """Enter when a request's token came; 1 if the gap before it is the replica's last step."""
    req = a.requests[request]
    last_s = req.last_token_s
    req.last_token_s = now_s
    if req.output == 0:
        req.first_token_s = now_s
    elif last_s == previous_s:
        return 1
    else:
        record_gaps(a, now_s - last_s, 1)
    return 0


@kernel
def verify(a: Any, replica: int, request: int, drafts: int, padded: int, stale: bool) -> int:
    """How many drafts were right; the others are taken back, unless the request has started over."""
    pool = a.replicas[replica].pool
    req = a.requests[request]
    accepted = 0
    while padded == 0 and accepted < drafts:
        if draft_hash(request, req.output + accepted) >= a.acceptance_limits[pool, accepted]:
            break
        accepted += 1
    if not stale:
        req.computed -= drafts - accepted
        if a.pools[pool].asynchronous == 1:
            req.placeholders -= drafts - accepted
    return accepted


@kernel
def deliver_tokens(a: Any, replica: int, request: int, tokens: int, stale: bool) -> bool:
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
def finish(a: Any, replica: int, request: int, now_s: float) -> None:
    """Free a finished request; `complete` takes it out of `running`."""
    req = a.requests[request]
    if req.status == RUNNING:
        blocks.release(a, replica, request)
    else:
        queue.remove_waiting(a, replica, request)
    req.status = FINISHED
    req.finish_s = now_s
    a.outstanding[replica] -= 1
    a.cursor[0].num_finished += 1
    if a.cursor[0].log_steps == 1:
        plan.log_word(a.cursor[0], a.log, request)
        plan.log_word(a.cursor[0], a.log, -4)


@kernel
def abort(a: Any, request: int, status: int, now_s: float) -> None:
    """Take out a request whose client has gone (vLLM: `finish_requests`); a step in flight goes on without it."""
    req = a.requests[request]
    replica = req.replica
    account(a, replica, now_s)
    if req.status == RUNNING:
        if req.quiet_since > 0:
            calendar.wake(a, replica, CALENDAR_STEPS)
        place = 0
        while a.running[replica, place] != request:
            place += 1
        scheduler.remove_running(a.replicas[replica], a.running, replica, place)
        blocks.release(a, replica, request)
        req.quiet_until = NONE
    elif req.status == WAITING:
        queue.remove_waiting(a, replica, request)
    req.status = status
    req.finish_s = now_s
    a.outstanding[replica] -= 1
    a.cursor[0].num_finished += 1


@kernel
def complete(a: Any, replica: int, now_s: float) -> int:
    """Process the output of the oldest plan. Returns how many finished; they are its entries with tokens < 0."""
    state = a.replicas[replica]
    slot = state.oldest_plan
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
        if entry.sampled == 0 or req.status >= FINISHED:  # a step that turned out to be one too many
            continue
        num_steady += note_time(a, request, now_s, previous_s)
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
        record_gaps(a, now_s - previous_s, num_steady)
    if num_finished > 0:
        drop_finished(state, a.running, a.requests, replica)
    state.last_completion_s = now_s
    state.completed_step = a.plans[replica, slot].step
    leave_pipeline(state, p.plans_in_flight)
    while state.num_plans > 0 and a.plans[replica, state.oldest_plan].count == 0:
        leave_pipeline(state, p.plans_in_flight)
    return num_finished


@kernel
def leave_pipeline(state: Any, plans_in_flight: int) -> None:
    """Drop the oldest plan, which is over."""
    state.num_plans -= 1
    state.oldest_plan += 1
    if state.oldest_plan == plans_in_flight:
        state.oldest_plan = 0


@kernel
def drop_finished(state: Any, running: Any, requests: Any, replica: int) -> None:
    kept = 0
    for index in range(state.num_running - state.num_quiet):
        request = running[replica, index]
        if requests[request].status == RUNNING:
            running[replica, kept] = request
            kept += 1
    state.num_running = kept + state.num_quiet


@kernel
def set_next_event(a: Any, replica: int, time_s: float) -> None:
    """Enter a replica's next step end into the tournament, whose root `next_event_s[1]` is the earliest of all."""
    place = (a.next_event_s.shape[0] >> 1) + replica
    a.next_event_s[place] = time_s
    while place > 1:
        place >>= 1
        earliest_s = min(a.next_event_s[2 * place], a.next_event_s[2 * place + 1])
        if a.next_event_s[place] == earliest_s:
            return
        a.next_event_s[place] = earliest_s


@kernel
def earliest_replica(a: Any) -> int:
    """The replica whose step ends first; ties go to the lowest number."""
    leaves = a.next_event_s.shape[0] >> 1
    place = 1
    while place < leaves:
        place = 2 * place if a.next_event_s[2 * place] == a.next_event_s[place] else 2 * place + 1
    return place - leaves


@kernel
def decide_step(a: Any, replica: int, now_s: float) -> int:
    """Decide a step while others may be in flight, as vLLM's batch queue does. Returns its slot, or NONE.

    An empty step waits in the queue behind the one before it, and is over with it. With none in flight it is dropped,
    and vLLM decides again, which helps where the empty step freed blocks by preempting.
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
        if num_preempted == 0:
            break
    return NONE


@kernel
def fill_pipeline(a: Any, leader: int, now_s: float) -> None:
    """Decide as many steps as vLLM would have in flight, of a server's ranks one each at a time."""
    p = a.pools[a.replicas[leader].pool]
    while p.ranks == 1 or num_rounds(a.replicas[leader], now_s) < p.plans_in_flight:
        tokens, num_decided = 0, 0
        for rank in range(leader, leader + p.ranks):
            if p.ranks > 1:
                account(a, rank, now_s)
            slot = decide_step(a, rank, now_s)
            a.replicas[rank].round_slot = NONE
            if slot != NONE:
                num_decided += 1
                if a.plans[rank, slot].count > 0:
                    a.replicas[rank].round_slot = slot
                    tokens += a.plans[rank, slot].tokens
        if tokens == 0 and (p.ranks > 1 or num_decided == 0):
            break
        if p.ranks > 1:
            step_together(a, leader, tokens, now_s)
        elif tokens > 0:
            enter_pipeline(a, leader, a.replicas[leader].round_slot, now_s)
    await_oldest(a, leader, now_s)


@kernel
def await_oldest(a: Any, leader: int, now_s: float) -> None:
    """Enter when the oldest step of each rank ends; where none is in flight, what waits will wait for ever."""
    is_idle = num_rounds(a.replicas[leader], now_s) == 0
    for rank in range(leader, leader + a.pools[a.replicas[leader].pool].ranks):
        state = a.replicas[rank]
        if state.num_plans > 0:
            set_next_event(a, rank, a.plans[rank, state.oldest_plan].end_s)
        elif is_idle and state.num_waiting > 0:
            a.cursor[0].stalled_request = state.waiting_head


@kernel
def enter_pipeline(a: Any, replica: int, slot: int, now_s: float) -> None:
    """A stage takes the next step while the following stages still work on this one."""
    state = a.replicas[replica]
    step_s = step_time_s(a, replica, slot, 0.0) + cold_s(a, replica)
    stage_s = step_s / a.pools[a.replicas[replica].pool].pipeline_stages
    start_s = max(state.stage_free_s, now_s)
    state.stage_free_s = start_s + stage_s
    state.last_end_s = max(start_s + step_s, state.last_end_s + stage_s)
    a.plans[replica, slot].end_s = state.last_end_s


@kernel
def cold_s(a: Any, replica: int) -> float:
    """What its next step takes longer: the first does, of several ranks that of the leader."""
    return a.pools[a.replicas[replica].pool].cold_start_s if a.replicas[replica].last_end_s == 0.0 else 0.0


# -- ranks of one server that share their experts: every step is taken by all of them, the idle ones without work


@kernel
def num_rounds(leader: Any, now_s: float) -> int:
    """Steps of a server's ranks that are decided and not over."""
    return int(leader.last_end_s > now_s) + int(leader.previous_end_s > now_s)


@kernel
def step_together(a: Any, leader: int, tokens: int, now_s: float) -> None:
    """All ranks take a step, with so many tokens between them: the slowest says how long it takes."""
    state = a.replicas[leader]
    end = leader + a.pools[state.pool].ranks
    step_s, shared_s = 0.0, a.shared_time[state.pool, tokens]
    for rank in range(leader, end):
        if a.replicas[rank].round_slot != NONE:
            step_s = max(step_s, step_time_s(a, rank, a.replicas[rank].round_slot, shared_s))
    end_s = max(state.last_end_s, now_s) + (step_s + cold_s(a, leader))
    state.previous_end_s = state.last_end_s
    state.last_end_s = end_s
    for rank in range(leader, end):
        if a.replicas[rank].round_slot != NONE:
            a.plans[rank, a.replicas[rank].round_slot].end_s = end_s
