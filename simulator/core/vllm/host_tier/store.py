"""What goes to a store that engines share and comes back, compiled: as in `engines.vllm.connectors.store`.

Stores lie in their ring in the order in which they are asked for; each begins when its turn has come.
"""

import math

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.types import Transfer
from simulator.core.vllm import pool
from simulator.core.vllm.host_tier import eviction, host_cache, host_link
from simulator.core.vllm.host_tier.content import chunk_of, count_new, insert_new
from simulator.core.vllm.host_tier.lmcache import IS_NEW, RESUMES


@rare_kernel
def find_hit(a: Arrays, replica: int, request: int, first: int) -> int:
    """How many blocks can be loaded from block `first` on; the block of the last token is always computed."""
    p, off, req = a.pools[a.replicas[replica].pool], a.offloads[request], a.requests[request]
    off.prefill_end = req.prompt + req.output
    off.next_chunk = off.next_unsaved = 0
    off.is_looked_up = RESUMES if req.preemptions > 0 else IS_NEW
    index = 0
    while (index + 1) * p.block_size < off.prefill_end:
        chunk = chunk_of(a, replica, request, index)
        if chunk == NONE or a.chunks[a.tiers[replica].cache, chunk].reads == host_cache.WRITING:
            break
        index += 1
    return max(index - first, 0)


@rare_kernel
def plan_stores(a: Arrays, replica: int, slot: int) -> None:
    """The stores of a step: of those that are new, that resume, that ran."""
    tier, of = a.tiers[replica], a.plans[replica, slot]
    tier.store_of_step = tier.store_tail
    count = of.count - of.num_quiet
    num_ran = 0
    while num_ran < count and a.offloads[a.entries[replica, slot, num_ran].request].is_looked_up == 0:
        num_ran += 1
    for kind in (IS_NEW, RESUMES):
        for place in range(num_ran, count):
            request = a.entries[replica, slot, place].request
            if a.offloads[request].is_looked_up == kind:
                a.offloads[request].is_looked_up = 0
                ask(a, replica, request)
    for place in range(num_ran):
        ask(a, replica, a.entries[replica, slot, place].request)


@kernel
def ask(a: Arrays, replica: int, request: int) -> None:
    """Hold a request's blocks, and store those that it has filled since."""
    tier, off, req = a.tiers[replica], a.offloads[request], a.requests[request]
    p = a.pools[a.replicas[replica].pool]
    num_chunks = min(req.computed, off.prefill_end) // p.block_size
    if num_chunks <= off.next_chunk:
        return
    off.next_chunk = num_chunks
    job = a.stores[replica, tier.store_tail & p.store_mask]
    job.request = request
    job.first = job.row = NONE
    job.count = 0
    job.num_chunks = num_chunks
    job.held_blocks = req.num_blocks
    job.num_preemptions = req.preemptions
    job.end_s = math.inf
    tier.store_tail += 1
    off.num_stores += 1


@kernel
def begin(a: Arrays, replica: int, job: Transfer) -> None:
    """What of it is to be written: without room for that, or after a preemption, nothing."""
    off = a.offloads[job.request]
    if job.num_preemptions != a.requests[job.request].preemptions:
        return
    num_new = count_new(a, replica, job.request, NONE, off.next_unsaved, job.num_chunks)
    if num_new > 0:
        if not eviction.make_room(a, replica, num_new):
            return
        for index in range(off.next_unsaved, job.num_chunks):
            insert_new(a, replica, job.request, index, job)
    off.next_unsaved = job.num_chunks


