"""Which chunks of KV lie in host memory, compiled: as in `simulator.engines.vllm.connectors.host_cache`.

A chunk is one block. All lie in one list by their last use, under ARC in two, with two more of what went (`eviction`).
A hash table finds them by content and place; it has a chunk's number plus 1, or 0.
"""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.vllm.pool import mixed

WRITING = -1  # instead of a number of reads: its first copy is under way


@kernel
def lay_out(a: Arrays, replica: int) -> None:
    """An empty cache. No record is touched before a chunk needs it: a store may have room for far more than comes."""
    cache = a.caches[a.tiers[replica].cache]
    cache.free_chunk = NONE
    cache.num_records = 0
    cache.num_free = a.pools[a.replicas[replica].pool].host_chunks
    cache.is_laid_out = 1


@kernel
def find(a: Arrays, replica: int, content: int, index: int) -> int:
    """The chunk of a block, or NONE."""
    cache = a.tiers[replica].cache
    bucket = (mixed(content) + index) & a.pools[a.replicas[replica].pool].chunk_mask
    chunk = a.chunk_buckets[cache, bucket] - 1
    while chunk != NONE:
        if a.chunks[cache, chunk].key_content == content and a.chunks[cache, chunk].key_index == index:
            return chunk
        chunk = a.chunks[cache, chunk].next_in_bucket
    return NONE


@rare_kernel
def insert(a: Arrays, replica: int, content: int, index: int) -> int:
    """Take a free chunk for a block whose copy begins."""
    cache = a.caches[a.tiers[replica].cache]
    chunk = cache.free_chunk
    if chunk == NONE:
        chunk = cache.num_records
        cache.num_records += 1
    else:
        cache.free_chunk = a.chunks[a.tiers[replica].cache, chunk].newer
    of = a.chunks[a.tiers[replica].cache, chunk]
    cache.num_free -= 1
    of.reads = WRITING
    enter_bucket(a, replica, chunk, content, index)
    return chunk


@kernel
def ghost_of(index: int) -> int:
    """The index of what ARC remembers of a block that went."""
    return -1 - index


@kernel
def remove(a: Arrays, replica: int, chunk: int) -> None:
    """A chunk, or a ghost, that is in no list is there no more."""
    cache, of = a.caches[a.tiers[replica].cache], a.chunks[a.tiers[replica].cache, chunk]
    leave_bucket(a, replica, chunk)
    of.newer = cache.free_chunk
    cache.free_chunk = chunk


@kernel
def enter_bucket(a: Arrays, replica: int, chunk: int, content: int, index: int) -> None:
    of = a.chunks[a.tiers[replica].cache, chunk]
    of.key_content = content
    of.key_index = index
    bucket = (mixed(content) + index) & a.pools[a.replicas[replica].pool].chunk_mask
    of.next_in_bucket = a.chunk_buckets[a.tiers[replica].cache, bucket] - 1
    a.chunk_buckets[a.tiers[replica].cache, bucket] = chunk + 1


@kernel
def leave_bucket(a: Arrays, replica: int, chunk: int) -> None:
    of = a.chunks[a.tiers[replica].cache, chunk]
    bucket = (mixed(of.key_content) + of.key_index) & a.pools[a.replicas[replica].pool].chunk_mask
    other = a.chunk_buckets[a.tiers[replica].cache, bucket] - 1
    if other == chunk:
        a.chunk_buckets[a.tiers[replica].cache, bucket] = of.next_in_bucket + 1
        return
    while a.chunks[a.tiers[replica].cache, other].next_in_bucket != chunk:
        other = a.chunks[a.tiers[replica].cache, other].next_in_bucket
    a.chunks[a.tiers[replica].cache, other].next_in_bucket = of.next_in_bucket


@kernel
def append(a: Arrays, replica: int, chunk: int, into: int) -> None:
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
def take_out(a: Arrays, replica: int, chunk: int) -> None:
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
def use(a: Arrays, replica: int, chunk: int, into: int) -> None:
    """It becomes the most recently used of a list."""
    if a.caches[a.tiers[replica].cache].newest[into] != chunk:
        take_out(a, replica, chunk)
        append(a, replica, chunk, into)


@kernel
def begin_read(a: Arrays, replica: int, chunk: int) -> None:
    cache, of = a.caches[a.tiers[replica].cache], a.chunks[a.tiers[replica].cache, chunk]
    cache.num_idle -= int(of.reads == 0)
    of.reads += 1


@kernel
def end_read(a: Arrays, replica: int, chunk: int) -> None:
    cache, of = a.caches[a.tiers[replica].cache], a.chunks[a.tiers[replica].cache, chunk]
    of.reads -= 1
    cache.num_idle += int(of.reads == 0)


@kernel
def end_write(a: Arrays, replica: int, chunk: int) -> None:
    a.chunks[a.tiers[replica].cache, chunk].reads = 0
    a.caches[a.tiers[replica].cache].num_idle += 1
