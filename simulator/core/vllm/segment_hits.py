"""How much of a prompt is cached where blocks are kept as `segments`, and in which, compiled."""

from simulator.core.jit import kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.types import Pool
from simulator.core.vllm import mixed_hits
from simulator.core.vllm import segment_store as store


@kernel
def span_end(a: Arrays, p: Pool, span: int, begin: int, limit: int) -> int:
    """The block up to which a span has those in [begin, limit); `begin` where it has none: divisions are slow."""
    last = a.spans[span].end - p.hash_lookahead_tokens
    if last < (begin + 1) * p.block_size:
        return begin
    return limit if last >= limit * p.block_size else int(last // p.block_size)


@kernel
def run_from(a: Arrays, replica: int, request: int, kind: int, start: int, limit: int) -> int:
    """How many blocks a hit has whose blocks in [start, limit) must be cached in a row, in all groups of a kind."""
    p = a.pools[a.replicas[replica].pool]
    span, index = a.requests[request].span_start, start
    while index < limit:
        end = span_end(a, p, span, index, limit)
        if end <= index:
            span += 1
            continue
        end = end_of_run(a, replica, p, kind, a.spans[span].content, index, end)
        if end == index:
            return index
        index = end
    return max(start, limit)


@kernel
def end_of_run(a: Arrays, replica: int, p: Pool, kind: int, content: int, index: int, limit: int) -> int:
    """Up to where all groups of a kind have the blocks from `index` on in one segment each; `index` if one has not."""
    end = limit
    place = a.kinds[p.first_kind + kind].first
    behind = place + a.kinds[p.first_kind + kind].count
    while place < behind:
        group = a.group_order[place]
        lanes = store.lanes_of(a, p, group)
        place += lanes
        key = store.key_of(p, content, group)
        segment, is_part = a.buckets[replica, store.bucket_of(a, p, key, group, index)], False
        while segment != NONE:
            of = a.segments[segment]
            if of.key == key and of.first <= index < of.end:
                if store.num_lanes(of) == lanes:
                    break
                is_part = True
            segment = of.next_in_bucket
        if segment != NONE:
            end = min(end, a.segments[segment].end)
        elif is_part and mixed_hits.are_cached(a, replica, key, group, index):
            end = index + 1
        else:
            return index
    return end


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
        chunk = index >> store.CHUNK_BITS << store.CHUNK_BITS
        low, found = chunk, cached_in_chunk(a, replica, p, kind, a.spans[span].content, chunk)
        if span > start and a.spans[span - 1].end > chunk * p.block_size:
            low = a.spans[span - 1].end // p.block_size
        while index >= low:
            if (found >> (index - chunk)) & 1 == 0:
                end = index
            elif end - index >= tail:
                return index, end
            index -= 1
    return 0, end


@kernel
def cached_in_chunk(a: Arrays, replica: int, p: Pool, kind: int, content: int, chunk: int) -> int:
    """Which blocks from `chunk` on all groups of a sliding window's kind have cached: a bit for each of the chunk."""
    found = store.ALL_BLOCKS
    place = a.kinds[p.first_kind + kind].first
    behind = place + a.kinds[p.first_kind + kind].count
    while place < behind and found > 0:
        group = a.group_order[place]
        lanes = store.lanes_of(a, p, group)
        place += lanes
        key = store.key_of(p, content, group)
        segment, whole, parts = a.buckets[replica, store.bucket_of(a, p, key, group, chunk)], 0, 0
        while segment != NONE:
            of = a.segments[segment]
            if of.key == key and chunk <= of.first < chunk + store.CHUNK_BLOCKS:
                bits = (1 << (of.end - chunk)) - (1 << (of.first - chunk))
                if store.num_lanes(of) == lanes:
                    whole |= bits
                else:
                    parts |= bits
            segment = of.next_in_bucket
        if parts > 0:
            whole |= mixed_hits.cached_in_chunk(a, replica, key, group, chunk, parts & found & ~whole)
        found &= whole
    return found


@kernel
def find_oldest(a: Arrays, replica: int, key: int, group: int, begin: int, end: int) -> tuple[int, int]:
    """The segment that a hit takes block `begin` of, or NONE, and how far it is the oldest, up to `end`.

    Where it does not have all lanes, `mixed_hits.MIXED`.
    """
    p = a.pools[a.replicas[replica].pool]
    end = min(end, store.longest_end(a, p, group, begin))
    segment = a.buckets[replica, store.bucket_of(a, p, key, group, begin)]
    while segment != NONE:
        of = a.segments[segment]
        if of.key == key and of.end > begin:
            if of.first <= begin:
                if store.num_lanes(of) < store.lanes_of(a, p, group):
                    return mixed_hits.MIXED, end
                return segment, min(end, of.end)
            end = min(end, of.first)
        segment = of.next_in_bucket
    return NONE, begin


@kernel
def enter_hit(a: Arrays, replica: int, request: int, row: int, group: int, begin: int, limit: int) -> int:
    """Enter what is cached of [begin, limit) in a row into the table `row`, which nobody holds yet; returns its end."""
    p = a.pools[a.replicas[replica].pool]
    span = a.requests[request].span_start
    start = store.place_of(p, group)
    place = start
    while begin < limit:
        end = span_end(a, p, span, begin, limit)
        if end <= begin:
            span += 1
            continue
        key = store.key_of(p, a.spans[span].content, group)
        segment, end = find_oldest(a, replica, key, group, begin, end)
        if segment == NONE:
            break
        if segment == mixed_hits.MIXED:
            begin = mixed_hits.enter(a, replica, row, place + 2, key, group, begin, end)
            place += 2 * store.lanes_of(a, p, group)
            continue
        a.tables[row, place + 2] = segment
        a.tables[row, place + 3] = begin = end
        place += 2
    a.tables[row, start] = (place - start) >> 1
    a.tables[row, start + 1] = 0
    return begin


@kernel
def num_held_free(a: Arrays, p: Pool, row: int, group: int, begin: int, hits: int) -> int:
    """How many of a band's blocks [begin, hits) in a table that `enter_hit` made are free."""
    count, place, lanes = 0, store.place_of(p, group) + 2, store.lanes_of(a, p, group)
    while begin < hits:
        segment, end = a.tables[row, place], min(a.tables[row, place + 1], hits)
        if segment < NONE:
            count += (end - begin) * mixed_hits.num_free(a, row, place, lanes)
            place += 2 * lanes
        else:
            if a.segments[segment].holders == 0:
                count += (end - begin) * lanes
            place += 2
        begin = end
    return count
