"""Which chunk holds a request's block, and which of those that it offers are new, compiled."""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.types import Pool, Transfer
from simulator.core.vllm import blocks
from simulator.core.vllm.host_tier import eviction, host_cache


@rare_kernel
def chunk_of(a: Arrays, replica: int, request: int, place: int) -> int:
    """The chunk of a request's block, or NONE."""
    return host_cache.find(a, replica, content_of(a, replica, request, place), place)


@kernel
def place_of(p: Pool, group: int, index: int) -> int:
    """Where a block lies among those of all groups: first by its index."""
    return index * p.num_groups + group


@kernel
def has_window(a: Arrays, p: Pool, place: int) -> bool:
    """Whether a block is of layers with a window."""
    return p.num_windows > 0 and a.groups[p.first_group + place % p.num_groups].window > 0


@kernel
def content_of(a: Arrays, replica: int, request: int, place: int) -> int:
    p = a.pools[a.replicas[replica].pool]
    span = a.requests[request].span_start
    index = place // p.num_groups if p.num_groups > 1 else place
    end = (index + 1) * p.block_size
    while a.spans[span].end < end:
        span += 1
    return a.spans[span].content


@kernel
def is_offered(a: Arrays, replica: int, request: int, row: int, group: int, index: int) -> bool:
    """Whether a block is stored; of a window, one that the GPU's cache would keep and that nobody else got since."""
    p = a.pools[a.replicas[replica].pool]
    if p.num_windows == 0 or a.groups[p.first_group + group].window == 0:
        return True
    place = group * p.row_blocks + index
    noted = a.registered[row, place]
    if noted == NONE or a.handed_out[a.tables[row, place]] > noted:
        return False
    return blocks.is_retained(a, p, a.requests[request], group, index)


@rare_kernel
def count_new(a: Arrays, replica: int, request: int, row: int, first: int, last: int) -> int:
    """Offer a request's blocks [first, last): how many of them are not there; the others do not go for them."""
    p, cache = a.pools[a.replicas[replica].pool], a.caches[a.tiers[replica].cache]
    cache.offer += 1
    cache.num_protected = 0
    num_new = 0
    for group in range(p.num_groups - 1, -1, -1):
        for index in range(last - 1, first - 1, -1):  # ARC learns from the tail first
            if is_offered(a, replica, request, row, group, index):
                num_new += offer_one(a, replica, request, place_of(p, group, index))
    return num_new


@kernel
def offer_one(a: Arrays, replica: int, request: int, place: int) -> int:
    """1: the chunk of a block is not there."""
    content, cache = content_of(a, replica, request, place), a.caches[a.tiers[replica].cache]
    chunk = host_cache.find(a, replica, content, place)
    if chunk == NONE:
        eviction.note_missed(a, replica, request, content, place)
        return 1
    of = a.chunks[a.tiers[replica].cache, chunk]
    of.offer = cache.offer
    cache.num_protected += int(of.reads == 0)
    if of.reads != host_cache.WRITING:
        eviction.note_found(a, replica, request, chunk, place)
    return 0


@rare_kernel
def insert_new(a: Arrays, replica: int, request: int, place: int, job: Transfer) -> int:
    """The chunk of a block that a store will write, or NONE: it is there already."""
    content = content_of(a, replica, request, place)
    if host_cache.find(a, replica, content, place) != NONE:
        return NONE
    chunk = host_cache.insert(a, replica, content, place)
    eviction.enter(a, replica, request, chunk)
    of = a.chunks[a.tiers[replica].cache, chunk]
    of.next_in_store = job.first
    of.offer = a.caches[a.tiers[replica].cache].offer
    job.first = chunk
    job.count += 1
    return chunk
