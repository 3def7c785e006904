"""Which blocks are free, held or cached, as whole runs of them, compiled.

Takes the place of `pool` where an engine's layers share one table and attend to everything, with the same decisions.
Successive blocks of one content are computed, cached, held and let go together, so a segment stands for those in
[first, end). Free segments form a list, each let go of from its last block to its first. Free blocks without a hash
come before them all, and are only counted: one is like the other.

A block table is a row of how many segments it has, then each segment and the block at which it ends. If one is cut
later, the table's place keeps the upper part, and the lower ones lie `below` it.
"""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.types import Replica
from simulator.core.vllm import pool


@kernel
def find(a: Arrays, replica: int, content: int, index: int) -> int:
    """The oldest segment that has a content's block `index`, or NONE."""
    segment = a.buckets[replica, pool.mixed(content) & a.pools[a.replicas[replica].pool].bucket_mask]
    while segment != NONE:
        of = a.segments[segment]
        if of.content == content and of.first <= index < of.end:
            return segment
        segment = of.next_in_bucket
    return NONE


@kernel
def find_oldest(a: Arrays, replica: int, content: int, begin: int, end: int) -> tuple[int, int]:
    """The segment that a hit takes block `begin` of, or NONE, and how far it is the oldest, up to `end`."""
    segment = a.buckets[replica, pool.mixed(content) & a.pools[a.replicas[replica].pool].bucket_mask]
    while segment != NONE:
        of = a.segments[segment]
        if of.content == content and of.end > begin:
            if of.first <= begin:
                return segment, min(end, of.end)
            end = min(end, of.first)
        segment = of.next_in_bucket
    return NONE, begin


