"""Which blocks are free, held or cached, as whole runs of them, compiled.

Takes the place of `pool` where no connector deals with single blocks and all groups of layers have the smallest
blocks, with the same decisions. Successive blocks of one content are computed, cached, held and let go together, so a
segment stands for those in [first, end) of a group. Free segments form a list, each let go of from its last block to
its first. Free blocks without a hash come before them all, and are only counted: one is like the other.

A group's part of a block table has how many places are in use, and which is the first; then each place's segment and
the block at which it ends. The first begins where the table does (`table_starts`). If a segment is cut later, the
table's place keeps the upper part, and the lower ones lie `below` it. A place without a segment (`NONE`) stands for
blocks without a hash, and so does what follows the last place.

Windows let go of one block after the other, so their segments get short. To be found soon they never cross a multiple
of `CHUNK_BLOCKS`, and each such chunk has a bucket of its own.
"""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.types import Pool, Replica, Request
from simulator.core.vllm import pool

CHUNK_BITS = 3
CHUNK_BLOCKS = 1 << CHUNK_BITS
END = 2**31 - 1


@kernel
def key_of(p: Pool, content: int, group: int) -> int:
    """What a group's blocks of a content are cached under."""
    return content * p.num_groups + group


@kernel
def place_of(p: Pool, group: int) -> int:
    """Where a group's part of a block table begins."""
    return group * (2 + 2 * p.row_blocks)


@kernel
def is_in_chunks(a: Arrays, p: Pool, group: int) -> bool:
    return bool(p.num_windows > 0 and a.groups[p.first_group + group].window > 0)


@kernel
def bucket_of(a: Arrays, p: Pool, key: int, group: int, index: int) -> int:
    """Where segments lie that have a group's block `index` under a key."""
    bucket = pool.mixed(key)
    if is_in_chunks(a, p, group):
        bucket += index >> CHUNK_BITS
    return bucket & p.bucket_mask


@kernel
def longest_end(a: Arrays, p: Pool, group: int, index: int) -> int:
    """Where a segment with block `index` ends at the latest."""
    return ((index >> CHUNK_BITS) + 1) << CHUNK_BITS if is_in_chunks(a, p, group) else END


@kernel
def find(a: Arrays, replica: int, key: int, index: int) -> int:
    """The oldest segment that has block `index` under a key of a group without a window, or NONE."""
    segment = a.buckets[replica, pool.mixed(key) & a.pools[a.replicas[replica].pool].bucket_mask]
    while segment != NONE:
        of = a.segments[segment]
        if of.key == key and of.first <= index < of.end:
            return segment
        segment = of.next_in_bucket
    return NONE


@kernel
def hold(a: Arrays, replica: int, row: int, group: int, begin: int, hits: int) -> None:
    """Hold a group's blocks [begin, hits) of a table that `segment_hits.enter_hit` made."""
    state = a.replicas[replica]
    start = place_of(a.pools[state.pool], group)
    place = start + 2
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
    a.tables[row, start] = (place - start - 2) >> 1
    a.tables[row, start + 1] = 0


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
def cache(a: Arrays, replica: int, row: int, group: int, content: int, begin: int, end: int) -> None:
    """Cache a group's blocks [begin, end) of a table as a content's; those left out since the last have no hash."""
    p = a.pools[a.replicas[replica].pool]
    start, key = place_of(p, group), key_of(p, content, group)
    last = start + 2 * a.tables[row, start]
    if a.tables[row, start] > a.tables[row, start + 1]:
        if a.tables[row, last + 1] == begin:
            begin = extend(a, p, row, group, last, key, begin, end)
        else:
            add_place(a, row, start, NONE, begin)
    elif begin > a.table_starts[row, group]:
        add_place(a, row, start, NONE, begin)
    while begin < end:
        segment = make(a, replica)
        of = a.segments[segment]
        of.key = key
        of.first = begin
        of.end = begin = min(end, longest_end(a, p, group, begin))
        of.holders = 1
        of.next_in_bucket = NONE
        enter_bucket(a, replica, bucket_of(a, p, key, group, of.first), segment)
        add_place(a, row, start, segment, begin)


