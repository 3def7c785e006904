"""What is loaded from host memory again, compiled: as in `conformance.reference.vllm.connectors.offloading`."""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.types import Pool
from simulator.core.vllm import blocks
from simulator.core.vllm.host_tier import eviction, host_cache, windowed_hits
from simulator.core.vllm.host_tier.content import chunk_of, place_of


@rare_kernel
def find_hit(a: Arrays, replica: int, request: int, first: int) -> int:
    """How many tokens can be loaded from block `first` on; NONE: ask again in the next step."""
    p, req = a.pools[a.replicas[replica].pool], a.requests[request]
    a.offloads[request].known_blocks = 0
    if p.offers_again == 1:
        a.offloads[request].next_chunk = 0
    if a.offloads[request].num_stores > 0:
        return NONE
    if p.num_windows > 0:
        return windowed_hits.find_hit(a, replica, request, first)
    waits, index = False, first
    while index < (req.prompt + req.output) // p.block_size:
        chunk = chunk_of(a, replica, request, index)
        if chunk == NONE:
            break
        reads = a.chunks[a.tiers[replica].cache, chunk].reads
        waits |= reads < 0 or (reads > 0 and p.prefix_caching == 1)
        index += 1
    return NONE if waits else (index - first) * p.block_size


@kernel
def load(a: Arrays, replica: int, request: int, first: int, tokens: int, count: int) -> None:
    """Load `count` blocks into those that the request was just given, from block `first` on, up to `tokens` tokens."""
    tier, p = a.tiers[replica], a.pools[a.replicas[replica].pool]
    off, req = a.offloads[request], a.requests[request]
    last = blocks.num_blocks_of(tokens, p.block_size)
    if p.is_shared == 0:
        off.next_chunk = last
        for group in range(p.num_groups):
            start = a.table_starts[req.row, group] if p.num_windows > 0 else 0
            for index in range(group * p.row_blocks + start, group * p.row_blocks + req.num_blocks):
                hand_out(a, replica, a.tables[req.row, index])
    for group in range(p.num_groups):
        for index in range(first_loaded(a, p, group, first, tokens), last):
            place = place_of(p, group, index)
            chunk = chunk_of(a, replica, request, place)
            host_cache.begin_read(a, replica, chunk)
            eviction.note_found(a, replica, request, chunk, place)
    off.loading = 1
    off.local_blocks = first
    job = a.loads[replica, tier.load_tail & p.load_mask]
    job.request = request
    job.first = first
    job.tokens = tokens
    job.count = count
    tier.load_tail += 1


@kernel
def first_loaded(a: Arrays, p: Pool, group: int, first: int, tokens: int) -> int:
    """Where the blocks of a group begin that are loaded: what lies before its window is not."""
    return int(max(first, blocks.skipped_blocks(a.groups, p, group, tokens)))


@kernel
def hand_out(a: Arrays, replica: int, block: int) -> None:
    """A block is somebody's from this step on; the step waits for a store of it that nobody holds."""
    a.handed_out[block] = a.replicas[replica].step
    if a.fences[block] > 0:
        a.tiers[replica].is_fenced = 1
