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
    cache, p = a.caches[a.tiers[replica].cache], a.pools[a.replicas[replica].pool]
    num_records = 3 * p.host_chunks if p.evicts_by_arc == 1 else p.host_chunks
    for chunk in range(num_records):
        a.chunks[a.tiers[replica].cache, chunk].newer = chunk + 1
    a.chunks[a.tiers[replica].cache, num_records - 1].newer = NONE
    for bucket in range(p.chunk_mask + 1):
        a.chunk_buckets[a.tiers[replica].cache, bucket] = NONE
    cache.free_chunk = 0
    cache.num_free = p.host_chunks
    cache.is_laid_out = 1


@kernel
def find(a: Any, replica: int, content: int, index: int) -> int:
    """The chunk of a block, or NONE."""
    cache = a.tiers[replica].cache
    bucket = (mixed(content) + index) & a.pools[a.replicas[replica].pool].chunk_mask
    chunk = a.chunk_buckets[cache, bucket]
    while chunk != NONE:
        if a.chunks[cache, chunk].key_content == content and a.chunks[cache, chunk].key_index == index:
            return chunk
        chunk = a.chunks[cache, chunk].next_in_bucket
    return NONE


@rare_kernel
def insert(a: Any, replica: int, content: int, index: int) -> int:
    """Take a free chunk for a block whose copy begins."""
    cache = a.caches[a.tiers[replica].cache]
    chunk = cache.free_chunk
    of = a.chunks[a.tiers[replica].cache, chunk]
    cache.free_chunk = of.newer
    cache.num_free -= 1
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
    cache, of = a.caches[a.tiers[replica].cache], a.chunks[a.tiers[replica].cache, chunk]
    leave_bucket(a, replica, chunk)
    of.newer = cache.free_chunk
    cache.free_chunk = chunk


@kernel
def enter_bucket(a: Any, replica: int, chunk: int, content: int, index: int) -> None:
    of = a.chunks[a.tiers[replica].cache, chunk]
    of.key_content = content
    of.key_index = index
    bucket = (mixed(content) + index) & a.pools[a.replicas[replica].pool].chunk_mask
    of.next_in_bucket = a.chunk_buckets[a.tiers[replica].cache, bucket]
    a.chunk_buckets[a.tiers[replica].cache, bucket] = chunk


@kernel
def leave_bucket(a: Any, replica: int, chunk: int) -> None:
    of = a.chunks[a.tiers[replica].cache, chunk]
    bucket = (mixed(of.key_content) + of.key_index) & a.pools[a.replicas[replica].pool].chunk_mask
    other = a.chunk_buckets[a.tiers[replica].cache, bucket]
    if other == chunk:
        a.chunk_buckets[a.tiers[replica].cache, bucket] = of.next_in_bucket
        return
    while a.chunks[a.tiers[replica].cache, other].next_in_bucket != chunk:
        other = a.chunks[a.tiers[replica].cache, other].next_in_bucket
    a.chunks[a.tiers[replica].cache, other].next_in_bucket = of.next_in_bucket


@kernel
def append(a: Any, replica: int, chunk: int, into: int) -> None:
    cache, of = a.caches[a.tiers[replica].cache], a.chunks[a.tiers[replica].cache, chunk]
    newest = cache.newest[into]
    of.list = into
    of.older = newest
    of.newer = NONE
    if newest == NONE:
        cache.oldest[into] = chunk
    else:
        a.chunks[a.tiers[replica].cache, newest].newer = chunk
    cache.newest[into] = chunk
    cache.lengths[into] += 1


@kernel
def take_out(a: Any, replica: int, chunk: int) -> None:
    cache, of = a.caches[a.tiers[replica].cache], a.chunks[a.tiers[replica].cache, chunk]
    if of.older == NONE:
        cache.oldest[of.list] = of.newer
    else:
        a.chunks[a.tiers[replica].cache, of.older].newer = of.newer
    if of.newer == NONE:
        cache.newest[of.list] = of.older
    else:
        a.chunks[a.tiers[replica].cache, of.newer].older = of.older
    cache.lengths[of.list] -= 1


@rare_kernel
def use(a: Any, replica: int, chunk: int, into: int) -> None:
    """It becomes the most recently used of a list."""
    if a.caches[a.tiers[replica].cache].newest[into] != chunk:
        take_out(a, replica, chunk)
        append(a, replica, chunk, into)


@kernel
def begin_read(a: Any, replica: int, chunk: int) -> None:
    cache, of = a.caches[a.tiers[replica].cache], a.chunks[a.tiers[replica].cache, chunk]
    cache.num_idle -= int(of.reads == 0)
    of.reads += 1


@kernel
def end_read(a: Any, replica: int, chunk: int) -> None:
    cache, of = a.caches[a.tiers[replica].cache], a.chunks[a.tiers[replica].cache, chunk]
    of.reads -= 1
    cache.num_idle += int(of.reads == 0)


@kernel
def end_write(a: Any, replica: int, chunk: int) -> None:
    a.chunks[a.tiers[replica].cache, chunk].reads = 0
    a.caches[a.tiers[replica].cache].num_idle += 1
