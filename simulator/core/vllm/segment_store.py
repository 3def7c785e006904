"""Where segments are: in the buckets of the cache, and in the list of free ones, compiled.

Like groups of layers that follow each other are a band; a group alone is one, too. Their blocks are let go of together,
so they are kept as one segment, a lane for each group. The list stands for single blocks, of which those of the band's
first group are let go of first: what a request lets go of at once is a bundle, and goes lane by lane. So in the list
segments are joined within a bundle only, where there is more than one lane.
"""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.types import Pool, Replica, Segment
from simulator.core.vllm import pool
from simulator.core.vllm.layout import ALONE, GOES_ON, OPENS

CHUNK_BITS = 3
CHUNK_BLOCKS = 1 << CHUNK_BITS
ALL_BLOCKS = (1 << CHUNK_BLOCKS) - 1  # of a chunk, a bit for each
END = 2**31 - 1


@kernel
def lanes_of(a: Arrays, p: Pool, group: int) -> int:
    """How many lanes the band of its first group has."""
    return int(a.groups[p.first_group + group].lanes)


@kernel
def num_lanes(of: Segment) -> int:
    """In how many lanes a segment has blocks."""
    return int(of.end_lane) - int(of.lane)


@kernel
def place_of(p: Pool, group: int) -> int:
    """Where the part of a block table begins that a group's band has; those of its other groups follow."""
    return group * (2 + 2 * p.row_blocks)


@kernel
def key_of(p: Pool, content: int, group: int) -> int:
    """What a band's blocks of a content are cached under."""
    return content * p.num_groups + group


@kernel
def is_in_chunks(a: Arrays, p: Pool, group: int) -> bool:
    return bool(p.num_windows > 0 and a.groups[p.first_group + group].window > 0)


@kernel
def bucket_of(a: Arrays, p: Pool, key: int, group: int, index: int) -> int:
    """Where segments lie that have a band's block `index` under a key."""
    return bucket_at(p, key, index >> CHUNK_BITS if is_in_chunks(a, p, group) else 0)


@kernel
def bucket_at(p: Pool, key: int, chunk: int) -> int:
    return (pool.mixed(key) + chunk) & p.bucket_mask


@kernel
def longest_end(a: Arrays, p: Pool, group: int, index: int) -> int:
    """Where a segment with block `index` ends at the latest."""
    return ((index >> CHUNK_BITS) + 1) << CHUNK_BITS if is_in_chunks(a, p, group) else END


# -- segments come and go


@kernel
def make(a: Arrays, replica: int) -> int:
    state = a.replicas[replica]
    segment = state.spare_segment
    if segment == NONE:
        segment = state.first_block + state.num_segments
        state.num_segments += 1
    else:
        state.spare_segment = a.segments[segment].after
    return segment


@kernel
def drop(a: Arrays, state: Replica, segment: int) -> None:
    a.segments[segment].after = state.spare_segment
    state.spare_segment = segment


@kernel
def forget(a: Arrays, replica: int, segment: int) -> None:
    """A free segment has no block any more."""
    state = a.replicas[replica]
    leave_list(a, state, segment)
    leave_bucket(a, replica, segment)
    drop(a, state, segment)


@rare_kernel
def cut(a: Arrays, replica: int, segment: int, at: int) -> int:
    """Make the blocks before `at` a segment of their own: next in the bucket, and freed next where they are free."""
    lower = make(a, replica)
    of, new = a.segments[segment], a.segments[lower]
    new.first = of.first
    new.end = of.first = at
    new.lane = of.lane
    new.end_lane = of.end_lane
    follow(a, replica, segment, lower)
    return lower


@kernel
def follow(a: Arrays, replica: int, segment: int, part: int) -> None:
    """Let a part of a segment follow it wherever it is."""
    of, new = a.segments[segment], a.segments[part]
    new.key = of.key
    new.in_chunks = of.in_chunks
    new.holders = of.holders
    new.next_in_bucket = of.next_in_bucket
    of.next_in_bucket = part
    if of.holders > 0:
        new.before = of.before
        of.before = part
        return
    new.bundle = ALONE if of.bundle == ALONE else GOES_ON
    new.before = segment
    new.after = of.after
    if of.after == NONE:
        a.replicas[replica].queue_tail = part
    else:
        a.segments[of.after].before = part
    of.after = part


# -- the cache: those of a bucket from the oldest to the newest


@kernel
def are_cached(a: Arrays, segment: int, key: int, begin: int, end: int) -> bool:
    """Whether one of the segments from this one on has some of a key's blocks."""
    while segment != NONE:
        of = a.segments[segment]
        if of.key == key and of.first < end and begin < of.end:
            return True
        segment = of.next_in_bucket
    return False


@kernel
def enter_bucket(a: Arrays, replica: int, bucket: int, segment: int) -> None:
    last = a.buckets[replica, bucket]
    if last == NONE:
        a.buckets[replica, bucket] = segment
        return
    while a.segments[last].next_in_bucket != NONE:
        last = a.segments[last].next_in_bucket
    a.segments[last].next_in_bucket = segment


@kernel
def leave_bucket(a: Arrays, replica: int, segment: int) -> None:
    p = a.pools[a.replicas[replica].pool]
    of = a.segments[segment]
    bucket = bucket_at(p, of.key, of.first >> CHUNK_BITS if of.in_chunks == 1 else 0)
    candidate = a.buckets[replica, bucket]
    if candidate == segment:
        a.buckets[replica, bucket] = of.next_in_bucket
        return
    while a.segments[candidate].next_in_bucket != segment:
        candidate = a.segments[candidate].next_in_bucket
    a.segments[candidate].next_in_bucket = of.next_in_bucket


# -- the list of free segments: blocks come from its head, segments go to its tail


@kernel
def leave_list(a: Arrays, state: Replica, segment: int) -> None:
    of = a.segments[segment]
    if of.before == NONE:
        state.queue_head = of.after
    else:
        a.segments[of.before].after = of.after
    if of.after == NONE:
        state.queue_tail = of.before
        return
    a.segments[of.after].before = of.before
    if of.bundle == OPENS and a.segments[of.after].bundle == GOES_ON:
        a.segments[of.after].bundle = OPENS


@kernel
def enter_list(a: Arrays, state: Replica, segment: int, lanes: int, tail: int) -> None:
    """Append a segment of a band, or join it with the last one where it is that one's lower part.

    `tail` was the last before the request began to let go; behind it the bundle opens.
    """
    of, last = a.segments[segment], state.queue_tail
    if last != NONE and (lanes == 1 or last != tail):
        upper = a.segments[last]
        if upper.key == of.key and upper.first == of.end and upper.lane == of.lane and upper.end_lane == of.end_lane:
            if upper.next_in_bucket == segment:
                upper.next_in_bucket = of.next_in_bucket
                upper.first = of.first
                drop(a, state, segment)
                return
            if of.next_in_bucket == last:
                of.next_in_bucket = upper.next_in_bucket
                of.end = upper.end
                leave_list(a, state, last)
                drop(a, state, last)
                last = state.queue_tail
    if lanes == 1:
        of.bundle = ALONE
    else:
        of.bundle = OPENS if last == tail else GOES_ON
    of.before = last
    of.after = NONE
    state.queue_tail = segment
    if last == NONE:
        state.queue_head = segment
    else:
        a.segments[last].after = segment
