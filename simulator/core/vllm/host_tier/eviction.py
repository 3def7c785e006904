"""Which chunks go for others, compiled: the twin of `simulator.engines.vllm.connectors.host_cache`'s policies.

What ARC remembers of a chunk that went, its ghost, is a record like a chunk's under a key that no chunk has.
"""

from typing import Any

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.vllm.host_tier import host_cache
from simulator.core.vllm.host_tier.layout import B1, B2, T1, T2

USED, INSERTED, MISSED = range(3)  # what is noted of a request's chunks; ARC alone has the latter two
# USED: of LRU, all that it stored or found; of ARC, those found, and not stored by itself before


@kernel
def is_noted(a: Any, request: int, note: int, index: int) -> bool:
    return bool(a.used_chunks[request, note, index >> 3] & (1 << (index & 7)))


@kernel
def take_note(a: Any, request: int, note: int, index: int) -> None:
    a.used_chunks[request, note, index >> 3] |= 1 << (index & 7)


@kernel
def note_found(a: Any, replica: int, request: int, index: int) -> None:
    """A request finds a chunk that is there."""
    if a.pools[a.replicas[replica].pool].evicts_by_arc == 0 or not is_noted(a, request, INSERTED, index):
        take_note(a, request, USED, index)


@rare_kernel
def note_missed(a: Any, replica: int, request: int, content: int, index: int) -> None:
    """A request offers a chunk that is not there; ARC learns from it, once of each request, if it remembers it."""
    if a.pools[a.replicas[replica].pool].evicts_by_arc == 0:
        take_note(a, request, USED, index)
        return
    if is_noted(a, request, MISSED, index):
        return
    take_note(a, request, MISSED, index)
    ghost = host_cache.find(a, replica, content, host_cache.ghost_of(index))
    if ghost == NONE:
        return
    tier = a.tiers[replica]
    of, capacity = a.chunks[replica, ghost].list, a.pools[a.replicas[replica].pool].host_chunks
    other = B2 if of == B1 else B1
    step = max(1.0, tier.lengths[other] / tier.lengths[of])
    if of == B1:
        tier.target_t1_size = min(tier.target_t1_size + step, float(capacity))
    else:
        tier.target_t1_size = max(tier.target_t1_size - step, 0.0)
    host_cache.use(a, replica, ghost, of)


@rare_kernel
def use_ended(a: Any, replica: int, request: int, content: int, index: int) -> None:
    """A request that has ended used a chunk; called from its tail on."""
    chunk = host_cache.find(a, replica, content, index)
    if chunk == NONE:
        return
    if a.pools[a.replicas[replica].pool].evicts_by_arc == 0:
        host_cache.use(a, replica, chunk, T1)
        return
    into = T2 if is_noted(a, request, USED, index) else a.chunks[replica, chunk].list
    host_cache.use(a, replica, chunk, into)


@kernel
def may_go(a: Any, replica: int, chunk: int) -> bool:
    """Whether nothing reads or writes a chunk, and it is not of the present offer."""
    return a.chunks[replica, chunk].reads == 0 and a.chunks[replica, chunk].offer != a.tiers[replica].offer


@kernel
def next_to_go(a: Any, replica: int, chunk: int) -> int:
    """The first that may go, from a chunk of a list on, or NONE."""
    while chunk != NONE and not may_go(a, replica, chunk):
        chunk = a.chunks[replica, chunk].newer
    return chunk


@rare_kernel
def make_room(a: Any, replica: int, count: int) -> bool:
    """Evict until `count` chunks are free; False if they cannot be: none goes then."""
    tier = a.tiers[replica]
    missing, found = count - tier.num_free, 0
    if missing > tier.num_idle:
        return False
    for each in range(B1):
        chunk = tier.oldest[each]
        while found < missing and chunk != NONE:
            found += int(may_go(a, replica, chunk))
            chunk = a.chunks[replica, chunk].newer
    if found < missing:
        return False
    recent, frequent = tier.oldest[T1], tier.oldest[T2]
    while missing > 0:
        recent, frequent = next_to_go(a, replica, recent), next_to_go(a, replica, frequent)
        is_recent = recent != NONE and (tier.lengths[T1] >= int(tier.target_t1_size) or frequent == NONE)
        chunk = recent if is_recent else frequent
        following = a.chunks[replica, chunk].newer
        evict(a, replica, chunk)
        if is_recent:
            recent = following
        else:
            frequent = following
        missing -= 1
    return True


@kernel
def evict(a: Any, replica: int, chunk: int) -> None:
    tier, of, p = a.tiers[replica], a.chunks[replica, chunk], a.pools[a.replicas[replica].pool]
    tier.num_free += 1
    tier.num_idle -= 1
    if p.evicts_by_arc == 0:
        host_cache.remove(a, replica, chunk)
        return
    ghosts = B1 if of.list == T1 else B2
    host_cache.leave_bucket(a, replica, chunk)
    host_cache.take_out(a, replica, chunk)
    host_cache.enter_bucket(a, replica, chunk, of.key_content, host_cache.ghost_of(of.key_index))
    host_cache.append(a, replica, chunk, ghosts)
    if tier.lengths[ghosts] > p.host_chunks:
        host_cache.remove(a, replica, tier.oldest[ghosts])