@rare_kernel
def settle(a: Arrays, replica: int, now_s: float) -> None:
    """Begin the stores whose turn it is by now; what is stored by now is there."""
    tier, p = a.tiers[replica], a.pools[a.replicas[replica].pool]
    while True:
        while tier.store_settled < tier.store_begun:
            job = a.stores[replica, tier.store_settled & p.store_mask]
            if job.end_s > now_s:
                break
            end_writes(a, replica, job.first)
            tier.store_settled += 1
        if tier.store_begun == tier.store_tail:
            return
        job = a.stores[replica, tier.store_begun & p.store_mask]
        begin_s = max(tier.store_free_s, job.asked_s)
        if begin_s > now_s:
            return
        begin(a, replica, job)
        tier.store_free_s = begin_s
        if job.count > 0:
            copied_s = max(begin_s, job.computed_s) + host_link.copy_s(p, job.count)
            tier.store_free_s = max(copied_s, served_s(a, replica, 1, job.count, begin_s))
        job.end_s = tier.store_free_s
        tier.store_begun += 1


@kernel
def end_writes(a: Arrays, replica: int, chunk: int) -> None:
    while chunk != NONE:
        host_cache.end_write(a, replica, chunk)
        chunk = a.chunks[a.tiers[replica].cache, chunk].next_in_store


@kernel
def served_s(a: Arrays, replica: int, way: int, num_chunks: int, asked_s: float) -> float:
    """When the store has given (0) or taken (1) chunks, after all that it was asked for before."""
    cache, p = a.caches[a.tiers[replica].cache], a.pools[a.replicas[replica].pool]
    cache.free_s[way] = max(cache.free_s[way], asked_s) + num_chunks * p.store_chunk_s
    return float(cache.free_s[way])


@rare_kernel
def launch(a: Arrays, replica: int, slot: int, now_s: float, end_s: float) -> None:
    """A step is launched that ends then, with its copies; it hears which are over by now."""
    tier, p = a.tiers[replica], a.pools[a.replicas[replica].pool]
    tier.now_s = max(tier.now_s, now_s)
    while tier.load_begun < tier.load_tail:
        load = a.loads[replica, tier.load_begun & p.load_mask]
        begin_s = max(tier.load_free_s, tier.now_s)
        copied_s = begin_s + host_link.copy_s(p, load.count)
        load.end_s = tier.load_free_s = max(copied_s, served_s(a, replica, 0, load.count, begin_s))
        a.offloads[load.request].loading_s += load.end_s - tier.now_s
        tier.load_begun += 1
    for place in range(tier.store_of_step, tier.store_tail):
        job = a.stores[replica, place & p.store_mask]
        job.asked_s = tier.now_s
        job.computed_s = end_s
    settle(a, replica, tier.now_s)
    host_link.tell(a, replica, slot)


# -- blocks that stores hold


@rare_kernel
def keep(a: Arrays, replica: int, request: int) -> bool:
    """Leave a request's table, with the blocks that its latest store holds, to that one.

    False: none is under way, or no table would be left for others.
    """
    tier, state, req = a.tiers[replica], a.replicas[replica], a.requests[request]
    p = a.pools[state.pool]
    place = tier.store_tail - 1
    while place >= tier.store_done and a.stores[replica, place & p.store_mask].request != request:
        place -= 1
    job = a.stores[replica, place & p.store_mask]
    if place < tier.store_done or job.row != NONE or state.num_free_rows == 0:
        return False
    free(a, replica, req.row, job.held_blocks, req.num_blocks)
    job.row = req.row
    req.row = NONE
    req.num_blocks = req.cached_blocks = 0
    return True


@kernel
def free(a: Arrays, replica: int, row: int, first: int, last: int) -> None:
    state = a.replicas[replica]
    mask = a.pools[state.pool].queue_mask
    pool.free_range(state, mask, a.blocks, a.free_queue, a.queue_places, a.tables, replica, row, first, last)


@kernel
def take_in(a: Arrays, replica: int, slot: int) -> None:
    """The stores that a plan's output tells to be over let go of their blocks."""
    tier, state = a.tiers[replica], a.replicas[replica]
    while tier.store_done < a.told[replica, slot, 0]:
        job = a.stores[replica, tier.store_done & a.pools[state.pool].store_mask]
        if job.row != NONE:
            free(a, replica, job.row, 0, job.held_blocks)
            a.free_rows[replica, state.num_free_rows] = job.row
            state.num_free_rows += 1
        a.offloads[job.request].num_stores -= 1
        tier.store_done += 1
