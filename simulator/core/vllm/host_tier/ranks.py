"""The order of chunks under LRU as vLLM 0.33 has it, compiled: as in `host_cache.RankedLRUCachePolicy`.

All chunks lie in one binary heap, the next to go first; each knows its place there.
"""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.state import Arrays


@kernel
def goes_before(a: Arrays, replica: int, one: int, other: int) -> bool:
    this, that = a.chunks[a.tiers[replica].cache, one], a.chunks[a.tiers[replica].cache, other]
    return bool(this.rank < that.rank or (this.rank == that.rank and this.rank_index < that.rank_index))


@kernel
def put(a: Arrays, replica: int, place: int, chunk: int) -> None:
    a.chunk_heap[a.tiers[replica].cache, place] = chunk
    a.chunks[a.tiers[replica].cache, chunk].place = place


@rare_kernel
def settle(a: Arrays, replica: int, place: int) -> None:
    """Move the chunk at a place to where it belongs."""
    chunk, size = a.chunk_heap[a.tiers[replica].cache, place], a.caches[a.tiers[replica].cache].num_ranked
    while place > 0:
        parent = (place - 1) >> 1
        if not goes_before(a, replica, chunk, a.chunk_heap[a.tiers[replica].cache, parent]):
            break
        put(a, replica, place, a.chunk_heap[a.tiers[replica].cache, parent])
        place = parent
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and goes_before(
            a, replica, a.chunk_heap[a.tiers[replica].cache, child + 1], a.chunk_heap[a.tiers[replica].cache, child]
        ):
            child += 1
        if not goes_before(a, replica, a.chunk_heap[a.tiers[replica].cache, child], chunk):
            break
        put(a, replica, place, a.chunk_heap[a.tiers[replica].cache, child])
        place = child
    put(a, replica, place, chunk)


@kernel
def enter(a: Arrays, replica: int, chunk: int) -> None:
    cache = a.caches[a.tiers[replica].cache]
    put(a, replica, cache.num_ranked, chunk)
    cache.num_ranked += 1
    settle(a, replica, cache.num_ranked - 1)


@kernel
def leave(a: Arrays, replica: int, chunk: int) -> None:
    cache, place = a.caches[a.tiers[replica].cache], a.chunks[a.tiers[replica].cache, chunk].place
    cache.num_ranked -= 1
    last = a.chunk_heap[a.tiers[replica].cache, cache.num_ranked]
    if last != chunk:
        put(a, replica, place, last)
        settle(a, replica, place)


@kernel
def of_request(a: Arrays, replica: int, request: int) -> int:
    """By when it saw its first chunk."""
    if a.offloads[request].rank == 0:
        a.caches[a.tiers[replica].cache].latest_rank += 1
        a.offloads[request].rank = a.caches[a.tiers[replica].cache].latest_rank
    return int(a.offloads[request].rank)


@kernel
def index_of(a: Arrays, replica: int, place: int) -> int:
    """Of a request's chunks the last goes first, of those at one place the first group's."""
    num_groups = a.pools[a.replicas[replica].pool].num_groups
    return -1 - place if num_groups == 1 else place % num_groups - (place // num_groups + 1) * num_groups


@kernel
def see(a: Arrays, replica: int, request: int, chunk: int, place: int) -> None:
    """A request sees a chunk that is there for the first time."""
    of, rank = a.chunks[a.tiers[replica].cache, chunk], of_request(a, replica, request)
    rank_index = index_of(a, replica, place)
    if rank > of.rank or (rank == of.rank and rank_index > of.rank_index):
        of.rank = rank
        of.rank_index = rank_index
        settle(a, replica, of.place)


@kernel
def use(a: Arrays, replica: int, chunk: int) -> None:
    """It becomes the most recently used."""
    cache, of = a.caches[a.tiers[replica].cache], a.chunks[a.tiers[replica].cache, chunk]
    cache.latest_rank += 1
    of.rank = cache.latest_rank
    of.rank_index = 0
    settle(a, replica, of.place)


@rare_kernel
def pass_over(a: Arrays, replica: int, num_passed: int, chunk: int) -> None:
    """Take a chunk out that may not go now; those that were passed over lie at the far end of the heap's array."""
    leave(a, replica, chunk)
    a.chunk_heap[a.tiers[replica].cache, a.chunk_heap.shape[1] - 1 - num_passed] = chunk


@rare_kernel
def take_back(a: Arrays, replica: int, num_passed: int) -> None:
    for passed in range(num_passed - 1, -1, -1):
        enter(a, replica, a.chunk_heap[a.tiers[replica].cache, a.chunk_heap.shape[1] - 1 - passed])
