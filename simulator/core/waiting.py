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
def remove(a: Any, replica: int, request: int) -> None:
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
