"""Hits whose lanes are not in the same segment, compiled.

Of the oldest segment with some blocks, lanes may be evicted already; then a later one has those. As each lane of such a
hit can be let go of at another time, each becomes a segment of its own, in the tables of all that hold it too.
"""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.types import Pool
from simulator.core.vllm import segment_store as store

MIXED = NONE - 1
"""A place of a table that nobody holds yet has this less the segment where it is only one lane's."""


@kernel
def oldest_of(a: Arrays, replica: int, key: int, group: int, lane: int, begin: int, end: int) -> tuple[int, int]:
    """The segment that a hit takes block `begin` of in a lane, or NONE, and how far it is the oldest, up to `end`."""
    p = a.pools[a.replicas[replica].pool]
    segment = a.buckets[replica, store.bucket_of(a, p, key, group, begin)]
    while segment != NONE:
        of = a.segments[segment]
        if of.key == key and of.end > begin and of.lane <= lane < of.end_lane:
            if of.first <= begin:
                return segment, min(end, of.end)
            end = min(end, of.first)
        segment = of.next_in_bucket
    return NONE, begin


@rare_kernel
def are_cached(a: Arrays, replica: int, key: int, group: int, index: int) -> bool:
    """Whether all lanes of a band have block `index` cached."""
    p = a.pools[a.replicas[replica].pool]
    for lane in range(store.lanes_of(a, p, group)):
        segment, _ = oldest_of(a, replica, key, group, lane, index, index + 1)
        if segment == NONE:
            return False
    return True


@rare_kernel
def cached_in_chunk(a: Arrays, replica: int, key: int, group: int, chunk: int, blocks: int) -> int:
    """Which of a chunk's blocks, a bit for each, all lanes of a band have cached."""
    found = 0
    for place in range(store.CHUNK_BLOCKS):
        if (blocks >> place) & 1 and are_cached(a, replica, key, group, chunk + place):
            found |= 1 << place
    return found


@rare_kernel
def enter(a: Arrays, replica: int, row: int, place: int, key: int, group: int, begin: int, end: int) -> int:
    """Enter a place for each lane of the blocks from `begin` on, as far as they are in one segment; returns the end."""
    p = a.pools[a.replicas[replica].pool]
    lanes = store.lanes_of(a, p, group)
    for lane in range(lanes):
        segment, end = oldest_of(a, replica, key, group, lane, begin, end)
        a.tables[row, place + 2 * lane] = MIXED - segment
    for lane in range(lanes):
        a.tables[row, place + 2 * lane + 1] = end
    return end


@rare_kernel
def num_free(a: Arrays, row: int, place: int, lanes: int) -> int:
    """How many lanes of those that `enter` entered nobody holds."""
    count = 0
    for lane in range(lanes):
        count += int(a.segments[MIXED - a.tables[row, place + 2 * lane]].holders == 0)
    return count


@rare_kernel
def hold(a: Arrays, replica: int, row: int, group: int, place: int, begin: int) -> None:
    """Hold the blocks from `begin` on that `enter` entered from a place on."""
    state = a.replicas[replica]
    lanes = store.lanes_of(a, a.pools[state.pool], group)
    key, end = a.segments[MIXED - a.tables[row, place]].key, a.tables[row, place + 1]
    for lane in range(lanes):
        segment, _ = oldest_of(a, replica, key, group, lane, begin, end)
        if a.segments[segment].end > end:
            segment = store.cut(a, replica, segment, end)
        if a.segments[segment].first < begin:
            store.cut(a, replica, segment, begin)
        segment = apart(a, replica, group, segment, lane)
        if a.segments[segment].holders == 0:
            store.leave_list(a, state, segment)
            state.num_free_blocks -= end - begin
            state.num_cached_free_blocks -= end - begin
        a.segments[segment].holders += 1
        a.tables[row, place + 2 * lane] = segment


# -- lanes become segments of their own


@kernel
def apart(a: Arrays, replica: int, group: int, segment: int, lane: int) -> int:
    """Make a lane of a segment one of its own."""
    of = a.segments[segment]
    if store.num_lanes(of) == 1:
        return segment
    if of.holders > 0:
        take_apart(a, replica, group, segment)
        for _ in range(lane):
            segment = a.segments[segment].next_in_bucket
        return segment
    if of.lane < lane:
        segment = split(a, replica, segment, lane)
    if a.segments[segment].end_lane > lane + 1:
        split(a, replica, segment, lane + 1)
    return segment


@kernel
def split(a: Arrays, replica: int, segment: int, lane: int) -> int:
    """Make the lanes from `lane` on a segment of their own: next in the bucket, and in the list of free ones."""
    rest = store.make(a, replica)
    of, new = a.segments[segment], a.segments[rest]
    new.first = of.first
    new.end = of.end
    new.lane = lane
    new.end_lane = of.end_lane
    of.end_lane = lane
    store.follow(a, replica, segment, rest)
    return rest


@kernel
def take_apart(a: Arrays, replica: int, group: int, segment: int) -> None:
    """Make each lane of a held segment one of its own, next to each other in the bucket, in all tables that have it."""
    p, num_rows = a.pools[a.replicas[replica].pool], a.free_rows.shape[1]
    lanes, below = store.lanes_of(a, p, group), a.segments[segment].before
    for lane in range(lanes - 1, 0, -1):
        split(a, replica, segment, lane)
    for row in range(replica * num_rows, (replica + 1) * num_rows):
        if a.skip_at[row] != NONE:
            enter_lanes(a, p, row, group, segment, below)


@kernel
def enter_lanes(a: Arrays, p: Pool, row: int, group: int, segment: int, below: int) -> None:
    """Give a table, if it has a segment that was taken apart, a place for each lane.

    Those that were cut off before it, from `below` on, have a place before these.
    """
    start, lanes, of = store.place_of(p, group), store.lanes_of(a, p, group), a.segments[segment]
    first = number = a.tables[row, start + 1]
    while number < a.tables[row, start] and a.tables[row, start + 3 + 2 * number] < of.end:
        number += 1
    place = start + 2 + 2 * number
    begin = int(a.tables[row, place - 1] if number > first else a.table_starts[row, group])
    if number == a.tables[row, start] or not has(a, a.tables[row, place], begin, segment):
        return
    has_upper, has_lower = int(a.tables[row, place] != segment), int(begin < of.first)
    num_more = has_lower + lanes + has_upper - 1
    for word in range(start + 1 + 2 * a.tables[row, start], place + 1 - 2 * has_upper, -1):
        a.tables[row, word + 2 * num_more] = a.tables[row, word]
    a.tables[row, start] += num_more
    if has_lower:
        a.tables[row, place] = below
        a.tables[row, place + 1] = of.first
        place += 2
    for _ in range(lanes):
        a.tables[row, place] = segment
        a.tables[row, place + 1] = of.end
        segment = a.segments[segment].next_in_bucket
        place += 2


@kernel
def has(a: Arrays, own: int, begin: int, segment: int) -> bool:
    """Whether a segment is a table's own one, or was cut off before that, down to block `begin`."""
    while own > NONE and own != segment and a.segments[own].first > begin:
        own = a.segments[own].before
    return own == segment
