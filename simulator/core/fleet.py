"""The event loop over all replicas, sessions."""

import math

from simulator.core import lag, occupancy
from simulator.core import replica as replicas
from simulator.core.clients import cancel_overdue, follow_up, next_deadline_s, push_event, reject, watch
from simulator.core.gateway import queue as gateway
from simulator.core.gateway.layout import NO_QUEUE
from simulator.core.heap import earliest, pop, set_next
from simulator.core.jit import entry_point, kernel, rare_kernel
from simulator.core.layout import (
    ABANDONED,
    AT_GATEWAY,
    BETWEEN_INSTANTS,
    CALENDAR_STEPS,
    CONTROL,
    DECODE,
    DONE,
    FINISHED,
    LEAVES_FRONT_END,
    LOOKS,
    NEED_LOG_SPACE,
    NEED_ROUTE,
    NEXT_TURN,
    NONE,
    NOT_ARRIVED,
    PAUSED,
    PREFILL,
    REACHED_TIME,
    SENT,
    SGLANG,
    STALLED,
    STEPS_ENDED,
)
from simulator.core.routing import views
from simulator.core.sglang import scheduler as sglang
from simulator.core.state import Arrays
from simulator.core.vllm import decode_fast_forward, pool, prefill_cadence, queue
from simulator.core.vllm.disaggregation import deciding, reading, writing
from simulator.core.vllm.host_tier import offload, polling

# -- arrivals


@kernel
def arrive(a: Arrays, request: int, now_s: float) -> bool:
    """A request comes from its client; False where Python must decide."""
    cursor, req = a.cursor[0], a.requests[request]
    if req.status >= FINISHED:  # its client left while it waited at the gateway
        return True
    is_new = req.status == NOT_ARRIVED
    if is_new:
        cursor.num_arrived += 1
        if cursor.has_clients == 1:
            watch(a, request, now_s)
    if a.gateways.shape[0] > 0 and (is_new or a.handovers.shape[0] == 0):
        return pass_gateway(a, request, is_new, now_s)
    return route(a, request, now_s)


@rare_kernel
def pass_gateway(a: Arrays, request: int, is_new: bool, now_s: float) -> bool:
    """A request comes to a gateway that turns some down, and may hold others; False where Python must route.

    One that comes back from an engine that is gone takes no more of a quota, and waits like any other.
    """
    has_queue = a.gateways[0].detector != NO_QUEUE
    is_over_quota = is_new and not gateway.is_within_quota(a, request, now_s)
    if is_over_quota or (has_queue and not gateway.hold(a, request, now_s)):
        reject(a, request, now_s)
        return True
    return dispatch(a, now_s) if has_queue else route(a, request, now_s)


@rare_kernel
def look(a: Arrays, now_s: float) -> bool:
    """The gateway looks at its queue; False where Python must route."""
    g = a.gateways[0]
    g.is_looking = 0
    while now_s >= g.next_sweep_s:
        request = gateway.expired(a, now_s)
        if request == NONE:
            g.next_sweep_s = gateway.next_multiple(g.sweep_every_s, now_s)
        else:
            reject(a, request, now_s)
    return dispatch(a, now_s)


@rare_kernel
def dispatch(a: Arrays, now_s: float) -> bool:
    """Send the next request of the gateway's queue on unless the fleet is saturated; False where Python must route."""
    chosen = gateway.next_of_all(a, now_s)
    look_s = gateway.next_look_s(a, now_s)
    if look_s < math.inf:
        push_event(a, look_s, LOOKS, NONE)
    return chosen == NONE or route(a, chosen, now_s)


@kernel
def route(a: Arrays, request: int, now_s: float) -> bool:
    """A request comes to the router; False where Python must decide."""
    cursor = a.cursor[0]
    a.requests[request].status = AT_GATEWAY
    if cursor.is_closed == 1:
        return True
    if a.deciding.shape[0] > 0:
        deciding.decide(a, request, now_s)
    chosen = choose(a, request, now_s)
    return chosen != NONE and give(a, request, chosen, now_s)


