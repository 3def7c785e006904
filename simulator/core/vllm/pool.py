"""Which blocks are free, held or cached, compiled.

The twin of `kvcache.layout.block_pool`: the free queue is a ring of block ids, the cache a hash table whose chains keep
duplicates oldest first. A key is a content id with a place:
the block's index, counted through all groups of layers.
"""

from typing import Any

from simulator.core.jit import kernel, prefetch
from simulator.core.layout import NONE

# Blocks lie scattered over memory: those that are needed soon are loaded so many blocks ahead.
AHEAD = 8


@kernel
def lay_out(a: Any, replica: int) -> None:
    """Fill the memory of an engine that is used for the first time: all blocks free, in the order of their ids."""
    state = a.replicas[replica]
    first, num_blocks, num_rows = state.first_block, state.num_usable_blocks + 1, a.free_rows.shape[1]
    for index in range(num_blocks):
        block = a.blocks[first + index]
        block.key_content = NONE
        block.next_in_bucket = NONE
        a.free_queue[replica, index] = first + 1 + index
        a.queue_places[first + index] = index - 1
    state.queue_tail = state.num_usable_blocks
    for bucket in range(a.pools[state.pool].bucket_mask + 1):
        a.buckets[replica, bucket] = NONE
    for index in range(num_rows):
        a.free_rows[replica, index] = (replica + 1) * num_rows - 1 - index
    state.is_laid_out = 1


@kernel
def mixed(content: int) -> int:
    """A content id spread over the buckets."""
    return (((int(content) ^ (int(content) >> 23)) & 0xFFFFFF) * 0x9E3779B1) >> 12


@kernel
def find_cached(blocks: Any, buckets: Any, replica: int, content: int, index: int, mask: int) -> int:
    """The oldest block cached under (content, index), or NONE."""
    return find_mixed(blocks, buckets, replica, mixed(content), content, index, mask)


@kernel
def find_mixed(blocks: Any, buckets: Any, replica: int, mix: int, content: int, index: int, mask: int) -> int:
    """`find_cached` with `mixed(content)` at hand.

    Successive blocks of one content lie in successive buckets: a prefix is walked through few cache lines.
    """
    block = buckets[replica, (mix + index) & mask]
    while block != NONE:
        if blocks[block].key_content == content and blocks[block].key_index == index:
            return block
        block = blocks[block].next_in_bucket
    return NONE


@kernel
def cache_block(blocks: Any, buckets: Any, replica: int, block: int, content: int, index: int, mask: int) -> None:
    blocks[block].key_content = content
    blocks[block].key_index = index
    blocks[block].next_in_bucket = NONE
    bucket = (mixed(content) + index) & mask
    last = buckets[replica, bucket]
    if last == NONE:
        buckets[replica, bucket] = block
        return
    while blocks[last].next_in_bucket != NONE:
        last = blocks[last].next_in_bucket
    blocks[last].next_in_bucket = block


@kernel
def evict(blocks: Any, buckets: Any, replica: int, block: int, mask: int) -> None:
    bucket = (mixed(blocks[block].key_content) + blocks[block].key_index) & mask
    following = blocks[block].next_in_bucket
    candidate = buckets[replica, bucket]
    if candidate == block:
        buckets[replica, bucket] = following
    else:
        while blocks[candidate].next_in_bucket != block:
            candidate = blocks[candidate].next_in_bucket
        blocks[candidate].next_in_bucket = following
    blocks[block].key_content = NONE


# -- the free queue, a ring of places: blocks come from its head and go to its tail, or back to its head


@kernel
def touch(a: Any, replica: int, block: int) -> None:
    """Hold a block that a prefix hit found; where it was free, its place in the queue stays, empty."""
    if a.blocks[block].ref_count == 0:
        a.free_queue[replica, a.queue_places[block]] = NONE
        a.replicas[replica].num_free_blocks -= 1
    a.blocks[block].ref_count += 1


@kernel
def take(a: Any, replica: int) -> int:
    """Hold the block at the head of the free queue, evicting what it cached."""
    state = a.replicas[replica]
    p = a.pools[state.pool]
    prefetch(a.blocks, a.free_queue[replica, (state.queue_head + AHEAD) & p.queue_mask])
    block = NONE
    while block == NONE:
        block = a.free_queue[replica, state.queue_head & p.queue_mask]
        state.queue_head += 1
    state.num_free_blocks -= 1
    if a.blocks[block].key_content != NONE:
        evict(a.blocks, a.buckets, replica, block, p.bucket_mask)
    a.blocks[block].ref_count = 1
    return block


@kernel
def close_gaps(a: Any, replica: int) -> None:
    """Move the blocks of the free queue together."""
    state = a.replicas[replica]
    mask = a.pools[state.pool].queue_mask
    kept = state.queue_head
    for place in range(state.queue_head, state.queue_tail):
        block = a.free_queue[replica, place & mask]
        if block != NONE:
            a.free_queue[replica, kept & mask] = block
            a.queue_places[block] = kept & mask
            kept += 1
    state.queue_tail = kept


@kernel
def turn_round(a: Any, replica: int, first: int, last: int) -> None:
    """Reverse the blocks at the places [first, last) of the free queue."""
    mask = a.pools[a.replicas[replica].pool].queue_mask
    while first < last - 1:
        last -= 1
        one, other = a.free_queue[replica, first & mask], a.free_queue[replica, last & mask]
        a.free_queue[replica, first & mask], a.free_queue[replica, last & mask] = other, one
        a.queue_places[one], a.queue_places[other] = last & mask, first & mask
        first += 1


@kernel
def free_range(a: Any, replica: int, row: int, first: int, last: int) -> None:
    """Let go of a table's blocks in [first, last) from last to first.

    Without a hash they go to the queue's head, the first of them foremost, with one to its tail.
    """
    state = a.replicas[replica]
    mask = a.pools[state.pool].queue_mask
    if state.queue_tail - state.queue_head + last - first > mask:
        close_gaps(a, replica)
    head, tail = state.queue_head, state.queue_tail
    for index in range(last - 1, first - 1, -1):
        block = a.tables[row, index]
        prefetch(a.blocks, a.tables[row, max(index - AHEAD, first)])
        a.blocks[block].ref_count -= 1
        if a.blocks[block].ref_count > 0:
            continue
        place = tail
        if a.blocks[block].key_content == NONE:
            head -= 1
            place = head
        else:
            tail += 1
        a.free_queue[replica, place & mask] = block
        a.queue_places[block] = place & mask
    num_freed = tail - state.queue_tail + state.queue_head - head
    turn_round(a, replica, head, state.queue_head)
    state.queue_head, state.queue_tail = head, tail
    state.num_free_blocks += num_freed
    state.num_freed += num_freed
