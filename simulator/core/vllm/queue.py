"""Where a request joins vLLM's waiting queue."""

from simulator.core.jit import kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.waiting import enqueue_after, enqueue_last


@kernel
def enqueue_preempted(a: Arrays, replica: int, request: int) -> None:
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
def is_sooner(a: Arrays, left: int, right: int) -> bool:
    """Whether `left` comes first under the priority policy: by priority, then arrival, then id."""
    one, other = a.requests[left], a.requests[right]
    if one.priority != other.priority:
        return one.priority < other.priority
    if one.arrival_s != other.arrival_s:
        return one.arrival_s < other.arrival_s
    return left < right


@kernel
def enqueue_by_rank(a: Arrays, replica: int, request: int) -> None:
    """Insert where the request's rank belongs, looking from the end, where new arrivals mostly go."""
    before = a.replicas[replica].waiting_tail
    while before != NONE and is_sooner(a, request, before):
        before = a.requests[before].previous
    enqueue_after(a, replica, request, before)


@kernel
def enqueue_arrival(a: Arrays, replica: int, request: int) -> None:
    if a.pools[a.replicas[replica].pool].by_priority == 1:
        enqueue_by_rank(a, replica, request)
    else:
        enqueue_last(a, replica, request)
