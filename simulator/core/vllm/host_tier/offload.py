"""What is stored in host memory, and what the scheduler does for that, compiled.

As in `conformance.reference.vllm.connectors.offloading`.
"""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import FINISHED, LMCACHE, NIXL, NONE, OFFLOADING
from simulator.core.state import Arrays
from simulator.core.types import Transfer
from simulator.core.vllm import blocks
from simulator.core.vllm.disaggregation import keeping, windows
from simulator.core.vllm.host_tier import eviction, host_cache, lmcache, store
from simulator.core.vllm.host_tier.content import (
    chunk_of,
    content_of,
    count_new,
    has_window,
    insert_new,
    is_offered,
    place_of,
)
from simulator.core.vllm.host_tier.loads import first_loaded, hand_out


@rare_kernel
def begin(a: Arrays, replica: int) -> None:
    """An engine is used for the first time."""
    if a.pools[a.replicas[replica].pool].host_chunks > 0 and a.caches[a.tiers[replica].cache].is_laid_out == 0:
        host_cache.lay_out(a, replica)


@rare_kernel
def forget(a: Arrays, request: int) -> None:
    """A request's engine is gone with its host memory: it begins anew elsewhere."""
    off = a.offloads[request]
    off.next_chunk, off.known_blocks, off.num_stores, off.local_blocks, off.preempted_step = 0, 0, 0, 0, 0
    off.loading, off.holds, off.keeps_row, off.was_aborted = 0, 0, 0, 0
    off.next_ended, off.next_deferred, off.fence_step, off.rank = 0, 0, 0, 0
    off.is_looked_up, off.found_chunks, off.seen_tokens, off.decodes = 0, 0, 0, 0
    off.prefill_end, off.next_unsaved = 0, 0
    for note in range(a.used_chunks.shape[0]):
        for byte in range(off.notes, off.notes + off.note_bytes):
            a.used_chunks[note, byte] = 0


# -- stores


@rare_kernel
def plan_transfers(a: Arrays, replica: int, slot: int) -> None:
    """The stores of a step, and which it must wait for; called when it is decided."""
    tier, plan = a.tiers[replica], a.plans[replica, slot]
    p = a.pools[a.replicas[replica].pool]
    tier.num_steps += int(plan.count > 0)
    tier.any_ended = 0
    if p.connector == NIXL:
        return
    if p.connector == LMCACHE:
        lmcache.plan_copies(a, replica, slot)
        return
    if p.is_shared == 1:
        clear_up_all(a, replica)
        store.plan_stores(a, replica, slot)
        return
    for place in range(plan.count - plan.num_quiet):
        request = a.entries[replica, slot, place].request
        off, req = a.offloads[request], a.requests[request]
        for group in range(p.num_groups):
            register(a, replica, req.row, group, off.known_blocks, req.num_blocks)
        off.known_blocks = req.num_blocks
    if tier.is_fenced == 1 or tier.any_preempted == 1:
        await_stores(a, replica)
    tier.store_of_step = tier.store_tail
    for place in range(plan.count - plan.num_quiet):
        request = a.entries[replica, slot, place].request
        offer(a, replica, request, a.requests[request].row, a.requests[request].computed)
    clear_up_all(a, replica)
    tier.is_fenced = tier.any_preempted = 0


@kernel
def register(a: Arrays, replica: int, row: int, group: int, first: int, last: int) -> None:
    """A request's new blocks [first, last) of a group, as of this step."""
    p = a.pools[a.replicas[replica].pool]
    for index in range(first, last):
        place = group * p.row_blocks + index
        if p.num_windows == 0:
            hand_out(a, replica, a.tables[row, place])
        elif index < a.table_starts[row, group]:
            a.registered[row, place] = NONE
        else:
            a.registered[row, place] = a.replicas[replica].step
            hand_out(a, replica, a.tables[row, place])


@kernel
def await_stores(a: Arrays, replica: int) -> None:
    """Note those that read a block that was let go of and handed out again, or are of a preempted request."""
    tier, p = a.tiers[replica], a.pools[a.replicas[replica].pool]
    for place in range(tier.store_done, tier.store_tail):
        store = a.stores[replica, place & p.store_mask]
        off = a.offloads[store.request]
        is_awaited = off.preempted_step == a.replicas[replica].step
        is_ended = a.requests[store.request].status >= FINISHED
        if is_ended or p.num_windows > 0:
            is_awaited = is_awaited or reads_handed_out(a, replica, store.first, is_ended)
        if is_awaited:
            store.is_awaited = 1
            tier.awaits = 1


@kernel
def reads_handed_out(a: Arrays, replica: int, chunk: int, is_ended: bool) -> bool:
    """Whether one of a store's blocks was handed out again in this step; a running request holds the others."""
    p = a.pools[a.replicas[replica].pool]
    while chunk != NONE:
        of = a.chunks[a.tiers[replica].cache, chunk]
        if (is_ended or has_window(a, p, of.key_index)) and a.handed_out[of.source] == a.replicas[replica].step:
            return True
        chunk = of.next_in_store
    return False


