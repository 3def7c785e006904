"""Which chunks of KV lie in host memory, compiled: the twin of `simulator.engines.vllm.connectors.host_cache`.

A chunk is one block. All lie in one list by their last use, under ARC in two, with two more of what went (`eviction`).
A hash table finds them by content and place.
"""

from typing import Any

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.vllm.pool import mixed

WRITING = -1  # instead of a number of reads: its first copy is under way


@kernel
def lay_out(a: Any, replica: int) -> None:
    """An empty cache: every chunk in the list of the free ones."""
    tier, p = a.tiers[replica], a.pools[a.replicas[replica].pool]
    num_records = 3 * p.host_chunks if p.evicts_by_arc == 1 else p.host_chunks
    for chunk in range(num_records):
        a.chunks[replica, chunk].newer = chunk + 1
    a.chunks[replica, num_records - 1].newer = NONE
    for bucket in range(p.chunk_mask + 1):
        a.chunk_buckets[replica, bucket] = NONE
    tier.free_chunk = 0
    tier.num_free = p.host_chunks


@kernel
def find(a: Any, replica: int, content: int, index: int) -> int:
    """The chunk of a block, or NONE."""
    bucket = (mixed(content) + index) & a.pools[a.replicas[replica].pool].chunk_mask
    chunk = a.chunk_buckets[replica, bucket]
    while chunk != NONE:
        if a.chunks[replica, chunk].key_content == content and a.chunks[replica, chunk].key_index == index:
            return chunk
        chunk = a.chunks[replica, chunk].next_in_bucket
    return NONE


@rare_kernel
def insert(a: Any, replica: int, content: int, index: int) -> int:
    """Take a free chunk for a block whose copy begins."""
    tier = a.tiers[replica]
    chunk = tier.free_chunk
    of = a.chunks[replica, chunk]
    tier.free_chunk = of.newer
    tier.num_free -= 1
    of.reads = WRITING
    enter_bucket(a, replica, chunk, content, index)
    return chunk


@kernel
def ghost_of(index: int) -> int:
    """The index of what ARC remembers of a block that went."""
    return -1 - index


@kernel
def remove(a: Any, replica: int, chunk: int) -> None:
    """A chunk, or a ghost, that is in no list is there no more."""
    tier, of = a.tiers[replica], a.chunks[replica, chunk]
    leave_bucket(a, replica, chunk)
    of.newer = tier.free_chunk
    tier.free_chunk = chunk


@kernel
def enter_bucket(a: Any, replica: int, chunk: int, content: int, index: int) -> None:
    of = a.chunks[replica, chunk]
    of.key_content = content
    of.key_index = index
    bucket = (mixed(content) + index) & a.pools[a.replicas[replica].pool].chunk_mask
    of.next_in_bucket = a.chunk_buckets[replica, bucket]
    a.chunk_buckets[replica, bucket] = chunk


@kernel
def leave_bucket(a: Any, replica: int, chunk: int) -> None:
    of = a.chunks[replica, chunk]
    bucket = (mixed(of.key_content) + of.key_index) & a.pools[a.replicas[replica].pool].chunk_mask
    other = a.chunk_buckets[replica, bucket]
    if other == chunk:
        a.chunk_buckets[replica, bucket] = of.next_in_bucket
        return
    while a.chunks[replica, other].next_in_bucket != chunk:
        other = a.chunks[replica, other].next_in_bucket
    a.chunks[replica, other].next_in_bucket = of.next_in_bucket


@kernel
def append(a: Any, replica: int, chunk: int, into: int) -> None:
    tier, of = a.tiers[replica], a.chunks[replica, chunk]
    newest = tier.newest[into]
    of.list = into
    of.older = newest
    of.newer = NONE
    if newest == NONE:
        tier.oldest[into] = chunk
    else:
        a.chunks[replica, newest].newer = chunk
    tier.newest[into] = chunk
    tier.lengths[into] += 1


@kernel
def take_out(a: Any, replica: int, chunk: int) -> None:
    tier, of = a.tiers[replica], a.chunks[replica, chunk]
    if of.older == NONE:
        tier.oldest[of.list] = of.newer
    else:
        a.chunks[replica, of.older].newer = of.newer
    if of.newer == NONE:
        tier.newest[of.list] = of.older
    else:
        a.chunks[replica, of.newer].older = of.older
    tier.lengths[of.list] -= 1


@rare_kernel
def use(a: Any, replica: int, chunk: int, into: int) -> None:
    """It becomes the most recently used of a list."""
    if a.tiers[replica].newest[into] != chunk:
        take_out(a, replica, chunk)
        append(a, replica, chunk, into)


@kernel
def begin_read(a: Any, replica: int, chunk: int) -> None:
    a.tiers[replica].num_idle -= int(a.chunks[replica, chunk].reads == 0)
    a.chunks[replica, chunk].reads += 1


@kernel
def end_read(a: Any, replica: int, chunk: int) -> None:
    a.chunks[replica, chunk].reads -= 1
    a.tiers[replica].num_idle += int(a.chunks[replica, chunk].reads == 0)


@kernel
def end_write(a: Any, replica: int, chunk: int) -> None:
    a.chunks[replica, chunk].reads = 0
    a.tiers[replica].num_idle += 1
