"""Which chunk holds a request's block, and which of those that it offers are new, compiled."""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.types import Transfer
from simulator.core.vllm.host_tier import eviction, host_cache


@rare_kernel
def chunk_of(a: Arrays, replica: int, request: int, index: int) -> int:
    """The chunk of a request's block, or NONE."""
    return host_cache.find(a, replica, content_of(a, replica, request, index), index)


@kernel
def content_of(a: Arrays, replica: int, request: int, index: int) -> int:
    span = a.requests[request].span_start
    end = (index + 1) * a.pools[a.replicas[replica].pool].block_size
    while a.spans[span].end < end:
        span += 1
    return a.spans[span].content


@rare_kernel
def count_new(a: Arrays, replica: int, request: int, first: int, last: int) -> int:
    """Offer a request's chunks [first, last): how many of them are not there; the others do not go for them."""
    cache = a.caches[a.tiers[replica].cache]
    cache.offer += 1
    cache.num_protected = 0
    num_new = 0
    for index in range(last - 1, first - 1, -1):  # ARC learns from the tail first
        content = content_of(a, replica, request, index)
        chunk = host_cache.find(a, replica, content, index)
        if chunk == NONE:
            num_new += 1
            eviction.note_missed(a, replica, request, content, index)
            continue
        of = a.chunks[a.tiers[replica].cache, chunk]
        of.offer = cache.offer
        cache.num_protected += int(of.reads == 0)
        if of.reads != host_cache.WRITING:
            eviction.note_found(a, replica, request, chunk, index)
    return num_new


@rare_kernel
def insert_new(a: Arrays, replica: int, request: int, index: int, job: Transfer) -> int:
    """The chunk of a block that a store will write, or NONE: it is there already."""
    content = content_of(a, replica, request, index)
    if host_cache.find(a, replica, content, index) != NONE:
        return NONE
    chunk = host_cache.insert(a, replica, content, index)
    eviction.enter(a, replica, request, chunk)
    of = a.chunks[a.tiers[replica].cache, chunk]
    of.next_in_store = job.first
    of.offer = a.caches[a.tiers[replica].cache].offer
    job.first = chunk
    job.count += 1
    return chunk