@kernel
def choose(a: Arrays, request: int, now_s: float) -> int:
    """The router's choice; NONE where Python must decide."""
    chosen = views.choose(a, request, now_s)
    if chosen == NONE:
        a.cursor[0].unrouted = request
    return chosen


@kernel
def give(a: Arrays, request: int, replica: int, now_s: float) -> bool:
    """Send a request to the engine that was chosen, and to a decode engine where the KV is pushed to it.

    False where Python must choose that.
    """
    if a.handovers.shape[0] > 0 and writing.is_undivided(a, request):
        send(a, writing.divide(a, request, replica), replica, now_s)
        replica = choose(a, request, now_s)
        if replica == NONE:
            return False
    send(a, request, replica, now_s)
    return True


@kernel
def send(a: Arrays, request: int, replica: int, now_s: float) -> None:
    """A request comes to an engine's front end: the API server that is free first takes it.

    All accept from one socket, so that busy ones leave a new connection to the others (vLLM 0.32, `cli/serve.py`)."""
    p = a.pools[a.replicas[replica].pool]
    a.requests[request].replica = replica
    a.requests[request].status = SENT
    if p.role == PREFILL:
        reading.begin_prefill(a, request)
    views.note_sent(a, request, replica, now_s)
    leader, free = a.replicas[replica].leader, 0
    for place in range(1, p.api_servers):
        if a.api_server_free_s[leader, place] < a.api_server_free_s[leader, free]:
            free = place
    begins_s = max(a.api_server_free_s[leader, free], now_s)
    is_free_s = begins_s + p.ingress_request_s + p.ingress_token_s * a.requests[request].prompt
    a.api_server_free_s[leader, free] = is_free_s
    enters_s = is_free_s + p.ingress_s
    a.requests[request].api_server_s += is_free_s - now_s
    a.requests[request].api_server_queue_s += begins_s - now_s
    if enters_s <= now_s:
        enter(a, request, now_s)
    else:
        push_event(a, enters_s, LEAVES_FRONT_END, request)


@kernel
def enter(a: Arrays, request: int, now_s: float) -> None:
    """A request comes to its scheduler, unless its client has gone meanwhile."""
    if a.requests[request].status != SENT:
        return
    replica = a.requests[request].replica
    if a.cursor[0].may_lag == 1:
        lag.call(a, replica, now_s)
        complete_steps(a, now_s)
    occupancy.account(a, replica, now_s)
    if a.pools[a.replicas[replica].pool].engine == SGLANG:
        sglang.add_request(a, replica, request)
    else:
        if a.replicas[replica].is_laid_out == 0:
            pool.lay_out(a, replica)
            offload.begin(a, replica)
        queue.enqueue_arrival(a, replica, request)
        if a.pools[a.replicas[replica].pool].role == DECODE:
            reading.await_read(a, request)
    if occupancy.is_idle(a, replica, now_s):
        touch(a, a.replicas[replica].leader)
    elif a.cursor[0].may_lag == 1:
        replicas.await_oldest(a, replica, now_s)


@kernel
def touch(a: Arrays, replica: int) -> None:
    """Let the replica schedule at this instant, once all arrivals of the instant are in."""
    for index in range(a.cursor[0].num_touched):
        if a.touched[index] == replica:
            return
    a.touched[a.cursor[0].num_touched] = replica
    a.cursor[0].num_touched += 1


@kernel
def next_open_s(a: Arrays) -> float:
    cursor = a.cursor[0]
    if cursor.next_open == a.open_order.shape[0]:
        return math.inf
    return a.requests[a.open_order[cursor.next_open]].arrival_s


@kernel
def next_heap_s(a: Arrays) -> float:
    return a.heap[0].time_s if a.cursor[0].heap_size > 0 else math.inf


