"""What comes next: binary heaps of requests' events and deadlines, and a tournament of the replicas' steps.

The heaps are by (time, request); a request has one event at a time.
"""

from simulator.core.jit import kernel
from simulator.core.layout import BRANCH_BITS, BRANCHES
from simulator.core.types import Heap, Tournament


@kernel
def comes_before(heap: Heap, left: int, right: int) -> bool:
    if heap[left].time_s != heap[right].time_s:
        return heap[left].time_s < heap[right].time_s
    return heap[left].request < heap[right].request


@kernel
def swap(heap: Heap, left: int, right: int) -> None:
    one, other = heap[left], heap[right]
    time_s, request, kind = one.time_s, one.request, one.kind
    one.time_s, one.request, one.kind = other.time_s, other.request, other.kind
    other.time_s, other.request, other.kind = time_s, request, kind


@kernel
def push(heap: Heap, size: int, time_s: float, kind: int, request: int) -> None:
    place = size
    heap[place].time_s = time_s
    heap[place].request = request
    heap[place].kind = kind
    while place > 0 and comes_before(heap, place, (place - 1) >> 1):
        swap(heap, place, (place - 1) >> 1)
        place = (place - 1) >> 1


@kernel
def pop(heap: Heap, size: int) -> None:
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


# -- the tournament, a full tree with its root first: a leaf is when a replica's oldest step ends, else infinity, and a
# node is the earliest of its branches, which one line of the cache holds


@kernel
def set_next(next_s: Tournament, replica: int, time_s: float) -> None:
    """Enter when a replica's step ends; `next_s[0]` is the earliest of all."""
    place = (next_s.shape[0] >> BRANCH_BITS) + replica
    next_s[place] = time_s
    while place > 0:
        place = (place - 1) >> BRANCH_BITS
        first = BRANCHES * place + 1
        earliest_s = next_s[first]
        for branch in range(first + 1, first + BRANCHES):
            earliest_s = min(earliest_s, next_s[branch])
        if next_s[place] == earliest_s:
            return
        next_s[place] = earliest_s


@kernel
def earliest(next_s: Tournament) -> int:
    """The replica whose step ends first; ties go to the lowest number."""
    first_leaf = next_s.shape[0] >> BRANCH_BITS
    place = 0
    while place < first_leaf:
        earliest_s = next_s[place]
        last = BRANCHES * (place + 1)
        place = last
        for branch in range(last - 1, last - BRANCHES, -1):
            if next_s[branch] == earliest_s:
                place = branch
    return int(place - first_leaf)
