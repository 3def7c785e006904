"""Which blocks of a request are cached, and whether the others fit, compiled; entered in a table nobody holds yet."""

from simulator.core.jit import kernel, prefetch, rare_kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.types import Pool
from simulator.core.vllm import blocks, pool, segment_hits, segment_store, segments, states


@kernel
def cached_in_kind(a: Arrays, replica: int, row: int, kind: int, mix: int, content: int, index: int) -> bool:
    """Whether all groups of a kind have a block cached; enters them."""
    p = a.pools[a.replicas[replica].pool]
    first = a.kinds[p.first_kind + kind].first
    for position in range(first, first + a.kinds[p.first_kind + kind].count):
        group = a.group_order[position]
        place = index * p.num_groups + group
        block = pool.find_mixed(a.blocks, a.buckets, replica, mix, content, place, p.bucket_mask)
        if block == NONE:
            return False
        a.tables[row, group * p.row_blocks + index] = block
    return True


@kernel
def begin_at(a: Arrays, p: Pool, row: int, kind: int, start: int) -> None:
    """Let the tables of a kind begin at block `start`."""
    first = a.kinds[p.first_kind + kind].first
    position = first
    while position < first + a.kinds[p.first_kind + kind].count:
        group = a.group_order[position]
        a.table_starts[row, group] = start
        position += segment_store.lanes_of(a, p, group)


@kernel
def run_from(a: Arrays, replica: int, request: int, row: int, kind: int, start: int, limit: int) -> int:
    """How many blocks a hit has whose blocks in [start, limit) must be cached in a row."""
    p = a.pools[a.replicas[replica].pool]
    block_size = p.block_size * ratio_of_kind(a, p, kind)
    span = a.requests[request].span_start
    content = a.spans[span].content
    mix = pool.mixed(content)
    for index in range(start, limit):
        last_position = (index + 1) * block_size - 1 + p.hash_lookahead_tokens
        if a.spans[span].end <= last_position:
            while a.spans[span].end <= last_position:
                span += 1
            content = a.spans[span].content
            mix = pool.mixed(content)
        if p.num_groups == 1:
            prefetch(a.blocks, a.buckets[replica, (mix + index + pool.AHEAD) & p.bucket_mask])
            block = pool.find_mixed(a.blocks, a.buckets, replica, mix, content, index, p.bucket_mask)
            if block == NONE:
                return index
            a.tables[row, index] = block
        elif not cached_in_kind(a, replica, row, kind, mix, content, index):
            return index
    return max(start, limit)


@kernel
def last_window(a: Arrays, replica: int, request: int, row: int, kind: int, limit: int) -> int:
    """How many blocks a hit has that ends in the last run of `tail` cached blocks, or in a shorter one at the start."""
    p = a.pools[a.replicas[replica].pool]
    tail, ratio = a.groups[p.first_group + a.group_order[a.kinds[p.first_kind + kind].first]].tail, 1
    if p.cache_unit > 1:
        ratio = ratio_of_kind(a, p, kind)
    block_size = p.block_size * ratio
    start = a.requests[request].span_start
    span = start
    while limit > 0 and a.spans[span].end < limit * block_size:
        span += 1
    run, index = 0, limit - 1
    content = a.spans[span].content
    mix = pool.mixed(content)
    while index >= 0:
        if span > start and a.spans[span - 1].end >= (index + 1) * block_size:
            while span > start and a.spans[span - 1].end >= (index + 1) * block_size:
                span -= 1
            content = a.spans[span].content
            mix = pool.mixed(content)
        if run == 0 and p.cache_unit > 1 and (index + 1) * ratio % p.cache_unit != 0:  # no hit ends here
            index -= 1
            continue
        run += 1
        if not cached_in_kind(a, replica, row, kind, mix, content, index):
            run = 0
        if run >= tail:
            begin_at(a, p, row, kind, index)
            return index + run
        index -= 1
    begin_at(a, p, row, kind, 0)
    return run


