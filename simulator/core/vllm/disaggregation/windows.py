"""Requests of models with sliding windows that hold what comes from elsewhere, or keep it, compiled.

As in `conformance.reference.vllm.kv_cache_manager`, where a part of a prompt is loaded: what lies before a window has
no block. All groups have blocks of one size.
"""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.state import Arrays
from simulator.core.types import Pool
from simulator.core.vllm import blocks, pool


@kernel
def first_held(a: Arrays, p: Pool, row: int, group: int, hits: int, tokens: int) -> int:
    """Where the blocks begin that a request with `tokens` tokens holds, `hits` of them cached."""
    skipped = blocks.skipped_blocks(a.groups, p, group, tokens)
    return int(max(skipped, a.table_starts[row, group]) if hits > 0 else skipped)


@rare_kernel
def hold(a: Arrays, replica: int, request: int, row: int, hits: int, tokens: int) -> None:
    """Give the request the table `row` with those of its cached blocks that `tokens` tokens leave in a window."""
    state = a.replicas[replica]
    p, req = a.pools[state.pool], a.requests[request]
    for group in range(p.num_groups):
        start = first_held(a, p, row, group, hits, tokens)
        a.table_starts[row, group] = start
        first = group * p.row_blocks
        for index in range(first + start, first + hits):
            was_free = pool.touch(a.blocks, a.free_queue, a.queue_places, replica, a.tables[row, index])
            state.num_free_blocks -= was_free
            state.num_cached_free_blocks -= was_free
    a.skip_at[row] = 0
    req.row, req.num_blocks, req.cached_blocks = row, hits, hits


@rare_kernel
def grow(a: Arrays, replica: int, request: int, hits: int, num_blocks: int) -> None:
    """Take the blocks that are loaded; they must be free."""
    p, req = a.pools[a.replicas[replica].pool], a.requests[request]
    for group in range(p.num_groups):
        first = group * p.row_blocks
        for index in range(first + max(hits, a.table_starts[req.row, group]), first + num_blocks):
            a.tables[req.row, index] = pool.take(a.replicas[replica], p, a.blocks, a.free_queue, a.buckets, replica)
    req.num_blocks = num_blocks


@rare_kernel
def free(a: Arrays, replica: int, row: int, num_blocks: int, was_deferred: int) -> None:
    """Give back what a table holds, group by group; all at once from the end on where it waited for a step."""
    p = a.pools[a.replicas[replica].pool]
    if was_deferred == 0:
        for group in range(p.num_groups):
            free_group(a, replica, row, group, num_blocks)
        return
    head = a.replicas[replica].queue_head
    for group in range(p.num_groups - 1, -1, -1):
        before = a.replicas[replica].queue_head
        free_group(a, replica, row, group, num_blocks)
        turn_head(a, replica, before)
    turn_head(a, replica, head)  # those that came to the queue's head lie there in one order, too


@kernel
def free_group(a: Arrays, replica: int, row: int, group: int, num_blocks: int) -> None:
    state = a.replicas[replica]
    p = a.pools[state.pool]
    first = group * p.row_blocks
    start = first + a.table_starts[row, group] if p.num_windows > 0 else first
    pool.free_range(
        state, p.queue_mask, a.blocks, a.free_queue, a.queue_places, a.tables, replica, row, start, first + num_blocks
    )


@kernel
def turn_head(a: Arrays, replica: int, until: int) -> None:
    """Turn round what lies at the queue's head up to a place."""
    state = a.replicas[replica]
    mask = a.pools[state.pool].queue_mask
    pool.turn_round(a.free_queue, a.queue_places, replica, mask, state.queue_head, until)
