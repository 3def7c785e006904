"""The order of chunks under LRU as vLLM 0.33 has it, compiled: the twin of `host_cache.RankedLRUCachePolicy`.

All chunks lie in one binary heap, the next to go first; each knows its place there.
"""

from typing import Any

from simulator.core.jit import kernel, rare_kernel


@kernel
def goes_before(a: Any, replica: int, one: int, other: int) -> bool:
    this, that = a.chunks[replica, one], a.chunks[replica, other]
    return bool(this.rank < that.rank or (this.rank == that.rank and this.rank_index < that.rank_index))


@kernel
def put(a: Any, replica: int, place: int, chunk: int) -> None:
    a.chunk_heap[replica, place] = chunk
    a.chunks[replica, chunk].place = place


@rare_kernel
def settle(a: Any, replica: int, place: int) -> None:
    """Move the chunk at a place to where it belongs."""
    chunk, size = a.chunk_heap[replica, place], a.tiers[replica].num_ranked
    while place > 0:
        parent = (place - 1) >> 1
        if not goes_before(a, replica, chunk, a.chunk_heap[replica, parent]):
            break
        put(a, replica, place, a.chunk_heap[replica, parent])
        place = parent
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and goes_before(a, replica, a.chunk_heap[replica, child + 1], a.chunk_heap[replica, child]):
            child += 1
        if not goes_before(a, replica, a.chunk_heap[replica, child], chunk):
            break
        put(a, replica, place, a.chunk_heap[replica, child])
        place = child
    put(a, replica, place, chunk)


@kernel
def enter(a: Any, replica: int, chunk: int) -> None:
    tier = a.tiers[replica]
    put(a, replica, tier.num_ranked, chunk)
    tier.num_ranked += 1
    settle(a, replica, tier.num_ranked - 1)


@kernel
def leave(a: Any, replica: int, chunk: int) -> None:
    tier, place = a.tiers[replica], a.chunks[replica, chunk].place
    tier.num_ranked -= 1
    last = a.chunk_heap[replica, tier.num_ranked]
    if last != chunk:
        put(a, replica, place, last)
        settle(a, replica, place)


@kernel
def of_request(a: Any, replica: int, request: int) -> int:
    """By when it saw its first chunk."""
    if a.offloads[request].rank == 0:
        a.tiers[replica].latest_rank += 1
        a.offloads[request].rank = a.tiers[replica].latest_rank
    return int(a.offloads[request].rank)


@kernel
def see(a: Any, replica: int, request: int, chunk: int, index: int) -> None:
    """A request sees a chunk that is there for the first time."""
    of, rank = a.chunks[replica, chunk], of_request(a, replica, request)
    if rank > of.rank or (rank == of.rank and -1 - index > of.rank_index):
        of.rank = rank
        of.rank_index = -1 - index
        settle(a, replica, of.place)


@kernel
def use(a: Any, replica: int, chunk: int) -> None:
    """It becomes the most recently used."""
    tier, of = a.tiers[replica], a.chunks[replica, chunk]
    tier.latest_rank += 1
    of.rank = tier.latest_rank
    of.rank_index = 0
    settle(a, replica, of.place)


@rare_kernel
def pass_over(a: Any, replica: int, num_passed: int, chunk: int) -> None:
    """Take a chunk out that may not go now; those that were passed over lie at the far end of the heap's array."""
    leave(a, replica, chunk)
    a.chunk_heap[replica, a.chunk_heap.shape[1] - 1 - num_passed] = chunk


@rare_kernel
def take_back(a: Any, replica: int, num_passed: int) -> None:
    for passed in range(num_passed - 1, -1, -1):
        enter(a, replica, a.chunk_heap[replica, a.chunk_heap.shape[1] - 1 - passed])
