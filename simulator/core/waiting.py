"""The waiting queue of a replica, a list through the requests."""

from simulator.core.jit import kernel
from simulator.core.layout import NONE, WAITING
from simulator.core.state import Arrays
from simulator.core.vllm import ends


@kernel
def link(a: Arrays, request: int, before: int, after: int) -> None:
    """Put the request between two others of a list, which may be NONE; its head and tail are the caller's."""
    a.requests[request].previous = before
    a.requests[request].next = after
    if before != NONE:
        a.requests[before].next = request
    if after != NONE:
        a.requests[after].previous = request


@kernel
def unlink(a: Arrays, request: int) -> None:
    """Take the request out of its list; its head and tail are the caller's."""
    before, after = a.requests[request].previous, a.requests[request].next
    if before != NONE:
        a.requests[before].next = after
    if after != NONE:
        a.requests[after].previous = before


@kernel
def enqueue_after(a: Arrays, replica: int, request: int, before: int) -> None:
    """Insert the request behind `before`; NONE: at the head."""
    state = a.replicas[replica]
    after = state.waiting_head if before == NONE else a.requests[before].next
    link(a, request, before, after)
    if before == NONE:
        state.waiting_head = request
    if after == NONE:
        state.waiting_tail = request
    ends.note_waiting(a, replica, request)
    state.num_waiting += 1
    a.requests[request].status = WAITING


@kernel
def enqueue_last(a: Arrays, replica: int, request: int) -> None:
    enqueue_after(a, replica, request, a.replicas[replica].waiting_tail)


@kernel
def remove(a: Arrays, replica: int, request: int) -> None:
    state = a.replicas[replica]
    if state.waiting_head == request:
        state.waiting_head = a.requests[request].next
    if state.waiting_tail == request:
        state.waiting_tail = a.requests[request].previous
    unlink(a, request)
    state.num_waiting -= 1