@kernel
def extend(a: Arrays, p: Pool, row: int, group: int, last: int, key: int, begin: int, end: int) -> int:
    """Let the segment of a table's last place have the blocks [begin, end) too, as far as it may; returns its end."""
    segment = a.tables[row, last]
    if segment == NONE:
        return begin
    of = a.segments[segment]
    end = min(end, longest_end(a, p, group, of.first))
    if end == begin or of.key != key or of.holders > 1 or are_cached(a, of.next_in_bucket, key, begin, end):
        return begin
    of.end = end
    a.tables[row, last + 1] = end
    return end


@kernel
def add_place(a: Arrays, row: int, start: int, segment: int, end: int) -> None:
    """Append to a group's part of a table."""
    place = start + 2 + 2 * a.tables[row, start]
    a.tables[row, place] = segment
    a.tables[row, place + 1] = end
    a.tables[row, start] += 1


@kernel
def release(a: Arrays, replica: int, row: int, group: int, num_blocks: int) -> None:
    """Let go of a group's blocks up to `num_blocks`, from last to first."""
    p = a.pools[a.replicas[replica].pool]
    start = place_of(p, group)
    first, num_places = a.tables[row, start + 1], a.tables[row, start]
    begin = a.table_starts[row, group]
    end = a.tables[row, start + 2 * num_places + 1] if num_places > first else begin
    num_unhashed = num_blocks - end
    for number in range(num_places - 1, first - 1, -1):
        place = start + 2 + 2 * number
        end = a.tables[row, place - 1] if number > first else begin
        if a.tables[row, place] == NONE:
            num_unhashed += a.tables[row, place + 1] - end
        else:
            let_go(a, replica, a.tables[row, place], end)
    note_unhashed(a, replica, num_unhashed)


@kernel
def let_go(a: Arrays, replica: int, segment: int, begin: int) -> None:
    """Let go of a held segment and of those below it down to block `begin`."""
    state = a.replicas[replica]
    num_freed, first = 0, begin + 1
    while first > begin:
        of = a.segments[segment]
        first, below = of.first, of.below
        of.holders -= 1
        if of.holders == 0:
            num_freed += of.end - first
            enter_list(a, state, segment)
        segment = below
    state.num_cached_free_blocks += num_freed
    state.num_free_blocks += num_freed
    state.num_freed += num_freed


@kernel
def note_unhashed(a: Arrays, replica: int, count: int) -> None:
    """So many blocks without a hash are free again."""
    state = a.replicas[replica]
    state.num_free_blocks += count
    state.num_freed += count


@kernel
def skip(a: Arrays, replica: int, req: Request, group: int, skipped: int) -> None:
    """Let go of a group's blocks before `skipped`, from last to first."""
    row = req.row
    start = place_of(a.pools[a.replicas[replica].pool], group)
    first, num_places = a.tables[row, start + 1], a.tables[row, start]
    begin, num_unhashed = a.table_starts[row, group], 0
    a.table_starts[row, group] = skipped
    last = first  # the place that has the last block before `skipped`; they are let go of from there
    while last < num_places and a.tables[row, start + 3 + 2 * last] < skipped:
        last += 1
    if last == num_places:
        num_unhashed = skipped - (a.tables[row, start + 1 + 2 * num_places] if num_places > first else begin)
    a.tables[row, start + 1] = last
    if last < num_places and a.tables[row, start + 3 + 2 * last] == skipped:
        a.tables[row, start + 1] = last + 1
    for number in range(min(last, num_places - 1), first - 1, -1):
        place = start + 2 + 2 * number
        segment, low = a.tables[row, place], a.tables[row, place - 1] if number > first else begin
        high = min(a.tables[row, place + 1], skipped)
        if segment == NONE:
            num_unhashed += high - low
        else:
            let_go(a, replica, upper_end(a, replica, segment, high), low)
    note_unhashed(a, replica, num_unhashed)


@kernel
def upper_end(a: Arrays, replica: int, segment: int, end: int) -> int:
    """Of a held segment and those below it, the one that ends at block `end`: cut there if need be."""
    while a.segments[segment].first >= end:
        segment = a.segments[segment].below
    return int(cut(a, replica, segment, end)) if a.segments[segment].end > end else segment


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
    new.key = of.key
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
    bucket = bucket_of(a, p, of.key, of.key % p.num_groups, of.first)
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
        if upper.key == of.key and upper.first == of.end:
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
