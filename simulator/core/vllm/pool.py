"""Which blocks are free, held or cached, compiled.

The twin of `kvcache.layout.block_pool`: the free queue is a circular list through the blocks with the null block as
its sentinel, the cache a hash table whose chains keep duplicates oldest first. A key is a content id with a place:
the block's index, counted through all groups of layers.
"""

from typing import Any

from simulator.core.jit import kernel
from simulator.core.layout import NONE


@kernel
def lay_out(a: Any, replica: int) -> None:
    """Fill the memory of an engine that is used for the first time: all blocks free, in the order of their ids."""
    state = a.replicas[replica]
    first, num_blocks, num_rows = state.first_block, state.num_usable_blocks + 1, a.free_rows.shape[1]
    for index in range(num_blocks):
        block = a.blocks[first + index]
        block.key_content = NONE
        block.next_in_bucket = NONE
        block.previous = first + index - 1
        block.next = first + index + 1
    a.blocks[first].previous = first + num_blocks - 1
    a.blocks[first + num_blocks - 1].next = first
    for bucket in range(a.pools[state.pool].bucket_mask + 1):
        a.buckets[replica, bucket] = NONE
    for index in range(num_rows):
        a.free_rows[replica, index] = (replica + 1) * num_rows - 1 - index
    state.is_laid_out = 1


@kernel
def mixed(content: int) -> int:
    """A content id spread over the buckets."""
    return (((content ^ (content >> 23)) & 0xFFFFFF) * 0x9E3779B1) >> 12


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


@kernel
def unlink(blocks: Any, block: int) -> None:
    before, after = blocks[block].previous, blocks[block].next
    blocks[before].next = after
    blocks[after].previous = before


@kernel
def insert_after(blocks: Any, before: int, block: int) -> None:
    after = blocks[before].next
    blocks[block].previous = before
    blocks[block].next = after
    blocks[before].next = block
    blocks[after].previous = block


@kernel
def touch(blocks: Any, replicas: Any, replica: int, block: int) -> None:
    """Hold a block that a prefix hit found."""
    if blocks[block].ref_count == 0:
        unlink(blocks, block)
        replicas[replica].num_free_blocks -= 1
    blocks[block].ref_count += 1


@kernel
def take(blocks: Any, buckets: Any, replicas: Any, replica: int, sentinel: int, mask: int) -> int:
    """Hold the block at the head of the free queue, evicting what it cached."""
    block = blocks[sentinel].next
    unlink(blocks, block)
    replicas[replica].num_free_blocks -= 1
    if blocks[block].key_content != NONE:
        evict(blocks, buckets, replica, block, mask)
    blocks[block].ref_count = 1
    return block


@kernel
def free_range(
    blocks: Any, replicas: Any, tables: Any, replica: int, row: int, first: int, last: int, sentinel: int
) -> None:
    """Let go of a table's blocks in [first, last) from last to first.

    Without a hash they go to the queue's head, with one to its tail.
    """
    head = sentinel
    for index in range(last - 1, first - 1, -1):
        block = tables[row, index]
        blocks[block].ref_count -= 1
        if blocks[block].ref_count > 0:
            continue
        replicas[replica].num_free_blocks += 1
        replicas[replica].num_freed += 1
        if blocks[block].key_content == NONE:
            insert_after(blocks, head, block)
            head = block
        else:
            insert_after(blocks, blocks[sentinel].previous, block)
