"""Blocks that are kept to be read, and what an engine is told of reads, compiled.

The twin of `simulator.engines.vllm.connectors.pulling`, with what the scheduler does for it.
"""

import math
from typing import Any

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE, PREFILL
from simulator.core.vllm import blocks, pool


@rare_kernel
def end(a: Any, replica: int, request: int, was_aborted: int) -> None:
    """A request has ended: one that was prefilled keeps its blocks, one that was never read tells its source so."""
    handover = a.handovers[request]
    if a.pools[a.replicas[replica].pool].role == PREFILL:
        if was_aborted == 0:
            keep(a, replica, request)
        return
    if handover.do_remote_prefill == 1:
        handover.do_remote_prefill = 0
        handover.next_read = a.sides[replica].given_up_head
        a.sides[replica].given_up_head = request


@kernel
def keep(a: Any, replica: int, request: int) -> None:
    """Its blocks stay until they have been read, or the lease is over."""
    side, handover, req = a.sides[replica], a.handovers[request], a.requests[request]
    handover.row, handover.num_blocks = req.row, req.num_blocks
    handover.sent_s = a.cursor[0].now_s + side.lease_s
    req.row, req.num_blocks, req.cached_blocks = NONE, 0, 0
    before, after = NONE, side.kept_head
    while after != NONE and after < request:
        before, after = after, a.handovers[after].next_kept
    handover.next_kept = after
    if before == NONE:
        side.kept_head = request
    else:
        a.handovers[before].next_kept = request
    side.num_pending += 1
    side.next_sent_s = min(side.next_sent_s, handover.sent_s)


@kernel
def is_kept(a: Any, replica: int, request: int) -> bool:
    """Whether an engine keeps a request's blocks, and was not yet told that nobody needs them."""
    kept = a.sides[replica].kept_head
    while kept != NONE and kept < request:
        kept = a.handovers[kept].next_kept
    return bool(kept == request)


@rare_kernel
def release(a: Any, request: int, time_s: float) -> None:
    """The engine that keeps a request's blocks, if it still does, will know by then that nobody needs them."""
    handover = a.handovers[request]
    side = a.sides[handover.source]
    if not is_kept(a, handover.source, request):
        return
    handover.sent_s = time_s
    side.next_sent_s = math.inf
    kept = side.kept_head
    while kept != NONE:
        side.next_sent_s = min(side.next_sent_s, a.handovers[kept].sent_s)
        kept = a.handovers[kept].next_kept


@kernel
def next_end_s(a: Any, replica: int) -> float:
    """When the next read ends that the engine does not know to be over; infinity: there is none."""
    return min(a.sides[replica].next_sent_s, a.sides[replica].next_received_s)


@kernel
def has_news(a: Any, replica: int, now_s: float) -> bool:
    """Whether a step would be told of a read, or take note of one that an earlier step was told of."""
    side = a.sides[replica]
    is_told = side.num_sent_taken < side.num_sent or side.num_received_taken < side.num_received
    return bool(is_told or next_end_s(a, replica) <= now_s)


@rare_kernel
def tell(a: Any, replica: int, slot: int, now_s: float) -> None:
    """A step of the engine is launched: with its output comes what is over by now."""
    side = a.sides[replica]
    if side.next_received_s <= now_s:
        tell_received(a, replica, now_s)
    if side.next_sent_s <= now_s:
        tell_sent(a, replica, now_s)
    a.told[replica, slot, 0] = side.num_sent
    a.told[replica, slot, 1] = side.num_received


@kernel
def tell_received(a: Any, replica: int, now_s: float) -> None:
    side = a.sides[replica]
    side.next_received_s = math.inf
    before, request = NONE, side.read_head
    while request != NONE:
        following = a.handovers[request].next_read
        if a.handovers[request].received_s > now_s:
            side.next_received_s = min(side.next_received_s, a.handovers[request].received_s)
            before, request = request, following
            continue
        if before == NONE:
            side.read_head = following
        else:
            a.handovers[before].next_read = following
        a.handovers[request].next_read = NONE
        if side.received_tail == NONE:
            side.received_head = request
        else:
            a.handovers[side.received_tail].next_read = request
        side.received_tail = request
        side.num_received += 1
        request = following


@kernel
def tell_sent(a: Any, replica: int, now_s: float) -> None:
    side = a.sides[replica]
    side.next_sent_s = math.inf
    before, request = NONE, side.kept_head
    while request != NONE:
        following = a.handovers[request].next_kept
        if a.handovers[request].sent_s > now_s:
            side.next_sent_s = min(side.next_sent_s, a.handovers[request].sent_s)
            before, request = request, following
            continue
        if before == NONE:
            side.kept_head = following
        else:
            a.handovers[before].next_kept = following
        a.handovers[request].next_kept = NONE
        if side.sent_tail == NONE:
            side.sent_head = request
        else:
            a.handovers[side.sent_tail].next_kept = request
        side.sent_tail = request
        side.num_sent += 1
        request = following


@rare_kernel
def take_in(a: Any, replica: int, slot: int) -> None:
    """The reads that a plan's output tells to be over."""
    side = a.sides[replica]
    while side.num_received_taken < a.told[replica, slot, 1]:
        request = side.received_head
        side.received_head = a.handovers[request].next_read
        if side.received_head == NONE:
            side.received_tail = NONE
        if a.offloads[request].loading == 1:
            a.offloads[request].loading = 2
        else:  # it ended meanwhile
            a.offloads[request].loading = 0
            blocks.release(a, replica, request)
        side.num_received_taken += 1
        side.num_pending -= 1
    while side.num_sent_taken < a.told[replica, slot, 0]:
        request = side.sent_head
        side.sent_head = a.handovers[request].next_kept
        if side.sent_head == NONE:
            side.sent_tail = NONE
        let_go(a, replica, request)
        side.num_sent_taken += 1
        side.num_pending -= 1


@kernel
def let_go(a: Any, replica: int, request: int) -> None:
    """Free the blocks that were kept."""
    state, handover = a.replicas[replica], a.handovers[request]
    mask = a.pools[state.pool].queue_mask
    pool.free_range(
        state, mask, a.blocks, a.free_queue, a.queue_places, a.tables, replica, handover.row, 0, handover.num_blocks
    )
    a.free_rows[replica, state.num_free_rows] = handover.row
    state.num_free_rows += 1
    handover.row, handover.num_blocks = NONE, 0
