"""Which blocks are free, held or cached, compiled.

As in `conformance.reference.block_pool`: the free queue is a ring of block ids, the cache a hash table whose chains
keep duplicates oldest first. A key is a content id with a place:
the block's index, counted through all groups of layers.
"""

from simulator.core.jit import kernel, prefetch, prefetch_in_row
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.types import Blocks, BlockTables, Buckets, FreeQueue, Pool, QueuePlaces, Replica
from simulator.core.vllm import ends

# Blocks lie scattered over memory: those that are needed soon are loaded so many blocks ahead.
AHEAD = 16


@kernel
def lay_out(a: Arrays, replica: int) -> None:
    """Fill the memory of an engine that is used for the first time: all blocks free, in the order of their ids."""
    state = a.replicas[replica]
    num_rows = a.free_rows.shape[1]
    for bucket in range(a.pools[state.pool].bucket_mask + 1):
        a.buckets[replica, bucket] = NONE
    for index in range(num_rows):
        a.free_rows[replica, index] = (replica + 1) * num_rows - 1 - index
        a.skip_at[replica * num_rows + index] = NONE  # nobody has this row
    if a.pools[state.pool].in_segments == 1:
        state.queue_head = state.queue_tail = state.spare_segment = NONE
    else:
        fill_queue(a, replica)
    ends.lay_out(a, replica)
    state.is_laid_out = 1


@kernel
def fill_queue(a: Arrays, replica: int) -> None:
    state = a.replicas[replica]
    first, num_blocks = state.first_block, state.num_usable_blocks + 1
    for index in range(num_blocks):
        block = a.blocks[first + index]
        block.key_content = NONE
        block.next_in_bucket = NONE
        a.free_queue[replica, index] = first + 1 + index
        a.queue_places[first + index] = index - 1
    state.queue_tail = state.num_usable_blocks


@kernel
def mixed(content: int) -> int:
    """A content id spread over the buckets."""
    return (((int(content) ^ (int(content) >> 23)) & 0xFFFFFF) * 0x9E3779B1) >> 12


@kernel
def find_cached(blocks: Blocks, buckets: Buckets, replica: int, content: int, index: int, mask: int) -> int:
    """The oldest block cached under (content, index), or NONE."""
    return find_mixed(blocks, buckets, replica, mixed(content), content, index, mask)


@kernel
def find_mixed(blocks: Blocks, buckets: Buckets, replica: int, mix: int, content: int, index: int, mask: int) -> int:
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
def cache_block(
    blocks: Blocks, buckets: Buckets, replica: int, block: int, content: int, index: int, mask: int
) -> None:
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
def evict(blocks: Blocks, buckets: Buckets, replica: int, block: int, mask: int) -> None:
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
def touch(blocks: Blocks, queue: FreeQueue, places: QueuePlaces, replica: int, block: int) -> int:
    """Hold a block that a prefix hit found; 1 where it was free: then its place in the queue stays, empty."""
    blocks[block].ref_count += 1
    if blocks[block].ref_count > 1:
        return 0
    queue[replica, places[block]] = NONE
    return 1


@kernel
def take(state: Replica, p: Pool, blocks: Blocks, queue: FreeQueue, buckets: Buckets, replica: int) -> int:
    """Hold the block at the head of the free queue, evicting what it cached."""
    prefetch(blocks, queue[replica, (state.queue_head + AHEAD) & p.queue_mask])
    block = NONE
    while block == NONE:
        block = queue[replica, state.queue_head & p.queue_mask]
        state.queue_head += 1
    state.num_free_blocks -= 1
    if blocks[block].key_content != NONE:
        evict(blocks, buckets, replica, block, p.bucket_mask)
        state.num_cached_free_blocks -= 1
    blocks[block].ref_count = 1
    return block


@kernel
def look_ahead(state: Replica, p: Pool, blocks: Blocks, queue: FreeQueue, buckets: Buckets, replica: int) -> None:
    """Begin to load what the next steps hold of the free queue, and where it is cached."""
    prefetch(blocks, queue[replica, (state.queue_head + 2) & p.queue_mask])
    if state.num_free_blocks == 0:
        return
    block = queue[replica, state.queue_head & p.queue_mask]
    if block != NONE and blocks[block].key_content != NONE:
        bucket = (mixed(blocks[block].key_content) + blocks[block].key_index) & p.bucket_mask
        prefetch_in_row(buckets, replica, bucket)


@kernel
def close_gaps(queue: FreeQueue, places: QueuePlaces, replica: int, mask: int, head: int, tail: int) -> int:
    """Move the blocks of the free queue together; returns its new tail."""
    kept = head
    for place in range(head, tail):
        block = queue[replica, place & mask]
        if block != NONE:
            queue[replica, kept & mask] = block
            places[block] = kept & mask
            kept += 1
    return kept


@kernel
def turn_round(queue: FreeQueue, places: QueuePlaces, replica: int, mask: int, first: int, last: int) -> None:
    """Reverse the blocks at the places [first, last) of the free queue."""
    while first < last - 1:
        last -= 1
        block = queue[replica, first & mask]
        queue[replica, first & mask] = queue[replica, last & mask]
        queue[replica, last & mask] = block
        places[block] = last & mask
        places[queue[replica, first & mask]] = first & mask
        first += 1


@kernel
def free_range(
    state: Replica,
    mask: int,
    blocks: Blocks,
    queue: FreeQueue,
    places: QueuePlaces,
    tables: BlockTables,
    replica: int,
    row: int,
    first: int,
    last: int,
) -> None:
    """Let go of a table's blocks in [first, last) from last to first.

    Without a hash they go to the queue's head, the first of them foremost, with one to its tail.
    """
    if state.queue_tail - state.queue_head + last - first > mask:
        state.queue_tail = close_gaps(queue, places, replica, mask, state.queue_head, state.queue_tail)
    head, tail = state.queue_head, state.queue_tail
    for index in range(last - 1, first - 1, -1):
        block = tables[row, index]
        prefetch(blocks, tables[row, max(index - AHEAD, first)])
        blocks[block].ref_count -= 1
        if blocks[block].ref_count > 0:
            continue
        place = tail
        if blocks[block].key_content == NONE:
            head -= 1
            place = head
        else:
            tail += 1
        queue[replica, place & mask] = block
        places[block] = place & mask
    num_freed = tail - state.queue_tail + state.queue_head - head
    turn_round(queue, places, replica, mask, head, state.queue_head)
    state.num_cached_free_blocks += tail - state.queue_tail
    state.queue_head, state.queue_tail = head, tail
    state.num_free_blocks += num_freed
    state.num_freed += num_freed
