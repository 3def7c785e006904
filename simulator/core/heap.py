"""Binary heaps by (time, request): of events, of which a request has one at a time, and of deadlines."""

from typing import Any

from simulator.core.jit import kernel


@kernel
def comes_before(heap: Any, left: int, right: int) -> bool:
    if heap[left].time_s != heap[right].time_s:
        return heap[left].time_s < heap[right].time_s
    return heap[left].request < heap[right].request


@kernel
def swap(heap: Any, left: int, right: int) -> None:
    one, other = heap[left], heap[right]
    time_s, request, kind = one.time_s, one.request, one.kind
    one.time_s, one.request, one.kind = other.time_s, other.request, other.kind
    other.time_s, other.request, other.kind = time_s, request, kind


@kernel
def push(heap: Any, size: int, time_s: float, kind: int, request: int) -> None:
    place = size
    heap[place].time_s = time_s
    heap[place].request = request
    heap[place].kind = kind
    while place > 0 and comes_before(heap, place, (place - 1) >> 1):
        swap(heap, place, (place - 1) >> 1)
        place = (place - 1) >> 1


@kernel
def pop(heap: Any, size: int) -> None:
    size -= 1
    swap(heap, 0, size)
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            return
        if child + 1 < size and comes_before(heap, child + 1, child):
            child += 1
        if not comes_before(heap, child, place):
            return
        swap(heap, child, place)
        place = child
