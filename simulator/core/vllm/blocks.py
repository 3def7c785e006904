"""Which blocks a request holds in each group of layers; the compiled twin of vLLM's KV-cache manager."""

from typing import Any

from simulator.core.jit import kernel, prefetch, prefetch_in_row
from simulator.core.layout import NONE
from simulator.core.vllm import pool, states


@kernel
def num_blocks_of(tokens: int, block_size: int) -> int:
    return (tokens + block_size - 1) // block_size


@kernel
def blocks_in(groups: Any, p: Any, group: int, num_blocks: int) -> int:
    """The blocks of a group that hold as much as `num_blocks` of the smallest; a state is one block, however long."""
    ratio = groups[p.first_group + group].block_ratio
    return num_blocks if ratio == 1 else (num_blocks + ratio - 1) // ratio


@kernel
def skipped_blocks(groups: Any, p: Any, group: int, tokens: int) -> int:
    """Blocks that no token after the first `tokens` attends to."""
    of = groups[p.first_group + group]
    window = of.window
    if p.num_windows == 0 or window == 0:
        return 0
    block_size = p.block_size * of.block_ratio
    if of.chunked == 1:
        return tokens // window * window // block_size
    return max(tokens - window + 1, 0) // block_size


@kernel
def next_skip(groups: Any, p: Any, group: int, tokens: int) -> int:
    """The number of tokens at which `skipped_blocks` grows next, from `tokens` on."""
    of = groups[p.first_group + group]
    window = of.window
    if of.chunked == 1:
        return (tokens // window + 1) * window
    return (skipped_blocks(groups, p, group, tokens) + 1) * p.block_size * of.block_ratio + window - 1


@kernel
def release(a: Any, replica: int, request: int) -> None:
    """Give back all blocks of a request."""
    state = a.replicas[replica]
    p = a.pools[state.pool]
    req = a.requests[request]
    for group in range(p.num_groups):
        first = group * p.row_blocks
        start, end = first + a.table_starts[req.row, group], first + blocks_in(a.groups, p, group, req.num_blocks)
        if a.groups[p.first_group + group].is_state == 1:
            start = states.close_gaps(a, req.row, start, end)
        pool.free_range(
            state, p.queue_mask, a.blocks, a.free_queue, a.queue_places, a.tables, replica, req.row, start, end
        )
    a.free_rows[replica, state.num_free_rows] = req.row
    state.num_free_rows += 1
    req.row = NONE
    req.num_blocks = 0
    req.cached_blocks = 0


@kernel
def free_skipped(a: Any, replica: int, request: int) -> None:
    """Give back what lies before each window, counted from the tokens whose steps are over."""
    state = a.replicas[replica]
    p = a.pools[state.pool]
    req = a.requests[request]
    processed = max(req.computed - req.in_flight, 0)
    if processed < a.skip_at[req.row]:
        return
    skip_at = p.max_model_len
    for group in range(p.num_groups):
        if a.groups[p.first_group + group].window == 0:
            continue
        skip_at = min(skip_at, next_skip(a.groups, p, group, processed))
        start = a.table_starts[req.row, group]
        skipped = min(skipped_blocks(a.groups, p, group, processed), blocks_in(a.groups, p, group, req.num_blocks))
        if skipped > start:
            first = group * p.row_blocks
            start, end = first + start, first + skipped
            if a.groups[p.first_group + group].is_state == 1:
                start = states.close_gaps(a, req.row, start, end)
            pool.free_range(
                state, p.queue_mask, a.blocks, a.free_queue, a.queue_places, a.tables, replica, req.row, start, end
            )
            a.table_starts[req.row, group] = skipped
    a.skip_at[req.row] = skip_at


@kernel
def num_missing(a: Any, p: Any, request: int, num_blocks: int) -> int:
    """New blocks over all groups, until the request has up to `num_blocks` of the smallest per group."""
    count = 0
    for group in range(p.num_groups):
        count += blocks_in(a.groups, p, group, num_blocks) - blocks_in(
            a.groups, p, group, a.requests[request].num_blocks
        )
    if p.num_states > 0:
        gaps = num_blocks - a.requests[request].num_blocks - 1 - a.requests[request].checkpoint
        count -= p.num_states * max(gaps, 0)
    return count


@kernel
def grow(a: Any, replica: int, request: int, num_blocks: int) -> None:
    """Give the request new blocks up to `num_blocks` of the smallest per group; they must be free."""
    p = a.pools[a.replicas[replica].pool]
    req = a.requests[request]
    for group in range(p.num_groups):
        first = group * p.row_blocks
        start = first + blocks_in(a.groups, p, group, req.num_blocks)
        end = first + blocks_in(a.groups, p, group, num_blocks)
        if a.groups[p.first_group + group].is_state == 1:
            start = states.leave_gap(a, req, start, end)
        for index in range(start, end):
            a.tables[req.row, index] = pool.take(a.replicas[replica], p, a.blocks, a.free_queue, a.buckets, replica)
    req.num_blocks = max(req.num_blocks, num_blocks)


@kernel
def cache(a: Any, replica: int, request: int, num_tokens: int) -> None:
    """Hash the request's blocks that `num_tokens` tokens fill, as far as tokens are known that the hashes cover."""
    p = a.pools[a.replicas[replica].pool]
    req = a.requests[request]
    num_tokens = min(num_tokens, req.prompt + req.output - p.hash_lookahead_tokens)
    if p.prefix_caching == 0 or num_tokens < (req.cached_blocks + 1) * p.block_size:  # divisions are slow here
        return
    num_full = num_tokens // p.block_size
    span = req.span_start
    for index in range(req.cached_blocks, num_full):
        last_position = (index + 1) * p.block_size - 1 + p.hash_lookahead_tokens
        while a.spans[span].end <= last_position:
            span += 1
        content = a.spans[span].content
        if p.num_windows == 0:  # all layers attend to everything, so there is one group
            pool.cache_block(a.blocks, a.buckets, replica, a.tables[req.row, index], content, index, p.bucket_mask)
            continue
        for group in range(p.num_groups):
            if index >= a.table_starts[req.row, group] and is_retained(a, p, request, group, index):
                block = a.tables[req.row, group * p.row_blocks + index]
                place = index * p.num_groups + group
                if block != NONE:  # a gap between states
                    pool.cache_block(a.blocks, a.buckets, replica, block, content, place, p.bucket_mask)
    req.cached_blocks = num_full


@kernel
def look_ahead(a: Any, replica: int, request: int, num_tokens: int) -> None:
    """Begin to load where the request's next block is cached, before blocks are taken: both wait for memory."""
    p = a.pools[a.replicas[replica].pool]
    req = a.requests[request]
    end = (req.cached_blocks + 1) * p.block_size
    num_tokens = min(num_tokens, req.prompt + req.output - p.hash_lookahead_tokens)
    if p.prefix_caching == 0 or p.num_windows > 0 or num_tokens < end:
        return
    span = req.span_start
    while a.spans[span].end < end:
        span += 1
    bucket = (pool.mixed(a.spans[span].content) + req.cached_blocks) & p.bucket_mask
    prefetch_in_row(a.buckets, replica, bucket)


@kernel
def is_retained(a: Any, p: Any, request: int, group: int, index: int) -> bool:
    """Whether a window's block is worth finding again (vLLM `SlidingWindowManager.reachable_block_mask`)."""
    tail = a.groups[p.first_group + group].tail
    if tail == 0 or p.retention_interval == NONE:  # full or chunked attention keeps everything
        return True
    if p.retention_interval > 0:
        segment = p.retention_interval // p.block_size
        if tail >= segment or index % segment >= segment - tail:
            return True
    req = a.requests[request]
    end = (req.prompt - 1) // p.block_size
    junction = req.shared_prefix_boundary // p.block_size
    return end - tail <= index < end or junction - tail <= index < junction


# -- prefix hits; they are entered in the table `row`, which nobody holds yet


@kernel
def cached_in_kind(a: Any, replica: int, row: int, kind: int, mix: int, content: int, index: int) -> bool:
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
def begin_at(a: Any, p: Any, row: int, kind: int, start: int) -> None:
    """Let the tables of a kind begin at block `start`."""
    first = a.kinds[p.first_kind + kind].first
    for position in range(first, first + a.kinds[p.first_kind + kind].count):
        a.table_starts[row, a.group_order[position]] = start


@kernel
def run_from(a: Any, replica: int, request: int, row: int, kind: int, start: int, limit: int) -> int:
    """How many blocks a hit has whose blocks in [start, limit) must be cached in a row."""
    p = a.pools[a.replicas[replica].pool]
    span = a.requests[request].span_start
    content = a.spans[span].content
    mix = pool.mixed(content)
    for index in range(start, limit):
        last_position = (index + 1) * p.block_size - 1 + p.hash_lookahead_tokens
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
def last_window(a: Any, replica: int, request: int, row: int, kind: int, limit: int) -> int:
    """How many blocks a hit has that ends in the last run of `tail` cached blocks, or in a shorter one at the start."""
    p = a.pools[a.replicas[replica].pool]
    tail = a.groups[p.first_group + a.group_order[a.kinds[p.first_kind + kind].first]].tail
    start = a.requests[request].span_start
    span = start
    while limit > 0 and a.spans[span].end < limit * p.block_size:
        span += 1
    run, index = 0, limit - 1
    content = a.spans[span].content
    mix = pool.mixed(content)
    while index >= 0:
        if span > start and a.spans[span - 1].end >= (index + 1) * p.block_size:
            while span > start and a.spans[span - 1].end >= (index + 1) * p.block_size:
                span -= 1
            content = a.spans[span].content
            mix = pool.mixed(content)
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
def hit_of_kind(a: Any, replica: int, request: int, row: int, kind: int, max_tokens: int) -> int:
    """The blocks of the longest hit of one kind of group within `max_tokens`."""
    p = a.pools[a.replicas[replica].pool]
    limit = max_tokens // p.block_size
    group = a.group_order[a.kinds[p.first_kind + kind].first]
    of = a.groups[p.first_group + group]
    if p.num_windows > 0 and of.window > 0 and of.chunked == 0:
        return last_window(a, replica, request, row, kind, limit)
    start = skipped_blocks(a.groups, p, group, max_tokens)
    begin_at(a, p, row, kind, start)
    return run_from(a, replica, request, row, kind, start, limit)


@kernel
def find_hit(a: Any, replica: int, request: int, row: int, max_tokens: int) -> int:
    """The blocks of the longest prefix that all groups have within `max_tokens`: shortened until every kind agrees.

    Where full attention meets one other kind, once is enough.
    """
    p = a.pools[a.replicas[replica].pool]
    if p.num_groups == 1:
        hits = hit_of_kind(a, replica, request, row, 0, max_tokens)
        return hits - 1 if hits > 0 and p.drops_last_hit == 1 else hits
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


@kernel
def num_held_free(a: Any, p: Any, row: int, group: int, first: int, last: int) -> int:
    """How many of a table's blocks in [first, last) lie in the free queue: holding them uses free blocks up."""
    start = group * p.row_blocks
    count = 0
    for index in range(start + first, start + last):
        count += a.blocks[a.tables[row, index]].ref_count == 0
    return count


@kernel
def deficit(a: Any, replica: int, request: int, row: int, hits: int, full_tokens: int, num_tokens: int) -> int:
    """Blocks missing to admit a request of `hits` cached blocks; positive: it does not fit. Exact where it is positive.

    `full_tokens` must fit, counting for a window only what it ever holds at once, and so must `num_tokens`.
    """
    p = a.pools[a.replicas[replica].pool]
    full_blocks, chunk_blocks = num_blocks_of(full_tokens, p.block_size), num_blocks_of(num_tokens, p.block_size)
    full, chunk = 0, 0
    for group in range(p.num_groups):
        held = max(skipped_blocks(a.groups, p, group, hits * p.block_size), hits)
        cap = a.groups[p.first_group + group].cap
        full_group = blocks_in(a.groups, p, group, full_blocks)
        if a.groups[p.first_group + group].is_state == 1:
            most = 1 + states.leaves_checkpoint(p, a.requests[request], hits * p.block_size, full_tokens)
            full += min(max(full_group - held, 0), most)
            chunk += min(chunk_blocks - held, 1 + a.requests[request].checkpoint)
            continue
        full += max((min(full_group, cap) if cap > 0 else full_group) - held, 0)
        chunk += max(blocks_in(a.groups, p, group, chunk_blocks) - held, 0)
    missing = max(full, chunk) - a.replicas[replica].num_free_blocks
    if a.replicas[replica].num_running > 0:
        missing += p.watermark_blocks
    if missing + hits * p.num_groups <= 0:
        return missing  # it fits even if every hit uses up a free block
    for group in range(p.num_groups):
        missing += num_held_free(a, p, row, group, first_held(a, p, row, group, hits), hits)
    return missing


@kernel
def first_held(a: Any, p: Any, row: int, group: int, hits: int) -> int:
    """Where the blocks begin that a hit of `hits` blocks holds: those before the window stay where they are."""
    skipped = min(skipped_blocks(a.groups, p, group, hits * p.block_size), hits)
    return max(skipped, a.table_starts[row, group])


@kernel
def hold_hits(a: Any, replica: int, request: int, row: int, hits: int) -> None:
    """Give the request the table `row` with its first `hits` blocks."""
    p = a.pools[a.replicas[replica].pool]
    for group in range(p.num_groups):
        start = 0
        if hits > 0:
            start = first_held(a, p, row, group, hits)
        a.table_starts[row, group] = start
        first = group * p.row_blocks
        for index in range(first + start, first + hits):
            was_free = pool.touch(a.blocks, a.free_queue, a.queue_places, replica, a.tables[row, index])
            a.replicas[replica].num_free_blocks -= was_free
            a.replicas[replica].num_cached_free_blocks -= was_free
    a.skip_at[row] = 0
    req = a.requests[request]
    req.row = row
    req.num_blocks = hits
    req.cached_blocks = hits
