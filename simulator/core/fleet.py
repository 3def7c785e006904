"""The event loop over all replicas, sessions."""

import math
from typing import Any

from simulator.core import replica as replicas
from simulator.core.jit import entry_point, kernel
from simulator.core.layout import (
    DONE,
    NEED_LOG_SPACE,
    NONE,
    PAUSED,
    REACHED_TIME,
    ROUND_ROBIN,
    SENT,
    SESSION_AFFINITY,
    STALLED,
)
from simulator.core.vllm import queue

# -- follow-up turns and requests in the front end, a binary heap by (time, request)


@kernel
def comes_before(a: Any, left: int, right: int) -> bool:
    if a.heap[left].time_s != a.heap[right].time_s:
        return a.heap[left].time_s < a.heap[right].time_s
    return a.heap[left].request < a.heap[right].request


@kernel
def swap(a: Any, left: int, right: int) -> None:
    time_s, request = a.heap[left].time_s, a.heap[left].request
    a.heap[left].time_s, a.heap[left].request = a.heap[right].time_s, a.heap[right].request
    a.heap[right].time_s, a.heap[right].request = time_s, request


@kernel
def push(a: Any, time_s: float, request: int) -> None:
    place = a.cursor[0].heap_size
    a.cursor[0].heap_size += 1
    a.heap[place].time_s = time_s
    a.heap[place].request = request
    while place > 0 and comes_before(a, place, (place - 1) >> 1):
        swap(a, place, (place - 1) >> 1)
        place = (place - 1) >> 1


@kernel
def pop(a: Any) -> int:
    request = a.heap[0].request
    a.cursor[0].heap_size -= 1
    size = a.cursor[0].heap_size
    a.heap[0].time_s, a.heap[0].request = a.heap[size].time_s, a.heap[size].request
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            return request
        if child + 1 < size and comes_before(a, child + 1, child):
            child += 1
        if not comes_before(a, child, place):
            return request
        swap(a, child, place)
        place = child


# -- arrivals


@kernel
def choose_replica(a: Any, request: int) -> int:
    """Which replica gets the request; ties go to the lowest number."""
    p = a.parameters[0]
    if p.router == SESSION_AFFINITY and a.requests[request].replica != NONE:
        return a.requests[request].replica
    if p.router != ROUND_ROBIN:
        best = 0
        for replica in range(1, p.num_replicas):
            if a.outstanding[replica] < a.outstanding[best]:
                best = replica
        return best
    chosen = a.cursor[0].next_replica
    a.cursor[0].next_replica = (chosen + 1) % p.num_replicas
    return chosen


@kernel
def send(a: Any, request: int, now_s: float) -> None:
    """A request comes to a replica's front end, which takes one after the other."""
    p = a.parameters[0]
    replica = choose_replica(a, request)
    a.requests[request].replica = replica
    a.requests[request].status = SENT
    a.outstanding[replica] += 1
    a.cursor[0].num_arrived += 1
    state = a.replicas[leader_of(a, replica)]
    state.door_free_s = (
        max(state.door_free_s, now_s) + p.ingress_request_s + p.ingress_token_s * a.requests[request].prompt
    )
    enters_s = state.door_free_s + p.ingress_s
    if enters_s <= now_s:
        enter(a, request, now_s)
    else:
        push(a, enters_s, request)


@kernel
def enter(a: Any, request: int, now_s: float) -> None:
    """A request comes to its scheduler."""
    replica = a.requests[request].replica
    replicas.account(a, replica, now_s)
    queue.enqueue_arrival(a, replica, request)
    leader = leader_of(a, replica)
    if a.replicas[replica].num_plans == 0 and (
        a.parameters[0].ranks == 1 or replicas.num_rounds(a, leader, now_s) == 0
    ):
        touch(a, leader)


@kernel
def leader_of(a: Any, replica: int) -> int:
    """The first of the ranks whose steps begin and end with this one's."""
    return replica - replica % a.parameters[0].ranks


@kernel
def touch(a: Any, replica: int) -> None:
    """Let the replica schedule at this instant, once all arrivals of the instant are in."""
    for index in range(a.cursor[0].num_touched):
        if a.touched[index] == replica:
            return
    a.touched[a.cursor[0].num_touched] = replica
    a.cursor[0].num_touched += 1


@kernel
def next_open_s(a: Any) -> float:
    cursor = a.cursor[0]
    if cursor.next_open == a.open_order.shape[0]:
        return math.inf
    return a.requests[a.open_order[cursor.next_open]].arrival_s


@kernel
def next_follow_up_s(a: Any) -> float:
    return a.heap[0].time_s if a.cursor[0].heap_size > 0 else math.inf


