"""Which blocks are free, held or cached, as whole runs of them, compiled.

Takes the place of `pool` where no connector deals with single blocks and all groups of layers have the smallest
blocks, with the same decisions. Successive blocks of one content are computed, cached, held and let go together, so a
segment stands for those in [first, end) of a band of groups (`segment_store`). Free segments form a list, each let go
of from its last block to its first. Free blocks without a hash come before them all, and are only counted: one is like
the other.

A band's part of a block table has how many places are in use, and which is the first; then each place's segment and
the block at which it ends. The first begins where the table does (`table_starts`). If a segment is cut later, the
table's place keeps the upper part, and the lower ones lie before it. A place without a segment (`NONE`) stands for
blocks without a hash, and so does what follows the last place. A segment that is held has all lanes of its band, or
one: then as many places as there are lanes, which end alike, stand for the same blocks (`mixed_hits`).

Windows let go of one block after the other, so their segments get short. To be found soon they never cross a multiple
of `CHUNK_BLOCKS`, and each such chunk has a bucket of its own.
"""

from simulator.core.jit import kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.types import Pool, Request
from simulator.core.vllm import bundles, mixed_hits, pool
from simulator.core.vllm import segment_store as store


@kernel
def find(a: Arrays, replica: int, key: int, index: int) -> int:
    """The oldest segment that has block `index` under a key of a group without a window, or NONE."""
    segment = a.buckets[replica, pool.mixed(key) & a.pools[a.replicas[replica].pool].bucket_mask]
    while segment != NONE:
        of = a.segments[segment]
        if of.key == key and of.lane == 0 and of.first <= index < of.end:
            return segment
        segment = of.next_in_bucket
    return NONE


@kernel
def hold(a: Arrays, replica: int, row: int, group: int, begin: int, hits: int) -> None:
    """Hold a band's blocks [begin, hits) of a table that `segment_hits.enter_hit` made."""
    state = a.replicas[replica]
    p = a.pools[state.pool]
    start, lanes = store.place_of(p, group), store.lanes_of(a, p, group)
    place = start + 2
    while begin < hits:
        segment, end = a.tables[row, place], min(a.tables[row, place + 1], hits)
        if segment < NONE:
            mixed_hits.hold(a, replica, row, group, place, begin)
            begin = end
            place += 2 * lanes
            continue
        if a.segments[segment].end > end:
            segment = store.cut(a, replica, segment, end)
        of = a.segments[segment]
        if of.first < begin:
            store.cut(a, replica, segment, begin)
        a.tables[row, place] = segment
        a.tables[row, place + 1] = end
        if of.holders == 0:
            store.leave_list(a, state, segment)
            state.num_free_blocks -= lanes * (end - begin)
            state.num_cached_free_blocks -= lanes * (end - begin)
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
        if of.end_lane > 1:  # others may be let go of before its blocks
            num_evicted -= bundles.evict(a, replica, num_evicted)
            continue
        evicted = min(num_evicted, of.end - of.first)
        of.end -= evicted
        num_evicted -= evicted
        if of.end == of.first:
            store.forget(a, replica, segment)


@kernel
def cache(a: Arrays, replica: int, row: int, group: int, content: int, begin: int, end: int) -> None:
    """Cache a band's blocks [begin, end) of a table as a content's; those left out since the last have no hash."""
    p = a.pools[a.replicas[replica].pool]
    start, key, lanes = store.place_of(p, group), store.key_of(p, content, group), store.lanes_of(a, p, group)
    last = start + 2 * a.tables[row, start]
    if a.tables[row, start] > a.tables[row, start + 1]:
        if a.tables[row, last + 1] == begin:
            begin = extend(a, p, row, group, last, key, begin, end)
        else:
            add_place(a, row, start, NONE, begin)
    elif begin > a.table_starts[row, group]:
        add_place(a, row, start, NONE, begin)
    while begin < end:
        segment = store.make(a, replica)
        of = a.segments[segment]
        of.key = key
        of.first = begin
        of.end = begin = min(end, store.longest_end(a, p, group, begin))
        of.in_chunks = store.is_in_chunks(a, p, group)
        of.lane = 0
        of.end_lane = lanes
        of.holders = 1
        of.next_in_bucket = NONE
        store.enter_bucket(a, replica, store.bucket_of(a, p, key, group, of.first), segment)
        add_place(a, row, start, segment, begin)


@kernel
def extend(a: Arrays, p: Pool, row: int, group: int, last: int, key: int, begin: int, end: int) -> int:
    """Let the segment of a table's last place have the blocks [begin, end) too, as far as it may; returns its end."""
    segment = a.tables[row, last]
    if segment == NONE:
        return begin
    of = a.segments[segment]
    end = min(end, store.longest_end(a, p, group, of.first))
    if end == begin or of.key != key or of.holders > 1 or store.are_cached(a, of.next_in_bucket, key, begin, end):
        return begin
    if store.num_lanes(of) < store.lanes_of(a, p, group):
        return begin
    of.end = end
    a.tables[row, last + 1] = end
    return end


