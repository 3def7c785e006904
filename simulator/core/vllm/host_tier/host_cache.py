"""Which chunks of KV lie in host memory, compiled: the twin of `simulator.engines.vllm.host_tier.HostCache`.

A chunk is one block. All lie in one list by their last use; a hash table finds them by content and place.
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
    for chunk in range(p.host_chunks):
        a.chunks[replica, chunk].newer = chunk + 1
    a.chunks[replica, p.host_chunks - 1].newer = NONE
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
    """Take a free chunk for a block whose copy begins; it is the most recently used."""
    tier = a.tiers[replica]
    chunk = tier.free_chunk
    of = a.chunks[replica, chunk]
    tier.free_chunk = of.newer
    tier.num_free -= 1
    of.key_content = content
    of.key_index = index
    of.reads = WRITING
    bucket = (mixed(content) + index) & a.pools[a.replicas[replica].pool].chunk_mask
    of.next_in_bucket = a.chunk_buckets[replica, bucket]
    a.chunk_buckets[replica, bucket] = chunk
    append(a, replica, chunk)
    return chunk


@kernel
def append(a: Any, replica: int, chunk: int) -> None:
    tier, of = a.tiers[replica], a.chunks[replica, chunk]
    of.older = tier.newest
    of.newer = NONE
    if tier.newest == NONE:
        tier.oldest = chunk
    else:
        a.chunks[replica, tier.newest].newer = chunk
    tier.newest = chunk


@kernel
def take_out(a: Any, replica: int, chunk: int) -> None:
    tier, of = a.tiers[replica], a.chunks[replica, chunk]
    if of.older == NONE:
        tier.oldest = of.newer
    else:
        a.chunks[replica, of.older].newer = of.newer
    if of.newer == NONE:
        tier.newest = of.older
    else:
        a.chunks[replica, of.newer].older = of.older


@rare_kernel
def use(a: Any, replica: int, chunk: int) -> None:
    """It becomes the most recently used."""
    if a.tiers[replica].newest != chunk:
        take_out(a, replica, chunk)
        append(a, replica, chunk)


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


@kernel
def may_go(a: Any, replica: int, chunk: int) -> bool:
    """Whether nothing reads or writes a chunk, and it is not of the present offer."""
    return a.chunks[replica, chunk].reads == 0 and a.chunks[replica, chunk].offer != a.tiers[replica].offer


@rare_kernel
def make_room(a: Any, replica: int, count: int) -> bool:
    """Evict until `count` chunks are free, the least recently used first; False if they cannot be: none goes then."""
    tier = a.tiers[replica]
    missing = count - tier.num_free
    if missing > tier.num_idle:
        return False
    chunk, found = tier.oldest, 0
    while found < missing and chunk != NONE:
        found += int(may_go(a, replica, chunk))
        chunk = a.chunks[replica, chunk].newer
    if found < missing:
        return False
    chunk = tier.oldest
    while missing > 0:
        following = a.chunks[replica, chunk].newer
        if may_go(a, replica, chunk):
            evict(a, replica, chunk)
            missing -= 1
        chunk = following
    return True


@kernel
def evict(a: Any, replica: int, chunk: int) -> None:
    tier, of = a.tiers[replica], a.chunks[replica, chunk]
    bucket = (mixed(of.key_content) + of.key_index) & a.pools[a.replicas[replica].pool].chunk_mask
    other = a.chunk_buckets[replica, bucket]
    if other == chunk:
        a.chunk_buckets[replica, bucket] = of.next_in_bucket
    else:
        while a.chunks[replica, other].next_in_bucket != chunk:
            other = a.chunks[replica, other].next_in_bucket
        a.chunks[replica, other].next_in_bucket = of.next_in_bucket
    take_out(a, replica, chunk)
    of.newer = tier.free_chunk
    tier.free_chunk = chunk
    tier.num_free += 1
    tier.num_idle -= 1