@rare_kernel
def offer(a: Arrays, replica: int, request: int, row: int, num_computed: int) -> None:
    """Store what a request's prompt has filled and was not offered before; nothing where room cannot be had."""
    p, off = a.pools[a.replicas[replica].pool], a.offloads[request]
    if num_computed < (off.next_chunk + 1) * p.block_size:
        return
    num_chunks = min(min(num_computed, a.requests[request].prompt) // p.block_size, off.known_blocks)
    if num_chunks <= off.next_chunk:
        return
    num_new = count_new(a, replica, request, row, off.next_chunk, num_chunks)
    if num_new > 0:
        if not eviction.make_room(a, replica, num_new):
            return  # it is offered again
        write(a, replica, request, row, off.next_chunk, num_chunks)
    off.next_chunk = num_chunks


@rare_kernel
def write(a: Arrays, replica: int, request: int, row: int, first: int, last: int) -> None:
    """Store those of a request's blocks in [first, last) that are not in the host's memory."""
    tier, p = a.tiers[replica], a.pools[a.replicas[replica].pool]
    job = a.stores[replica, tier.store_tail & p.store_mask]
    job.request = request
    job.first = NONE
    job.count = 0
    job.is_awaited = 0
    for group in range(p.num_groups):
        for index in range(first, last):
            if is_offered(a, replica, request, row, group, index):
                write_one(a, replica, request, row, group, index, job)
    tier.store_tail += 1
    a.offloads[request].num_stores += 1


@kernel
def write_one(a: Arrays, replica: int, request: int, row: int, group: int, index: int, job: Transfer) -> None:
    tier, p = a.tiers[replica], a.pools[a.replicas[replica].pool]
    chunk = insert_new(a, replica, request, place_of(p, group, index), job)
    if chunk == NONE:
        return
    of = a.chunks[a.tiers[replica].cache, chunk]
    of.source = a.tables[row, group * p.row_blocks + index]
    if has_window(a, p, of.key_index):
        a.fences[of.source] += 1
    elif a.requests[request].status >= FINISHED:
        a.fences[of.source] += 1
        if a.handed_out[of.source] == a.replicas[replica].step:
            job.is_awaited = 1
            tier.awaits = 1


# -- ends


@rare_kernel
def preempt(a: Arrays, replica: int, request: int) -> None:
    """A request lets its blocks go: the step waits for its stores, but for those that hold blocks themselves."""
    if a.offloads[request].num_stores > 0:
        if a.pools[a.replicas[replica].pool].is_shared == 1:
            if store.keep(a, replica, request):
                return
        else:
            a.offloads[request].preempted_step = a.replicas[replica].step
            a.tiers[replica].any_preempted = 1
    blocks.release(a, replica, request)


@kernel
def may_free(a: Arrays, replica: int, request: int, undecided: int) -> bool:
    """Whether no step in flight writes a request's blocks; `undecided` tokens are of the step that is being decided."""
    p = a.pools[a.replicas[replica].pool]
    return p.defers_frees == 0 or p.plans_in_flight == 1 or a.requests[request].in_flight == undecided


@rare_kernel
def end(a: Arrays, replica: int, request: int, was_aborted: int) -> None:
    """A request has ended: its blocks are free now, or once nothing copies into them or writes them."""
    tier, off, req = a.tiers[replica], a.offloads[request], a.requests[request]
    connector = a.pools[a.replicas[replica].pool].connector
    is_offloading = connector == OFFLOADING
    is_shared = a.pools[a.replicas[replica].pool].is_shared == 1
    tier.any_ended = 1
    if a.pools[a.replicas[replica].pool].num_windows > 0 and req.row != NONE:
        blocks.free_skipped(a, replica, request, req.computed - req.in_flight)
    if connector == LMCACHE:
        lmcache.end(a, replica, request)
    elif is_offloading:
        off.was_aborted = was_aborted
        if off.num_stores > 0 and not is_shared:
            fence(a, replica, request)
        enter_ended(a, replica, request)
    else:
        keeping.end(a, replica, request, was_aborted)
    if req.row == NONE:
        return
    if off.holds == 1:
        off.holds = 0
        if off.loading != 1:
            blocks.release(a, replica, request)
        off.loading = 3 if off.loading == 1 else 0  # its blocks stay until the load is over
        return
    off.keeps_row = int(is_offloading and not is_shared)
    if may_free(a, replica, request, 0):
        free_blocks(a, replica, request, 0)
        return
    off.fence_step = tier.num_steps
    off.next_deferred = NONE
    if tier.deferred_head == NONE:
        tier.deferred_head = request
    else:
        a.offloads[tier.deferred_tail].next_deferred = request
    tier.deferred_tail = request


@kernel
def fence(a: Arrays, replica: int, request: int) -> None:
    """Watch the blocks that an ended request's stores read; those of windows are watched as long as it is."""
    tier, p = a.tiers[replica], a.pools[a.replicas[replica].pool]
    for place in range(tier.store_done, tier.store_tail):
        job = a.stores[replica, place & p.store_mask]
        if job.request != request:
            continue
        chunk = job.first
        while chunk != NONE:
            of = a.chunks[a.tiers[replica].cache, chunk]
            a.fences[of.source] += int(not has_window(a, p, of.key_index))
            chunk = a.chunks[a.tiers[replica].cache, chunk].next_in_store


@kernel
def enter_ended(a: Arrays, replica: int, request: int) -> None:
    """Into the list of those that ended since the latest step was decided, by id."""
    tier = a.tiers[replica]
    before, after = tier.ended_tail, NONE
    if before != NONE and before > request:
        before, after = NONE, tier.ended_head
        while after < request:
            before, after = after, a.offloads[after].next_ended
    a.offloads[request].next_ended = after
    if before == NONE:
        tier.ended_head = request
    else:
        a.offloads[before].next_ended = request
    if after == NONE:
        tier.ended_tail = request


@kernel
def clear_up_all(a: Arrays, replica: int) -> None:
    tier = a.tiers[replica]
    while tier.ended_head != NONE:
        clear_up(a, replica, tier.ended_head)
        tier.ended_head = a.offloads[tier.ended_head].next_ended
    tier.ended_tail = NONE


@kernel
def clear_up(a: Arrays, replica: int, request: int) -> None:
    """An ended request offers what it could not before, and uses its chunks, the tail first."""
    off, req = a.offloads[request], a.requests[request]
    num_computed = req.computed if off.was_aborted == 1 else req.prompt
    if off.keeps_row == 1:
        offer(a, replica, request, req.row, num_computed)
    by_arc = a.pools[a.replicas[replica].pool].evicts_by_arc
    for byte in range(off.note_bytes - 1, -1, -1):
        bits = a.used_chunks[0, off.notes + byte]
        if by_arc == 1:
            bits |= a.used_chunks[eviction.INSERTED, off.notes + byte]
        if bits == 0:
            continue
        for bit in range(7, -1, -1):
            if bits & (1 << bit):
                place = 8 * byte + bit
                eviction.use_ended(a, replica, request, content_of(a, replica, request, place), place)
    if off.keeps_row == 1:
        off.keeps_row = 0
        if req.num_blocks == 0:
            free_row(a, replica, request)


@kernel
def free_blocks(a: Arrays, replica: int, request: int, was_deferred: int) -> None:
    """Give back an ended request's blocks, and its row unless the next plan needs that."""
    state, req = a.replicas[replica], a.requests[request]
    if a.pools[state.pool].is_shared == 1 and store.keep(a, replica, request):
        return
    windows.free(a, replica, req.row, req.num_blocks, was_deferred)
    req.num_blocks = 0
    req.cached_blocks = 0
    if a.offloads[request].keeps_row == 0:
        free_row(a, replica, request)


@kernel
def free_row(a: Arrays, replica: int, request: int) -> None:
    state = a.replicas[replica]
    a.free_rows[replica, state.num_free_rows] = a.requests[request].row
    state.num_free_rows += 1
    a.requests[request].row = NONE


@rare_kernel
def step_is_over(a: Arrays, replica: int) -> None:
    """Give back blocks that a step wrote which is over now; before anything else of its output is read."""
    tier = a.tiers[replica]
    tier.num_steps_over += 1
    while tier.deferred_head != NONE and a.offloads[tier.deferred_head].fence_step <= tier.num_steps_over:
        request = tier.deferred_head
        tier.deferred_head = a.offloads[request].next_deferred
        free_blocks(a, replica, request, 1)


@rare_kernel
def take_in(a: Arrays, replica: int, slot: int) -> None:
    """The transfers that a plan's output tells to be over."""
    if a.pools[a.replicas[replica].pool].connector == NIXL:
        keeping.take_in(a, replica, slot)
        return
    if a.pools[a.replicas[replica].pool].connector == LMCACHE:
        lmcache.take_in(a, replica, slot)
        return
    tier, p = a.tiers[replica], a.pools[a.replicas[replica].pool]
    while tier.load_done < a.told[replica, slot, 1]:
        job = a.loads[replica, tier.load_done & p.load_mask]
        last = blocks.num_blocks_of(job.tokens, p.block_size)
        for group in range(p.num_groups):
            for index in range(first_loaded(a, p, group, job.first, job.tokens), last):
                host_cache.end_read(a, replica, chunk_of(a, replica, job.request, place_of(p, group, index)))
        if a.offloads[job.request].loading == 1:
            a.offloads[job.request].loading = 2
        else:  # it ended meanwhile
            a.offloads[job.request].loading = 0
            blocks.release(a, replica, job.request)
        tier.load_done += 1
    if p.is_shared == 1:
        store.take_in(a, replica, slot)
    while tier.store_done < a.told[replica, slot, 0]:
        job = a.stores[replica, tier.store_done & p.store_mask]
        is_ended = a.requests[job.request].status >= FINISHED
        chunk = job.first
        while chunk != NONE:
            host_cache.end_write(a, replica, chunk)
            of = a.chunks[a.tiers[replica].cache, chunk]
            if is_ended or has_window(a, p, of.key_index):
                a.fences[of.source] -= 1
            chunk = of.next_in_store
        a.offloads[job.request].num_stores -= 1
        tier.store_done += 1