@kernel
def add_place(a: Arrays, row: int, start: int, segment: int, end: int) -> None:
    """Append to a band's part of a table."""
    place = start + 2 + 2 * a.tables[row, start]
    a.tables[row, place] = segment
    a.tables[row, place + 1] = end
    a.tables[row, start] += 1


@kernel
def release(a: Arrays, replica: int, row: int, group: int, num_blocks: int) -> None:
    """Let go of a band's blocks up to `num_blocks`, from last to first."""
    state = a.replicas[replica]
    p = a.pools[state.pool]
    start, lanes, tail = store.place_of(p, group), store.lanes_of(a, p, group), state.queue_tail
    first, num_places = a.tables[row, start + 1], a.tables[row, start]
    begin = a.table_starts[row, group]
    end = a.tables[row, start + 2 * num_places + 1] if num_places > first else begin
    num_unhashed = num_blocks - end
    for number in range(num_places - 1, first - 1, -1):
        place = start + 2 + 2 * number
        end = begin_of(a, row, start, number, begin, lanes)
        if a.tables[row, place] == NONE:
            num_unhashed += a.tables[row, place + 1] - end
        else:
            let_go(a, replica, a.tables[row, place], end, lanes, tail)
    note_unhashed(a, replica, lanes * num_unhashed)


@kernel
def begin_of(a: Arrays, row: int, start: int, number: int, begin: int, lanes: int) -> int:
    """Where a place's blocks begin; those of a band's part of a table do at `begin`."""
    first, place = start + 2 + 2 * a.tables[row, start + 1], start + 2 * number
    while lanes > 1 and place >= first and a.tables[row, place + 1] == a.tables[row, start + 3 + 2 * number]:
        place -= 2  # it has another lane of the same blocks
    return int(a.tables[row, place + 1]) if place >= first else begin


@kernel
def let_go(a: Arrays, replica: int, segment: int, begin: int, lanes: int, tail: int) -> None:
    """Let go of a held segment and of those cut off before it, down to block `begin`."""
    state = a.replicas[replica]
    num_freed, first = 0, begin + 1
    while first > begin:
        of = a.segments[segment]
        first, below = of.first, of.before
        of.holders -= 1
        if of.holders == 0:
            num_freed += (of.end - first) * store.num_lanes(of)
            store.enter_list(a, state, segment, lanes, tail)
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
    """Let go of a band's blocks before `skipped`, from last to first."""
    row, state = req.row, a.replicas[replica]
    p = a.pools[state.pool]
    start, lanes, tail = store.place_of(p, group), store.lanes_of(a, p, group), state.queue_tail
    first, num_places = a.tables[row, start + 1], a.tables[row, start]
    begin, num_unhashed = a.table_starts[row, group], 0
    last = last_before(a, row, start, skipped, lanes)
    if last == num_places:
        num_unhashed = skipped - (a.tables[row, start + 1 + 2 * num_places] if num_places > first else begin)
    for number in range(min(last, num_places - 1), first - 1, -1):
        place = start + 2 + 2 * number
        segment, low = a.tables[row, place], begin_of(a, row, start, number, begin, lanes)
        high = min(a.tables[row, place + 1], skipped)
        if segment == NONE:
            num_unhashed += high - low
        else:
            let_go(a, replica, upper_end(a, replica, segment, high), low, lanes, tail)
    note_unhashed(a, replica, lanes * num_unhashed)
    a.table_starts[row, group] = skipped
    while first < num_places and a.tables[row, start + 3 + 2 * first] <= skipped:
        first += 1
    a.tables[row, start + 1] = first


@kernel
def last_before(a: Arrays, row: int, start: int, skipped: int, lanes: int) -> int:
    """The last place that has the block before `skipped`, or how many places there are."""
    last, num_places = a.tables[row, start + 1], a.tables[row, start]
    while last < num_places and a.tables[row, start + 3 + 2 * last] < skipped:
        last += 1
    if lanes > 1 and last < num_places:
        end = a.tables[row, start + 3 + 2 * last]
        while last < num_places - 1 and a.tables[row, start + 5 + 2 * last] == end:
            last += 1  # it has another lane of the same blocks
    return last


@kernel
def upper_end(a: Arrays, replica: int, segment: int, end: int) -> int:
    """Of a held segment and those cut off before it, the one that ends at block `end`: cut there if need be."""
    while a.segments[segment].first >= end:
        segment = a.segments[segment].before
    return int(store.cut(a, replica, segment, end)) if a.segments[segment].end > end else segment