@kernel
def find_hit(a: Arrays, replica: int, request: int, row: int, limit: int) -> int:
    """How many blocks within `limit` are cached in a row; enters them in the table `row`, which nobody holds yet."""
    p = a.pools[a.replicas[replica].pool]
    span = a.requests[request].span_start
    hits, place = 0, 1
    while hits < limit:
        end = min((a.spans[span].end - p.hash_lookahead_tokens) // p.block_size, limit)
        if end <= hits:
            span += 1
            continue
        segment, end = find_oldest(a, replica, a.spans[span].content, hits, end)
        if segment == NONE:
            break
        a.tables[row, place] = segment
        a.tables[row, place + 1] = hits = end
        place += 2
    return hits


@kernel
def num_held_free(a: Arrays, row: int, hits: int) -> int:
    """How many of a table's first `hits` blocks are free."""
    count, begin, place = 0, 0, 1
    while begin < hits:
        end = min(a.tables[row, place + 1], hits)
        if a.segments[a.tables[row, place]].holders == 0:
            count += end - begin
        begin = end
        place += 2
    return count


@kernel
def hold(a: Arrays, replica: int, row: int, hits: int) -> None:
    """Hold the first `hits` blocks of a table that `find_hit` made."""
    state = a.replicas[replica]
    begin, place = 0, 1
    while begin < hits:
        segment, end = a.tables[row, place], min(a.tables[row, place + 1], hits)
        if a.segments[segment].end > end:
            segment = cut(a, replica, segment, end)
        of = a.segments[segment]
        if of.first < begin:
            cut(a, replica, segment, begin)
        a.tables[row, place] = segment
        a.tables[row, place + 1] = end
        if of.holders == 0:
            leave_list(a, state, segment)
            state.num_free_blocks -= end - begin
            state.num_cached_free_blocks -= end - begin
        of.holders += 1
        begin = end
        place += 2
    a.tables[row, 0] = place >> 1


@kernel
def take(a: Arrays, replica: int, count: int) -> None:
    """Hold so many free blocks, evicting what they cached."""
    state = a.replicas[replica]
    num_evicted = max(count - (state.num_free_blocks - state.num_cached_free_blocks), 0)
    state.num_free_blocks -= count
    state.num_cached_free_blocks -= num_evicted
    while num_evicted > 0:
        segment = state.queue_head
        of = a.segments[segment]
        evicted = min(num_evicted, of.end - of.first)
        of.end -= evicted
        num_evicted -= evicted
        if of.end == of.first:
            leave_list(a, state, segment)
            leave_bucket(a, replica, segment)
            drop(a, state, segment)


@kernel
def cache(a: Arrays, replica: int, row: int, content: int, begin: int, end: int) -> None:
    """Cache the table's next blocks as a content's [begin, end)."""
    place = 2 * a.tables[row, 0]
    if place > 0:
        of = a.segments[a.tables[row, place - 1]]
        if of.content == content and of.holders == 1 and not are_cached(a, of.next_in_bucket, content, begin, end):
            of.end = end
            a.tables[row, place] = end
            return
    segment = make(a, replica)
    of = a.segments[segment]
    of.content = content
    of.first = begin
    of.end = end
    of.holders = 1
    of.next_in_bucket = NONE
    enter_bucket(a, replica, segment)
    a.tables[row, 0] += 1
    a.tables[row, place + 1] = segment
    a.tables[row, place + 2] = end


@kernel
def release(a: Arrays, replica: int, row: int, num_unhashed: int) -> None:
    """Let go of all blocks of a table, from last to first, with so many at its end that have no hash."""
    state = a.replicas[replica]
    num_freed = 0
    for place in range(2 * a.tables[row, 0] - 1, 0, -2):
        begin = a.tables[row, place - 1] if place > 1 else 0
        segment, first = a.tables[row, place], begin + 1
        while first > begin:
            of = a.segments[segment]
            first, below = of.first, of.below
            of.holders -= 1
            if of.holders == 0:
                num_freed += of.end - first
                enter_list(a, state, segment)
            segment = below
    state.num_cached_free_blocks += num_freed
    state.num_free_blocks += num_freed + num_unhashed
    state.num_freed += num_freed + num_unhashed


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


@rare_kernel
def cut(a: Arrays, replica: int, segment: int, at: int) -> int:
    """Make the blocks before `at` a segment of their own: next in the bucket, and freed next where they are free."""
    lower = make(a, replica)
    of, new = a.segments[segment], a.segments[lower]
    new.content = of.content
    new.first = of.first
    new.end = of.first = at
    new.holders = of.holders
    new.below = of.below
    new.next_in_bucket = of.next_in_bucket
    of.below = of.next_in_bucket = lower
    if of.holders == 0:
        new.before = segment
        new.after = of.after
        if of.after == NONE:
            a.replicas[replica].queue_tail = lower
        else:
            a.segments[of.after].before = lower
        of.after = lower
    return lower


# -- the cache: those of a bucket from the oldest to the newest


@kernel
def are_cached(a: Arrays, segment: int, content: int, begin: int, end: int) -> bool:
    """Whether one of the segments from this one on has some of a content's blocks."""
    while segment != NONE:
        of = a.segments[segment]
        if of.content == content and of.first < end and begin < of.end:
            return True
        segment = of.next_in_bucket
    return False


@kernel
def enter_bucket(a: Arrays, replica: int, segment: int) -> None:
    bucket = pool.mixed(a.segments[segment].content) & a.pools[a.replicas[replica].pool].bucket_mask
    last = a.buckets[replica, bucket]
    if last == NONE:
        a.buckets[replica, bucket] = segment
        return
    while a.segments[last].next_in_bucket != NONE:
        last = a.segments[last].next_in_bucket
    a.segments[last].next_in_bucket = segment


@kernel
def leave_bucket(a: Arrays, replica: int, segment: int) -> None:
    of = a.segments[segment]
    bucket = pool.mixed(of.content) & a.pools[a.replicas[replica].pool].bucket_mask
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
    else:
        a.segments[of.after].before = of.before


@kernel
def enter_list(a: Arrays, state: Replica, segment: int) -> None:
    """Append a segment, or join it with the last one where it is that one's lower part."""
    of, last = a.segments[segment], state.queue_tail
    if last != NONE:
        upper = a.segments[last]
        if upper.content == of.content and upper.first == of.end:
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
    of.before = last
    of.after = NONE
    state.queue_tail = segment
    if last == NONE:
        state.queue_head = segment
    else:
        a.segments[last].after = segment
