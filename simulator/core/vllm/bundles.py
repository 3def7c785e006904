"""Which cached blocks are evicted of a band with several lanes, compiled.

Of a bundle the first lane goes first, through all its segments in a row, each from its last block to its first; then
the next lane. A segment of which lanes are gone has the others.
"""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.vllm import segment_store as store
from simulator.core.vllm.layout import GOES_ON, MAX_LANES


@rare_kernel
def evict(a: Arrays, replica: int, count: int) -> int:
    """Evict up to `count` blocks of the bundle at the list's head; returns how many."""
    head = a.replicas[replica].queue_head
    segment, size, lane = head, 0, MAX_LANES
    while segment != NONE and (segment == head or a.segments[segment].bundle == GOES_ON):
        of = a.segments[segment]
        size += (of.end - of.first) * store.num_lanes(of)
        lane = min(lane, int(of.lane))
        segment = of.after
    if size <= count:
        while a.replicas[replica].queue_head != segment:
            store.forget(a, replica, a.replicas[replica].queue_head)
        return size
    left = count
    while left > 0:
        left = evict_of_lane(a, replica, segment, lane, left)
        lane += 1
    return count


@kernel
def evict_of_lane(a: Arrays, replica: int, behind: int, lane: int, count: int) -> int:
    """Evict up to `count` blocks of the lowest lane that the bundle before `behind` has; returns how many are left."""
    segment = a.replicas[replica].queue_head
    while count > 0 and segment != behind:
        of = a.segments[segment]
        following = of.after
        if of.lane == lane:
            at = max(of.end - count, of.first)
            count -= of.end - at
            evict_lane_from(a, replica, segment, at)
        segment = following
    return count


@kernel
def evict_lane_from(a: Arrays, replica: int, segment: int, at: int) -> None:
    """A segment's lowest lane is gone from block `at` on; the other lanes there may join the segment before."""
    of = a.segments[segment]
    upper = of.before
    if store.num_lanes(of) == 1:
        of.end = at
    elif of.bundle == GOES_ON and is_lower_part(a, segment, upper):
        a.segments[upper].first = of.end = at
    else:
        if at > of.first:
            store.cut(a, replica, segment, at)
        of.lane += 1
    if of.end == of.first:
        store.forget(a, replica, segment)


@kernel
def is_lower_part(a: Arrays, segment: int, before: int) -> bool:
    """Whether without its lowest lane a segment would be the lower part of the one before it."""
    of, upper = a.segments[segment], a.segments[before]
    if upper.next_in_bucket != segment or upper.key != of.key or upper.first != of.end:
        return False
    return bool(upper.lane == of.lane + 1 and upper.end_lane == of.end_lane)