@kernel
def take_arrivals(a: Arrays, now_s: float) -> bool:
    """Route or enter every request whose time has come, in order of time, then of id; False where Python must route."""
    cursor = a.cursor[0]
    if cursor.unrouted != NONE:
        request = cursor.unrouted
        cursor.unrouted = NONE
        if not give(a, request, cursor.chosen, now_s):
            return False
    while True:
        open_s, event_s = next_open_s(a), next_heap_s(a)
        if min(open_s, event_s) > now_s:
            return True
        is_open = open_s < event_s
        if open_s == event_s:
            is_open = a.open_order[cursor.next_open] < a.heap[0].request
        kind, request = NEXT_TURN, a.heap[0].request
        if is_open:
            request = a.open_order[cursor.next_open]
            cursor.next_open += 1
        else:
            kind = a.heap[0].kind
            pop(a.heap, cursor.heap_size)
            cursor.heap_size -= 1
        if kind == LEAVES_FRONT_END:
            enter(a, request, now_s)
        elif kind == LOOKS:
            if not look(a, now_s):
                return False
        elif not arrive(a, request, now_s):
            return False


# -- time


@kernel
def take_samples(a: Arrays, until_s: float) -> None:
    """Record the fleet's state at each sampling time up to `until_s`; a full record is thinned by half."""
    cursor = a.cursor[0]
    while cursor.next_sample_s <= until_s:
        if cursor.num_samples == a.samples.shape[0]:
            cursor.num_samples >>= 1
            for index in range(cursor.num_samples):
                a.samples[index] = a.samples[2 * index + 1]
            cursor.sample_every_s *= 2.0
            cursor.next_sample_s = a.samples[cursor.num_samples - 1].time_s + cursor.sample_every_s
            continue
        take_sample(a, cursor.next_sample_s)
        cursor.next_sample_s += cursor.sample_every_s


@kernel
def take_sample(a: Arrays, now_s: float) -> None:
    cursor = a.cursor[0]
    sample = a.samples[cursor.num_samples]
    cursor.num_samples += 1
    lag.catch_up(a, now_s)
    sample.time_s = now_s
    sample.running_s, sample.waiting_s, sample.used_blocks_s = 0.0, 0.0, 0.0
    sample.running, sample.waiting, sample.used_blocks = 0, 0, 0
    sample.cached_blocks, sample.preemptions = 0, 0
    if a.gateways.shape[0] > 0:
        sample.waiting = a.gateways[0].num_held
    sample.not_finished = cursor.num_arrived - cursor.num_finished
    for replica in range(a.replicas.shape[0]):
        occupancy.account(a, replica, now_s)
        sample.running_s += a.totals[replica].running_s
        sample.waiting_s += a.totals[replica].waiting_s
        sample.used_blocks_s += a.totals[replica].used_blocks_s
        sample.running += a.replicas[replica].num_running
        sample.waiting += a.replicas[replica].num_waiting
        sample.used_blocks += a.replicas[replica].num_usable_blocks - a.replicas[replica].num_free_blocks
        sample.cached_blocks += a.replicas[replica].num_cached_free_blocks
        sample.preemptions += int(a.totals[replica].preemptions)


@rare_kernel
def complete_steps(a: Arrays, now_s: float) -> None:
    """Finish all steps that end at this instant; finished sessions begin to think."""
    cursor = a.cursor[0]
    while a.next_event_s[0] <= now_s:
        replica = earliest(a.next_event_s)
        set_next(a.next_event_s, replica, math.inf)
        slot = lag.end_steps(a, replica, now_s, True)
        if slot == lag.TOO_SOON:
            replicas.await_oldest(a, replica, now_s)
            continue
        if slot != NONE:
            plan = a.plans[replica, slot]
            for index in range(plan.count - plan.num_quiet):
                if a.entries[replica, slot, index].tokens < 0:
                    request = a.entries[replica, slot, index].request
                    if a.pools[a.replicas[replica].pool].role == PREFILL and a.sides[replica].pushes == 1:
                        writing.note_prefilled(a, request, now_s)
                        continue
                    if a.pools[a.replicas[replica].pool].role == PREFILL:
                        reading.hand_over(a, request, now_s)
                        push_event(a, now_s + a.sides[replica].dispatch_s, NEXT_TURN, request)
                        continue
                    follow_up(a, request, a.next_turn[request % a.next_turn.shape[0]], now_s)
        if a.pools[a.replicas[replica].pool].ranks > 1:
            touch(a, a.replicas[replica].leader)
            prefill_cadence.end_wave(a, a.replicas[replica].leader)
            continue
        a.touched[cursor.num_touched] = replica
        cursor.num_touched += 1