@kernel
def hit_of_kind(a: Arrays, replica: int, request: int, row: int, kind: int, max_tokens: int) -> int:
    """The smallest blocks of the longest hit of one kind of group within `max_tokens`."""
    p = a.pools[a.replicas[replica].pool]
    if p.cache_unit == 1:
        return own_hit_of_kind(a, replica, request, row, kind, max_tokens // p.block_size, max_tokens)
    ratio = ratio_of_kind(a, p, kind)
    own = own_hit_of_kind(a, replica, request, row, kind, max_tokens // (p.block_size * ratio), max_tokens)
    return own * ratio // p.cache_unit * p.cache_unit


@kernel
def ratio_of_kind(a: Arrays, p: Pool, kind: int) -> int:
    """How many times the tokens of the smallest block one of this kind holds."""
    return int(a.groups[p.first_group + a.group_order[a.kinds[p.first_kind + kind].first]].block_ratio)


@kernel
def own_hit_of_kind(a: Arrays, replica: int, request: int, row: int, kind: int, limit: int, max_tokens: int) -> int:
    """The same in blocks of the kind, of which `limit` lie within `max_tokens`."""
    p = a.pools[a.replicas[replica].pool]
    group = a.group_order[a.kinds[p.first_kind + kind].first]
    of = a.groups[p.first_group + group]
    if p.num_windows > 0 and of.window > 0 and of.chunked == 0:
        if p.in_segments == 1:
            start, end = segment_hits.last_window(a, replica, request, kind, limit)
            begin_at(a, p, row, kind, start)
            return end
        return last_window(a, replica, request, row, kind, limit)
    start = blocks.skipped_blocks(a.groups, p, group, max_tokens)
    begin_at(a, p, row, kind, start)
    if p.in_segments == 1:
        return segment_hits.run_from(a, replica, request, kind, start, limit)
    return run_from(a, replica, request, row, kind, start, limit)


@kernel
def own_blocks(a: Arrays, p: Pool, group: int, hits: int) -> int:
    """How many blocks of a group as many of the smallest are, at the end of a hit."""
    return hits if p.cache_unit == 1 else hits // a.groups[p.first_group + group].block_ratio


@kernel
def first_held(a: Arrays, p: Pool, row: int, group: int, hits: int) -> int:
    """Where the blocks begin that a hit of `hits` blocks holds: those before the window stay where they are."""
    skipped = min(blocks.skipped_blocks(a.groups, p, group, hits * p.block_size), own_blocks(a, p, group, hits))
    return max(skipped, a.table_starts[row, group])


@kernel
def find_hit(a: Arrays, replica: int, request: int, row: int, max_tokens: int) -> int:
    """The blocks of the longest prefix that all groups have within `max_tokens`, entered in the table `row`."""
    p = a.pools[a.replicas[replica].pool]
    if p.num_groups > 1:
        hits = find_common_hit(a, replica, request, row, max_tokens)
    elif p.in_segments == 1 and p.num_windows == 0:
        hits = segment_hits.enter_hit(a, replica, request, row, 0, 0, max_tokens // p.block_size)
    else:
        hits = hit_of_kind(a, replica, request, row, 0, max_tokens)
    if p.num_groups == 1 and hits > 0 and p.drops_last_hit == 1:
        hits -= 1
    if p.in_segments == 1 and p.num_windows > 0 and hits > 0:
        group = 0
        while group < p.num_groups:
            segment_hits.enter_hit(a, replica, request, row, group, first_held(a, p, row, group, hits), hits)
            group += segment_store.lanes_of(a, p, group)
    return hits


@kernel
def find_common_hit(a: Arrays, replica: int, request: int, row: int, max_tokens: int) -> int:
    """The blocks of the longest prefix that several groups have: shortened until every kind agrees.

    Where full attention meets one other kind, once is enough.
    """
    p = a.pools[a.replicas[replica].pool]
    leads_full = a.groups[p.first_group + a.group_order[a.kinds[p.first_kind].first]].window == 0
    full, length, longest = NONE, max_tokens, 0
    while True:
        current = length
        for kind in range(p.num_kinds):
            if kind == 0 and leads_full and full != NONE:
                current = min(current, full)
                continue
            current = hit_of_kind(a, replica, request, row, kind, current) * p.block_size
            if kind == 0 and leads_full:
                full = current
            longest = max(longest, current)
        if current >= length:
            break
        length = current
        if leads_full and p.num_kinds == 2:
            break
    a.requests[request].shared_prefix_boundary = longest if longest > length else 0
    return length // p.block_size


@rare_kernel
def cached_tokens(a: Arrays, replica: int, request: int) -> int:
    """How many tokens of a prompt the engine would find cached, as its KV events tell a router; changes nothing."""
    state = a.replicas[replica]
    p = a.pools[state.pool]
    if p.prefix_caching == 0 or state.is_laid_out == 0:
        return 0
    req = a.requests[request]
    boundary = req.shared_prefix_boundary
    hits = find_hit(a, replica, request, a.free_rows[replica, state.num_free_rows - 1], req.prompt - 1)
    req.shared_prefix_boundary = boundary
    return int(hits * p.block_size)


@kernel
def num_held_free(a: Arrays, p: Pool, row: int, group: int, first: int, last: int) -> int:
    """How many of a table's blocks in [first, last) lie in the free queue: holding them uses free blocks up."""
    start = group * p.row_blocks
    count = 0
    for index in range(start + first, start + last):
        count += a.blocks[a.tables[row, index]].ref_count == 0
    return count


@kernel
def deficit(a: Arrays, replica: int, request: int, row: int, hits: int, full_tokens: int, num_tokens: int) -> int:
    """Blocks missing to admit a request of `hits` cached blocks; positive: it does not fit. Exact where it is positive.

    `full_tokens` must fit, counting for a window only what it ever holds at once, and so must `num_tokens`.
    """
    p = a.pools[a.replicas[replica].pool]
    full_blocks, chunk_blocks = (
        blocks.num_blocks_of(full_tokens, p.block_size),
        blocks.num_blocks_of(num_tokens, p.block_size),
    )
    full, chunk, band = 0, 0, 0
    while band < p.num_groups:
        group, lanes = band, segment_store.lanes_of(a, p, band)
        band += lanes
        held = max(blocks.skipped_blocks(a.groups, p, group, hits * p.block_size), own_blocks(a, p, group, hits))
        cap = a.groups[p.first_group + group].cap
        full_group = blocks.blocks_in(a.groups, p, group, full_blocks)
        if a.groups[p.first_group + group].is_state == 1:
            most = 1 + states.leaves_checkpoint(p, a.requests[request], hits * p.block_size, full_tokens)
            full += min(max(full_group - held, 0), most)
            chunk += min(chunk_blocks - held, 1 + a.requests[request].checkpoint)
            continue
        full += lanes * max((min(full_group, cap) if cap > 0 else full_group) - held, 0)
        chunk += lanes * max(blocks.blocks_in(a.groups, p, group, chunk_blocks) - held, 0)
    missing = max(full, chunk) - a.replicas[replica].num_free_blocks
    if a.replicas[replica].num_running > 0:
        missing += p.watermark_blocks
    if missing + hits * p.num_groups <= 0:
        return missing  # it fits even if every hit uses up a free block
    band = 0
    while band < p.num_groups:
        group = band
        band += segment_store.lanes_of(a, p, group)
        own, first = own_blocks(a, p, group, hits), first_held(a, p, row, group, hits)
        if p.in_segments == 1:
            missing += segment_hits.num_held_free(a, p, row, group, first, own)
        else:
            missing += num_held_free(a, p, row, group, first, own)
    return missing


@kernel
def hold_hits(a: Arrays, replica: int, request: int, row: int, hits: int) -> None:
    """Give the request the table `row` with its first `hits` blocks."""
    p = a.pools[a.replicas[replica].pool]
    if p.in_segments == 1:
        hold_segments(a, replica, p, row, hits)
    else:
        hold_blocks(a, replica, row, hits)
    a.skip_at[row] = 0
    req = a.requests[request]
    req.row = row
    req.num_blocks = hits
    req.cached_blocks = hits


@kernel
def hold_segments(a: Arrays, replica: int, p: Pool, row: int, hits: int) -> None:
    group = 0
    while group < p.num_groups:
        start = first_held(a, p, row, group, hits) if hits > 0 and p.num_windows > 0 else 0
        a.table_starts[row, group] = start
        segments.hold(a, replica, row, group, start, hits)
        group += segment_store.lanes_of(a, p, group)


@kernel
def hold_blocks(a: Arrays, replica: int, row: int, hits: int) -> None:
    p = a.pools[a.replicas[replica].pool]
    for group in range(p.num_groups):
        start = 0
        if hits > 0:
            start = first_held(a, p, row, group, hits)
        a.table_starts[row, group] = start
        first = group * p.row_blocks
        for index in range(first + start, first + own_blocks(a, p, group, hits)):
            was_free = pool.touch(a.blocks, a.free_queue, a.queue_places, replica, a.tables[row, index])
            a.replicas[replica].num_free_blocks -= was_free
            a.replicas[replica].num_cached_free_blocks -= was_free
