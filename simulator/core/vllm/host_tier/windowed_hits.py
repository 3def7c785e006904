"""How far KV in host memory goes on from a request's hits on the GPU, for models with windows, compiled.

As in `conformance.reference.vllm.connectors.offloading_lookup`.
"""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.types import Pool
from simulator.core.vllm import blocks
from simulator.core.vllm.host_tier import host_cache
from simulator.core.vllm.host_tier.content import chunk_of, place_of


@rare_kernel
def find_hit(a: Arrays, replica: int, request: int, start: int) -> int:
    """How many tokens can be loaded from block `start` on; NONE: ask again in the next step."""
    p = a.pools[a.replicas[replica].pool]
    tokens = common_hit(a, replica, request, start)
    if tokens == NONE or p.prefix_caching == 0:
        return tokens
    end = start * p.block_size + tokens
    for group in range(p.num_groups):  # what is being loaded for others will be on the GPU
        last = blocks.num_blocks_of(end, p.block_size)
        first = start
        if a.groups[p.first_group + group].window > 0:
            first = max(start, last - window_blocks(a, p, group))
        for index in range(first, last):
            chunk = chunk_of(a, replica, request, place_of(p, group, index))
            if chunk != NONE and a.chunks[a.tiers[replica].cache, chunk].reads > 0:
                return NONE
    return tokens


@rare_kernel
def common_hit(a: Arrays, replica: int, request: int, start: int) -> int:
    """The tokens from block `start` on that all groups have; NONE: a chunk is being written.

    A group that has less shortens the hit, and what others have is looked up again up to there.
    """
    p, req = a.pools[a.replicas[replica].pool], a.requests[request]
    size, known = p.block_size, req.prompt + req.output
    num_full, local, num_keys = p.num_groups - p.num_windows, start * p.block_size, known // p.block_size
    most = known - 1  # with a window, a hit must stay one without the last token
    num_hit, waits, turn = 0, False, 0
    while turn < p.num_groups:
        first, turn, has_seen_window = turn, p.num_groups, False
        for nth in range(first, p.num_groups):
            group = a.groups[p.first_group + nth].asked
            most = min(most, num_keys * size)
            if most - local < size:
                return 0
            last = min(blocks.num_blocks_of(most, size), num_keys)
            if a.groups[p.first_group + group].window == 0:
                found = leading(a, replica, request, group, start, last)
            else:
                found = last_window(a, replica, request, group, start, last)
            if found == 0:
                return 0
            if found == NONE:
                waits = True
            else:
                most = min(most, size * (start + found))
            if most - local < size:
                return 0
            if most - local < num_hit:
                if waits:
                    waits, turn = False, 0
                elif has_seen_window and turn == p.num_groups:
                    turn = num_full
            has_seen_window = has_seen_window or nth >= num_full
            num_hit = most - local
    return NONE if waits else num_hit


@kernel
def window_blocks(a: Arrays, p: Pool, group: int) -> int:
    """Blocks at a hit's end that a group with a window loads."""
    return int(blocks.num_blocks_of(a.groups[p.first_group + group].window, p.block_size))


@rare_kernel
def leading(a: Arrays, replica: int, request: int, group: int, first: int, last: int) -> int:
    """How many are there, one after the other from `first` on; NONE: one of them is being written."""
    p, index, waits = a.pools[a.replicas[replica].pool], first, False
    while index < last:
        chunk = chunk_of(a, replica, request, place_of(p, group, index))
        if chunk == NONE:
            break
        waits = waits or a.chunks[a.tiers[replica].cache, chunk].reads == host_cache.WRITING
        index += 1
    return NONE if waits else index - first


@rare_kernel
def last_window(a: Arrays, replica: int, request: int, group: int, first: int, last: int) -> int:
    """Where the last run of a window's blocks ends, counted from `first`, or a shorter one from there on.

    NONE: one of it is being written.
    """
    p = a.pools[a.replicas[replica].pool]
    count, waits, needed = 0, False, window_blocks(a, p, group)
    for index in range(last - 1, first - 1, -1):
        chunk = chunk_of(a, replica, request, place_of(p, group, index))
        if chunk == NONE:
            count, waits = 0, False
            continue
        waits = waits or a.chunks[a.tiers[replica].cache, chunk].reads == host_cache.WRITING
        count += 1
        if count == needed:
            return NONE if waits else index - first + needed
    return NONE if waits else count
