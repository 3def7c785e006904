"""The waiting queue of a replica, a list through the requests."""

from typing import Any

from simulator.core.jit import kernel
from simulator.core.layout import NONE, WAITING


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
def enqueue_after(a: Any, replica: int, request: int, before: int) -> None:
    """Insert the request behind `before`; NONE: at the head."""
    state = a.replicas[replica]
    if before == NONE:
        enqueue_first(a, replica, request)
        return
    if before == state.waiting_tail:
        enqueue_last(a, replica, request)
        return
    after = a.requests[before].next
    a.requests[request].previous = before
    a.requests[request].next = after
    a.requests[before].next = request
    a.requests[after].previous = request
    state.num_waiting += 1
    a.requests[request].status = WAITING


@kernel
def enqueue_preempted(a: Any, replica: int, request: int) -> None:
    """At the head; under older releases behind those that were passed over, which wait in a queue of their own."""
    a.requests[request].passed_over = 0
    if a.pools[a.replicas[replica].pool].by_priority == 1:
        enqueue_by_rank(a, replica, request)
        return
    before = NONE
    if a.pools[a.replicas[replica].pool].passed_over_keep_place == 0:
        following = a.replicas[replica].waiting_head
        while following != NONE and a.requests[following].passed_over == 1:
            before = following
            following = a.requests[following].next
    enqueue_after(a, replica, request, before)


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
    before = a.replicas[replica].waiting_tail
    while before != NONE and is_sooner(a, request, before):
        before = a.requests[before].previous
    enqueue_after(a, replica, request, before)


@kernel
def enqueue_arrival(a: Any, replica: int, request: int) -> None:
    if a.pools[a.replicas[replica].pool].by_priority == 1:
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