@kernel
def take_arrivals(a: Any, now_s: float) -> None:
    """Send or enter every request whose time has come, in order of time, then of id."""
    while True:
        open_s, follow_s = next_open_s(a), next_follow_up_s(a)
        if min(open_s, follow_s) > now_s:
            return
        is_open = open_s < follow_s
        if open_s == follow_s:
            is_open = a.open_order[a.cursor[0].next_open] < a.heap[0].request
        if is_open:
            request = a.open_order[a.cursor[0].next_open]
            a.cursor[0].next_open += 1
            send(a, request, now_s)
            continue
        request = pop(a)
        if a.requests[request].status == SENT:
            enter(a, request, now_s)
        else:
            send(a, request, now_s)


@kernel
def follow_up(a: Any, request: int, now_s: float) -> None:
    """Think, then send the session's next turn; a free client takes the next of the shared queue."""
    cursor = a.cursor[0]
    following = a.next_turn[request]
    if following != NONE:
        a.requests[following].replica = a.requests[request].replica
    if following == NONE and cursor.next_free < a.shared_queue.shape[0]:
        following = a.shared_queue[cursor.next_free]
        cursor.next_free += 1
    if following == NONE:
        cursor.num_exhausted += 1
        return
    a.requests[following].arrival_s = now_s + a.think_s[following]
    push(a, a.requests[following].arrival_s, following)


# -- time


@kernel
def take_samples(a: Any, until_s: float) -> None:
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
def take_sample(a: Any, now_s: float) -> None:
    p = a.parameters[0]
    cursor = a.cursor[0]
    sample = a.samples[cursor.num_samples]
    cursor.num_samples += 1
    sample.time_s = now_s
    sample.running_s, sample.waiting_s, sample.used_blocks_s = 0.0, 0.0, 0.0
    sample.running, sample.waiting, sample.used_blocks = 0, 0, 0
    sample.not_finished = cursor.num_arrived - cursor.num_finished
    for replica in range(p.num_replicas):
        replicas.account(a, replica, now_s)
        sample.running_s += a.totals[replica].running_s
        sample.waiting_s += a.totals[replica].waiting_s
        sample.used_blocks_s += a.totals[replica].used_blocks_s
        sample.running += a.replicas[replica].num_running
        sample.waiting += a.replicas[replica].num_waiting
        sample.used_blocks += p.num_blocks - 1 - a.replicas[replica].num_free_blocks


@kernel
def complete_steps(a: Any, now_s: float) -> None:
    """Finish all steps that end at this instant; finished sessions begin to think."""
    while a.next_event_s[1] <= now_s:
        replica = replicas.earliest_replica(a)
        replicas.set_next_event(a, replica, math.inf)
        replicas.account(a, replica, now_s)
        slot = a.replicas[replica].oldest_plan
        if replicas.complete(a, replica, now_s) > 0:
            for index in range(a.plans[replica, slot].count):
                if a.entries[replica, slot, index].tokens < 0:
                    follow_up(a, a.entries[replica, slot, index].request, now_s)
        if a.parameters[0].ranks > 1:
            touch(a, leader_of(a, replica))
            continue
        a.touched[a.cursor[0].num_touched] = replica
        a.cursor[0].num_touched += 1


@kernel
def log_is_full(a: Any) -> bool:
    """Whether the steps of one more instant might not fit."""
    p = a.parameters[0]
    worst = p.num_replicas * (p.plans_in_flight + 2) * (6 * p.max_num_seqs + 16)
    return p.log_steps == 1 and a.cursor[0].log_size + worst > a.log.shape[0]


@entry_point
def run(a: Any, until_s: float, max_instants: int) -> int:
    """Advance the fleet to `until_s`, to its end, or to where Python must act; says which.

    After `max_instants` it pauses, so that Python sees a Ctrl-C.

    At one instant: steps end, then arrivals enter, then schedulers decide, so that a request arriving at time t
    is seen by the first `schedule()` at or after t.
    """
    cursor = a.cursor[0]
    for _ in range(max_instants):
        now_s = min(a.next_event_s[1], next_open_s(a), next_follow_up_s(a))
        if now_s > until_s or now_s == math.inf:
            end_s = until_s if until_s < math.inf else cursor.now_s
            take_samples(a, end_s)
            for replica in range(a.parameters[0].num_replicas):
                replicas.account(a, replica, end_s)
            cursor.now_s = end_s
            return DONE if now_s == math.inf else REACHED_TIME
        if log_is_full(a):
            return NEED_LOG_SPACE
        take_samples(a, now_s)
        cursor.now_s = now_s
        cursor.num_touched = 0
        complete_steps(a, now_s)
        take_arrivals(a, now_s)
        for index in range(cursor.num_touched):
            if a.parameters[0].ranks > 1:
                replicas.fill_together(a, a.touched[index], now_s)
            else:
                replicas.fill_pipeline(a, a.touched[index], now_s)
        if cursor.stalled_request != NONE:
            return STALLED
    return PAUSED
