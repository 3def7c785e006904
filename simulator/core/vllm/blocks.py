"""Which blocks a request holds in each group of layers; as vLLM's KV-cache manager."""

from simulator.core.jit import kernel, prefetch_in_row
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.types import Groups, Pool, Request
from simulator.core.vllm import ends, pool, segment_store, segments, states


@kernel
def num_blocks_of(tokens: int, block_size: int) -> int:
    return (tokens + block_size - 1) // block_size


@kernel
def blocks_in(groups: Groups, p: Pool, group: int, num_blocks: int) -> int:
    """The blocks of a group that hold as much as `num_blocks` of the smallest; a state is one block, however long."""
    ratio = groups[p.first_group + group].block_ratio
    return num_blocks if ratio == 1 else (num_blocks + ratio - 1) // ratio


@kernel
def capped(groups: Groups, p: Pool, group: int, num_blocks: int) -> int:
    """As many blocks of a group, at most what a request ever holds of its window at once."""
    cap = groups[p.first_group + group].cap
    return min(num_blocks, cap) if cap > 0 else num_blocks


@kernel
def skipped_blocks(groups: Groups, p: Pool, group: int, tokens: int) -> int:
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
def next_skip(groups: Groups, p: Pool, group: int, tokens: int) -> int:
    """The number of tokens at which `skipped_blocks` grows next, from `tokens` on."""
    of = groups[p.first_group + group]
    window = of.window
    if of.chunked == 1:
        return (tokens // window + 1) * window
    return (skipped_blocks(groups, p, group, tokens) + 1) * p.block_size * of.block_ratio + window - 1


@kernel
def release(a: Arrays, replica: int, request: int) -> None:
    """Give back all blocks of a request."""
    state = a.replicas[replica]
    p = a.pools[state.pool]
    req = a.requests[request]
    if p.in_segments == 1:
        release_segments(a, replica, p, req)
    else:
        release_blocks(a, replica, req)
    ends.note_released(a, replica, req.row)
    a.free_rows[replica, state.num_free_rows] = req.row
    state.num_free_rows += 1
    req.row = NONE
    req.num_blocks = 0
    req.cached_blocks = 0


@kernel
def release_segments(a: Arrays, replica: int, p: Pool, req: Request) -> None:
    group = 0
    while group < p.num_groups:
        segments.release(a, replica, req.row, group, req.num_blocks)
        group += segment_store.lanes_of(a, p, group)
    if p.num_groups > 1:
        a.skip_at[req.row] = NONE  # nobody has this row


@kernel
def release_blocks(a: Arrays, replica: int, req: Request) -> None:
    state = a.replicas[replica]
    p = a.pools[state.pool]
    for group in range(p.num_groups):
        first = group * p.row_blocks
        start, end = first + a.table_starts[req.row, group], first + blocks_in(a.groups, p, group, req.num_blocks)
        if a.groups[p.first_group + group].is_state == 1:
            start = states.close_gaps(a, req.row, start, end)
        pool.free_range(
            state, p.queue_mask, a.blocks, a.free_queue, a.queue_places, a.tables, replica, req.row, start, end
        )


@kernel
def free_skipped(a: Arrays, replica: int, request: int, processed: int) -> None:
    """Give back what lies before each window, counted from the tokens whose steps are over (`processed`)."""
    state = a.replicas[replica]
    p = a.pools[state.pool]
    req = a.requests[request]
    if processed < a.skip_at[req.row]:
        return
    skip_at, skipped, band = p.max_model_len, 0, 0
    while band < p.num_groups:
        group = band
        band += segment_store.lanes_of(a, p, group)
        if a.groups[p.first_group + group].window == 0:
            continue
        start = a.table_starts[req.row, group]
        if a.groups[p.first_group + group].is_like_last == 0 or p.in_segments == 1:  # divisions are slow
            skipped, following = skips(a.groups, p, group, start, processed)
            skip_at = min(skip_at, following)
            skipped = min(skipped, blocks_in(a.groups, p, group, req.num_blocks))
        if skipped > start and p.in_segments == 1:
            segments.skip(a, replica, req, group, skipped)
        elif skipped > start:
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
def skips(groups: Groups, p: Pool, group: int, start: int, tokens: int) -> tuple[int, int]:
    """`skipped_blocks` and `next_skip`; without a division where a window has passed just the table's first block."""
    of = groups[p.first_group + group]
    block_size = p.block_size * of.block_ratio
    following = (start + 2) * block_size + of.window - 1
    if of.chunked == 0 and following - block_size <= tokens < following:
        return start + 1, following
    return skipped_blocks(groups, p, group, tokens), next_skip(groups, p, group, tokens)


@kernel
def num_missing(a: Arrays, p: Pool, request: int, num_blocks: int) -> int:
    """New blocks over all groups, until the request has up to `num_blocks` of the smallest per group."""
    if p.in_segments == 1:
        return int(p.num_groups * (num_blocks - a.requests[request].num_blocks))
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
def grow(a: Arrays, replica: int, request: int, num_blocks: int) -> None:
    """Give the request new blocks up to `num_blocks` of the smallest per group; they must be free."""
    p = a.pools[a.replicas[replica].pool]
    req = a.requests[request]
    if p.in_segments == 1:
        segments.take(a, replica, p.num_groups * max(num_blocks - req.num_blocks, 0))
    else:
        take_blocks(a, replica, req, num_blocks)
    req.num_blocks = max(req.num_blocks, num_blocks)


@kernel
def take_blocks(a: Arrays, replica: int, req: Request, num_blocks: int) -> None:
    p = a.pools[a.replicas[replica].pool]
    for group in range(p.num_groups):
        first = group * p.row_blocks
        start = first + blocks_in(a.groups, p, group, req.num_blocks)
        end = first + blocks_in(a.groups, p, group, num_blocks)
        if a.groups[p.first_group + group].is_state == 1:
            start = states.leave_gap(a, req, start, end)
        for index in range(start, end):
            a.tables[req.row, index] = pool.take(a.replicas[replica], p, a.blocks, a.free_queue, a.buckets, replica)


@kernel
def cache(a: Arrays, replica: int, request: int, num_tokens: int) -> None:
    """Hash the request's blocks that `num_tokens` tokens fill, as far as tokens are known that the hashes cover."""
    p = a.pools[a.replicas[replica].pool]
    req = a.requests[request]
    cache_known(a, replica, request, min(num_tokens, req.prompt + req.output - p.hash_lookahead_tokens))


@kernel
def cache_known(a: Arrays, replica: int, request: int, num_tokens: int) -> None:
    """The same where so many tokens are known that the hashes cover."""
    p = a.pools[a.replicas[replica].pool]
    req = a.requests[request]
    if p.prefix_caching == 0 or num_tokens < (req.cached_blocks + p.cache_unit) * p.block_size:  # divisions are slow
        return
    num_full = num_tokens // (p.block_size * p.cache_unit) * p.cache_unit
    if p.in_segments == 1:
        cache_segments(a, replica, req, num_full)
    elif p.cache_unit > 1:
        cache_unequal_blocks(a, replica, req, num_full)
    else:
        cache_blocks(a, replica, request, num_full)
    req.cached_blocks = num_full


@kernel
def cache_segments(a: Arrays, replica: int, req: Request, num_full: int) -> None:
    p = a.pools[a.replicas[replica].pool]
    if p.num_windows == 0:
        cache_run(a, replica, p, req, 0, req.cached_blocks, num_full)
        return
    group = 0
    while group < p.num_groups:
        begin = max(req.cached_blocks, a.table_starts[req.row, group])
        end = begin
        while not is_rest_unhashed(a, p, req, group, end):
            begin, end = next_retained(a, p, req, group, end, num_full)
            if begin >= num_full:
                break
            cache_run(a, replica, p, req, group, begin, end)
        group += segment_store.lanes_of(a, p, group)


@kernel
def cache_run(a: Arrays, replica: int, p: Pool, req: Request, group: int, begin: int, num_full: int) -> None:
    """Cache a band's blocks [begin, num_full), content by content."""
    span = req.span_start
    while begin < num_full:
        last = a.spans[span].end - p.hash_lookahead_tokens
        if last >= (begin + 1) * p.block_size:
            end = num_full if last >= num_full * p.block_size else last // p.block_size  # divisions are slow
            segments.cache(a, replica, req.row, group, a.spans[span].content, begin, end)
            begin = end
        span += 1


@kernel
def cache_blocks(a: Arrays, replica: int, request: int, num_full: int) -> None:
    p = a.pools[a.replicas[replica].pool]
    req = a.requests[request]
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
            if index >= a.table_starts[req.row, group] and is_retained(a, p, req, group, index):
                block = a.tables[req.row, group * p.row_blocks + index]
                place = index * p.num_groups + group
                if block != NONE:  # a gap between states
                    pool.cache_block(a.blocks, a.buckets, replica, block, content, place, p.bucket_mask)


@kernel
def cache_unequal_blocks(a: Arrays, replica: int, req: Request, num_full: int) -> None:
    """The same where groups have blocks of their own size: up to the end of a whole one of every group."""
    p = a.pools[a.replicas[replica].pool]
    for group in range(p.num_groups):
        ratio = a.groups[p.first_group + group].block_ratio
        span = req.span_start
        for index in range(max(req.cached_blocks // ratio, a.table_starts[req.row, group]), num_full // ratio):
            if not is_retained(a, p, req, group, index):
                continue
            last_position = (index + 1) * ratio * p.block_size - 1 + p.hash_lookahead_tokens
            while a.spans[span].end <= last_position:
                span += 1
            block = a.tables[req.row, group * p.row_blocks + index]
            place = index * p.num_groups + group
            pool.cache_block(a.blocks, a.buckets, replica, block, a.spans[span].content, place, p.bucket_mask)


@kernel
def look_ahead(a: Arrays, replica: int, request: int, num_tokens: int) -> None:
    """Begin to load where the request's next block is cached, before blocks are taken: both wait for memory."""
    p = a.pools[a.replicas[replica].pool]
    req = a.requests[request]
    end = (req.cached_blocks + 1) * p.block_size
    num_tokens = min(num_tokens, req.prompt + req.output - p.hash_lookahead_tokens)
    if p.prefix_caching == 0 or p.num_windows > 0 or p.in_segments == 1 or num_tokens < end:
        return
    span = req.span_start
    while a.spans[span].end < end:
        span += 1
    bucket = (pool.mixed(a.spans[span].content) + req.cached_blocks) & p.bucket_mask
    prefetch_in_row(a.buckets, replica, bucket)


@kernel
def is_retained(a: Arrays, p: Pool, req: Request, group: int, index: int) -> bool:
    """Whether a window's block is worth finding again (vLLM `SlidingWindowManager.reachable_block_mask`)."""
    return retained_until(a, p, req, group, index) > index


@kernel
def retained_until(a: Arrays, p: Pool, req: Request, group: int, index: int) -> int:
    """Up to where the blocks from `index` on are retained, or further on again; `index` where it is not."""
    of = a.groups[p.first_group + group]
    tail = of.tail
    if tail == 0:  # full or chunked attention keeps everything
        return p.max_model_len
    if p.retention_interval == NONE and p.cache_unit == 1:
        return p.max_model_len
    found, every = index, retained_every(a, p, group)
    if every > 0:
        if tail >= every:
            return p.max_model_len
        if index % every >= every - tail:
            found = (index // every + 1) * every
    for end in retained_ends(a, p, req, group):
        if end - tail <= index < end:
            found = max(found, end)
    return found


@kernel
def is_rest_unhashed(a: Arrays, p: Pool, req: Request, group: int, index: int) -> bool:
    """Whether no block from `index` on is retained for sure, as in most of an answer: divisions are slow."""
    if p.retention_interval != 0 or a.groups[p.first_group + group].tail == 0:
        return False
    return bool(index * p.block_size >= max(req.prompt - 1, req.shared_prefix_boundary))


@kernel
def next_retained(a: Arrays, p: Pool, req: Request, group: int, index: int, limit: int) -> tuple[int, int]:
    """The next run of retained blocks in [index, limit); it begins at `limit` where there is none."""
    of = a.groups[p.first_group + group]
    end = min(retained_until(a, p, req, group, index), limit)
    if end > index or index >= limit:
        return min(index, limit), end
    found, every = limit, retained_every(a, p, group)
    if every > 0:
        found = min(found, (index // every + 1) * every - of.tail)
    for end in retained_ends(a, p, req, group):
        if end - of.tail > index:
            found = min(found, end - of.tail)
    return found, min(retained_until(a, p, req, group, found), limit)


@kernel
def retained_every(a: Arrays, p: Pool, group: int) -> int:
    """A window's blocks are retained before each multiple of so many blocks of its group; 0: of none."""
    ratio = a.groups[p.first_group + group].block_ratio
    if p.retention_interval == NONE:
        return p.cache_unit // ratio
    return p.retention_interval // (p.block_size * ratio)


@kernel
def retained_ends(a: Arrays, p: Pool, req: Request, group: int) -> tuple[int, int]:
    """Where a window's blocks are retained before, counted in blocks of its group: the prompt's end and a junction."""
    unit = p.cache_unit // a.groups[p.first_group + group].block_ratio  # between two ends of hits
    unit_tokens = p.block_size * p.cache_unit
    return (req.prompt - 1) // unit_tokens * unit, req.shared_prefix_boundary // unit_tokens * unit


@kernel
def is_cached(a: Arrays, replica: int, content: int, index: int) -> bool:
    p = a.pools[a.replicas[replica].pool]
    if p.in_segments == 1:
        return bool(segments.find(a, replica, segment_store.key_of(p, content, 0), index) != NONE)
    return bool(pool.find_cached(a.blocks, a.buckets, replica, content, index, p.bucket_mask) != NONE)
