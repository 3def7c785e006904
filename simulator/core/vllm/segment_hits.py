"""How much of a prompt is cached where blocks are kept as `segments`, and in which, compiled."""

from simulator.core.jit import kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.types import Pool
from simulator.core.vllm import segments


@kernel
def run_from(a: Arrays, replica: int, request: int, kind: int, start: int, limit: int) -> int:
    """How many blocks a hit has whose blocks in [start, limit) must be cached in a row, in all groups of a kind."""
    p = a.pools[a.replicas[replica].pool]
    span, index = a.requests[request].span_start, start
    while index < limit:
        end = min((a.spans[span].end - p.hash_lookahead_tokens) // p.block_size, limit)
        if end <= index:
            span += 1
            continue
        _, end, _ = around(a, replica, p, kind, a.spans[span].content, index, end)
        if end == index:
            return index
        index = end
    return max(start, limit)


@kernel
def last_window(a: Arrays, replica: int, request: int, kind: int, limit: int) -> tuple[int, int]:
    """Where the last run of `tail` cached blocks begins and ends, or a shorter one at the start."""
    p = a.pools[a.replicas[replica].pool]
    tail = a.groups[p.first_group + a.group_order[a.kinds[p.first_kind + kind].first]].tail
    start = a.requests[request].span_start
    span = start
    while limit > 0 and a.spans[span].end < limit * p.block_size:
        span += 1
    end, index = limit, limit - 1  # of the run, and the next block before it
    while index >= 0:
        while span > start and a.spans[span - 1].end >= (index + 1) * p.block_size:
            span -= 1
        first, above, below = around(a, replica, p, kind, a.spans[span].content, index, index + 1)
        if above == index:  # it is not cached, nor is any after `below`
            content_start = a.spans[span - 1].end // p.block_size if span > start else 0
            end = max(below, content_start)
            index = end - 1
            continue
        if end - first >= tail:
            return end - tail, end
        index = first - 1
    return 0, end


@kernel
def around(a: Arrays, replica: int, p: Pool, kind: int, content: int, index: int, limit: int) -> tuple[int, int, int]:
    """The blocks [first, end) around `index` that all groups of a kind have cached, up to `limit`.

    Where one has not, `end` is `index`, and this content has none cached between the third and `index`.
    """
    first, end = 0, limit
    position = a.kinds[p.first_kind + kind].first
    for place in range(position, position + a.kinds[p.first_kind + kind].count):
        group = a.group_order[place]
        key = segments.key_of(p, content, group)
        segment, below = a.buckets[replica, segments.bucket_of(a, p, key, group, index)], 0
        if segments.is_in_chunks(a, p, group):
            below = index >> segments.CHUNK_BITS << segments.CHUNK_BITS
        while segment != NONE:
            of = a.segments[segment]
            if of.key == key:
                if of.first <= index < of.end:
                    break
                if of.end <= index:
                    below = max(below, of.end)
            segment = of.next_in_bucket
        if segment == NONE:
            return index, index, below
        first, end = max(first, a.segments[segment].first), min(end, a.segments[segment].end)
    return first, end, index


@kernel
def find_oldest(a: Arrays, replica: int, content: int, group: int, begin: int, end: int) -> tuple[int, int]:
    """The segment that a hit takes block `begin` of, or NONE, and how far it is the oldest, up to `end`."""
    p = a.pools[a.replicas[replica].pool]
    key = segments.key_of(p, content, group)
    end = min(end, segments.longest_end(a, p, group, begin))
    segment = a.buckets[replica, segments.bucket_of(a, p, key, group, begin)]
    while segment != NONE:
        of = a.segments[segment]
        if of.key == key and of.end > begin:
            if of.first <= begin:
                return segment, min(end, of.end)
            end = min(end, of.first)
        segment = of.next_in_bucket
    return NONE, begin


@kernel
def enter_hit(a: Arrays, replica: int, request: int, row: int, group: int, begin: int, limit: int) -> int:
    """Enter what is cached of [begin, limit) in a row into the table `row`, which nobody holds yet; returns its end."""
    p = a.pools[a.replicas[replica].pool]
    span = a.requests[request].span_start
    start = segments.place_of(p, group)
    place = start
    while begin < limit:
        end = min((a.spans[span].end - p.hash_lookahead_tokens) // p.block_size, limit)
        if end <= begin:
            span += 1
            continue
        segment, end = find_oldest(a, replica, a.spans[span].content, group, begin, end)
        if segment == NONE:
            break
        a.tables[row, place + 2] = segment
        a.tables[row, place + 3] = begin = end
        place += 2
    a.tables[row, start] = (place - start) >> 1
    a.tables[row, start + 1] = 0
    return begin


@kernel
def num_held_free(a: Arrays, p: Pool, row: int, group: int, begin: int, hits: int) -> int:
    """How many of a group's blocks [begin, hits) in a table that `enter_hit` made are free."""
    count, place = 0, segments.place_of(p, group) + 2
    while begin < hits:
        end = min(a.tables[row, place + 1], hits)
        if a.segments[a.tables[row, place]].holders == 0:
            count += end - begin
        begin = end
        place += 2
    return count