@rare_kernel
def decide_steps(a: Arrays, now_s: float) -> None:
    """Let all engines schedule to which something happened at this instant."""
    for index in range(a.cursor[0].num_touched):
        polling.fill_pipeline(a, a.touched[index], now_s)


@kernel
def stop(a: Arrays, end_s: float) -> None:
    """Carry all sums to `end_s`."""
    take_samples(a, end_s)
    if a.cursor[0].may_lag == 1:
        a.cursor[0].num_touched = 0
        lag.call_all(a, end_s)
        complete_steps(a, end_s)
        decide_steps(a, end_s)
    for replica in range(a.replicas.shape[0]):
        occupancy.account(a, replica, end_s)
    a.cursor[0].now_s = end_s


@entry_point
def hang_up(a: Arrays, request: int) -> None:
    """Whoever sent a request that has come to its scheduler, and has not ended, leaves now."""
    replicas.abort(a, request, ABANDONED, a.cursor[0].now_s)


def advance(a: Arrays, until_s: float, max_instants: int) -> int:
    """Advance the fleet to `until_s`, to its end, or to where Python must act; says which.

    After `max_instants` it pauses, so that Python sees a Ctrl-C. The next call goes on where this one came back.

    At one instant: steps end, then clients cancel by id, then Python's control events, then arrivals enter by id, then
    schedulers decide, so that a request arriving at time t is seen by the first `schedule()` at or after t.
    """
    cursor = a.cursor[0]
    reason = PAUSED
    for _ in range(max_instants):
        if cursor.phase == BETWEEN_INSTANTS:
            next_s = min(a.next_event_s[0], next_open_s(a), next_heap_s(a), next_deadline_s(a))
            now_s = min(next_s, cursor.control_s)
            is_over = next_s == math.inf and (now_s == math.inf or cursor.num_arrived == cursor.num_finished)
            if is_over or now_s > until_s:
                stop(a, until_s if until_s < math.inf else cursor.now_s)
                if cursor.stalled_request != NONE:
                    return STALLED
                reason = DONE if is_over else REACHED_TIME
                break
            if cursor.log_steps == 1 and cursor.log_size + cursor.log_reserve > a.log.shape[0]:
                return NEED_LOG_SPACE
            take_samples(a, now_s)
            views.scrape_before(a, now_s)
            cursor.now_s = now_s
            cursor.num_touched = 0
            if now_s == cursor.control_s and cursor.may_lag == 1:
                lag.call_all(a, now_s)
            complete_steps(a, now_s)
            if cursor.has_clients == 1:
                cancel_overdue(a, now_s)
            views.scrape_at(a, now_s)
            cursor.phase = STEPS_ENDED
            if now_s == cursor.control_s:
                cursor.control_s = math.inf
                reason = CONTROL
                break
        if not take_arrivals(a, cursor.now_s):
            return NEED_ROUTE
        decide_steps(a, cursor.now_s)
        cursor.phase = BETWEEN_INSTANTS
        if cursor.stalled_request != NONE:
            return STALLED
    if reason != PAUSED:  # Python looks at the requests
        for replica in range(a.replicas.shape[0]):
            decode_fast_forward.wake(a, replica, CALENDAR_STEPS)
    return reason
