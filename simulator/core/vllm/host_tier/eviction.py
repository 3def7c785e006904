"""Which chunks go for others, compiled: as in `simulator.engines.vllm.connectors.host_cache`'s policies.

What ARC remembers of a chunk that went, its ghost, is a record like a chunk's under a key that no chunk has.
"""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.vllm.host_tier import host_cache, ranks
from simulator.core.vllm.host_tier.layout import B1, B2, T1, T2

USED, INSERTED, MISSED = range(3)  # what is noted of a request's chunks; ARC alone has the latter two
# USED: of LRU, all that it stored or found; of ARC, those found, and not stored by itself before


@kernel
def is_noted(a: Arrays, request: int, note: int, place: int) -> bool:
    return bool(a.used_chunks[note, a.offloads[request].notes + (place >> 3)] & (1 << (place & 7)))


@kernel
def take_note(a: Arrays, request: int, note: int, place: int) -> None:
    a.used_chunks[note, a.offloads[request].notes + (place >> 3)] |= 1 << (place & 7)


@kernel
def note_found(a: Arrays, replica: int, request: int, chunk: int, place: int) -> None:
    """A request finds a chunk that is there."""
    p = a.pools[a.replicas[replica].pool]
    if p.ranks_requests == 1 and not is_noted(a, request, USED, place):
        ranks.see(a, replica, request, chunk, place)
    if p.evicts_by_arc == 0 or not is_noted(a, request, INSERTED, place):
        take_note(a, request, USED, place)


@rare_kernel
def note_missed(a: Arrays, replica: int, request: int, content: int, place: int) -> None:
    """A request offers a chunk that is not there; ARC learns from it, once of each request, if it remembers it."""
    p = a.pools[a.replicas[replica].pool]
    if p.evicts_by_arc == 0:
        if p.ranks_requests == 1:
            ranks.of_request(a, replica, request)
        take_note(a, request, USED, place)
        return
    if is_noted(a, request, MISSED, place):
        return
    take_note(a, request, MISSED, place)
    ghost = host_cache.find(a, replica, content, host_cache.ghost_of(place))
    if ghost == NONE:
        return
    cache = a.caches[a.tiers[replica].cache]
    of, capacity = a.chunks[a.tiers[replica].cache, ghost].list, p.host_chunks
    other = B2 if of == B1 else B1
    step = max(1.0, cache.lengths[other] / cache.lengths[of])
    if of == B1:
        cache.target_t1_size = min(cache.target_t1_size + step, float(capacity))
    else:
        cache.target_t1_size = max(cache.target_t1_size - step, 0.0)
    host_cache.use(a, replica, ghost, of)


@kernel
def enter(a: Arrays, replica: int, request: int, chunk: int) -> None:
    """A request stores a chunk."""
    p, of = a.pools[a.replicas[replica].pool], a.chunks[a.tiers[replica].cache, chunk]
    if p.ranks_requests == 1:
        of.rank = ranks.of_request(a, replica, request)
        of.rank_index = ranks.index_of(a, replica, of.key_index)
        ranks.enter(a, replica, chunk)
        return
    host_cache.append(a, replica, chunk, T1)
    if p.evicts_by_arc == 1:
        take_note(a, request, INSERTED, of.key_index)
        ghost = host_cache.find(a, replica, of.key_content, host_cache.ghost_of(of.key_index))
        if ghost != NONE:
            forget_ghost(a, replica, ghost)


@kernel
def forget_ghost(a: Arrays, replica: int, ghost: int) -> None:
    host_cache.take_out(a, replica, ghost)
    host_cache.remove(a, replica, ghost)


@rare_kernel
def use_ended(a: Arrays, replica: int, request: int, content: int, place: int) -> None:
    """A request that has ended used a chunk; called from its tail on."""
    chunk = host_cache.find(a, replica, content, place)
    if chunk == NONE:
        return
    p = a.pools[a.replicas[replica].pool]
    if p.ranks_requests == 1:
        ranks.use(a, replica, chunk)
        return
    if p.evicts_by_arc == 0:
        host_cache.use(a, replica, chunk, T1)
        return
    into = T2 if is_noted(a, request, USED, place) else a.chunks[a.tiers[replica].cache, chunk].list
    host_cache.use(a, replica, chunk, into)


@kernel
def may_go(a: Arrays, replica: int, chunk: int) -> bool:
    """Whether nothing reads or writes a chunk, and it is not of the present offer."""
    return (
        a.chunks[a.tiers[replica].cache, chunk].reads == 0
        and a.chunks[a.tiers[replica].cache, chunk].offer != a.caches[a.tiers[replica].cache].offer
    )


@kernel
def next_to_go(a: Arrays, replica: int, chunk: int) -> int:
    """The first that may go, from a chunk of a list on, or NONE."""
    while chunk != NONE and not may_go(a, replica, chunk):
        chunk = a.chunks[a.tiers[replica].cache, chunk].newer
    return chunk


@rare_kernel
def make_room(a: Arrays, replica: int, count: int) -> bool:
    """Evict until `count` chunks are free; False if they cannot be: none goes then."""
    cache = a.caches[a.tiers[replica].cache]
    missing = count - cache.num_free
    if missing > cache.num_idle - cache.num_protected:
        return False
    if a.pools[a.replicas[replica].pool].ranks_requests == 1:
        make_ranked_room(a, replica, missing)
        return True
    recent, frequent = cache.oldest[T1], cache.oldest[T2]
    while missing > 0:
        recent, frequent = next_to_go(a, replica, recent), next_to_go(a, replica, frequent)
        is_recent = recent != NONE and (cache.lengths[T1] >= int(cache.target_t1_size) or frequent == NONE)
        chunk = recent if is_recent else frequent
        following = a.chunks[a.tiers[replica].cache, chunk].newer
        evict(a, replica, chunk)
        if is_recent:
            recent = following
        else:
            frequent = following
        missing -= 1
    return True


@rare_kernel
def make_ranked_room(a: Arrays, replica: int, missing: int) -> None:
    num_passed = 0
    while missing > 0:
        chunk = a.chunk_heap[a.tiers[replica].cache, 0]
        if may_go(a, replica, chunk):
            evict(a, replica, chunk)
            missing -= 1
        else:
            ranks.pass_over(a, replica, num_passed, chunk)
            num_passed += 1
    ranks.take_back(a, replica, num_passed)


@kernel
def evict(a: Arrays, replica: int, chunk: int) -> None:
    cache, of = a.caches[a.tiers[replica].cache], a.chunks[a.tiers[replica].cache, chunk]
    p = a.pools[a.replicas[replica].pool]
    cache.num_free += 1
    cache.num_idle -= 1
    if p.ranks_requests == 1:
        ranks.leave(a, replica, chunk)
    else:
        host_cache.take_out(a, replica, chunk)
    if p.evicts_by_arc == 0:
        host_cache.remove(a, replica, chunk)
        return
    ghosts = B1 if of.list == T1 else B2
    host_cache.leave_bucket(a, replica, chunk)
    host_cache.enter_bucket(a, replica, chunk, of.key_content, host_cache.ghost_of(of.key_index))
    host_cache.append(a, replica, chunk, ghosts)
    if cache.lengths[ghosts] > p.host_chunks:
        forget_ghost(a, replica, cache.oldest[ghosts])
