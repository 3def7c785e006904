"""Blocks that are kept to be read, and when an engine knows that a read is over, compiled.

As in `simulator.engines.vllm.connectors.pulling`, with what the scheduler does for it.
"""

import math

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE, PREFILL
from simulator.core.state import Arrays
from simulator.core.vllm import blocks
from simulator.core.vllm.disaggregation import windows
from simulator.core.vllm.disaggregation.layout import RECEIVED, SENT


@rare_kernel
def end(a: Arrays, replica: int, request: int, was_aborted: int) -> None:
    """A request has ended: one that was prefilled keeps its blocks, one that was never read tells its source so."""
    handover = a.handovers[request]
    if a.pools[a.replicas[replica].pool].role == PREFILL:
        if was_aborted == 0:
            keep(a, replica, request)
            if a.sides[replica].pushes == 1:
                enlist(a, replica, request)
        return
    if handover.do_remote_prefill == 1:
        handover.do_remote_prefill = 0
        if a.sides[replica].pushes == 1:  # vLLM tells nobody
            return
        handover.next_asked = a.sides[replica].given_up_head
        a.sides[replica].given_up_head = request


@kernel
def enlist(a: Arrays, replica: int, request: int) -> None:
    """The step that is being decided, or the next one, asks for a request's KV, or offers it."""
    side = a.sides[replica]
    a.handovers[request].next_asked = NONE
    if side.asked_tail == NONE:
        side.asked_head = request
    else:
        a.handovers[side.asked_tail].next_asked = request
    side.asked_tail = request


@kernel
def keep(a: Arrays, replica: int, request: int) -> None:
    """Its blocks stay until they have been read, or the lease is over."""
    handover, req = a.handovers[request], a.requests[request]
    handover.row, handover.num_blocks = req.row, req.num_blocks
    req.row, req.num_blocks, req.cached_blocks = NONE, 0, 0
    await_end(a, replica, SENT, request, a.cursor[0].now_s + a.sides[replica].lease_s)


@kernel
def is_kept(a: Arrays, replica: int, request: int) -> bool:
    """Whether an engine keeps a request's blocks, and does not know yet that nobody needs them."""
    kept = a.wait_lists[replica, SENT].head
    while kept != NONE and kept < request:
        kept = a.waits[kept, SENT].next
    return bool(kept == request)


@rare_kernel
def release(a: Arrays, request: int, time_s: float) -> None:
    """The engine that keeps a request's blocks, if it still does, will know by then that nobody needs them."""
    source = a.handovers[request].source
    if not is_kept(a, source, request):
        return
    a.waits[request, SENT].over_s = time_s
    known = a.wait_lists[source, SENT]
    known.next_s = math.inf
    kept = known.head
    while kept != NONE:
        known.next_s = min(known.next_s, a.waits[kept, SENT].over_s)
        kept = a.waits[kept, SENT].next


# -- what an engine waits for: a list of requests by id, and one of those that a step has heard of


@kernel
def await_end(a: Arrays, replica: int, kind: int, request: int, over_s: float) -> None:
    """Wait for the end of what begins now."""
    waits, known = a.waits, a.wait_lists[replica, kind]
    before, after = NONE, known.head
    while after != NONE and after < request:
        before, after = after, waits[after, kind].next
    waits[request, kind].next, waits[request, kind].over_s = after, over_s
    if before == NONE:
        known.head = request
    else:
        waits[before, kind].next = request
    known.next_s = min(known.next_s, over_s)
    a.sides[replica].num_pending += 1


@kernel
def tell_of(a: Arrays, replica: int, kind: int, now_s: float) -> None:
    """Move what is over by now to those that a step hears of."""
    waits, known = a.waits, a.wait_lists[replica, kind]
    if known.next_s > now_s:
        return
    known.next_s = math.inf
    before, request = NONE, known.head
    while request != NONE:
        following = waits[request, kind].next
        if waits[request, kind].over_s > now_s:
            known.next_s = min(known.next_s, waits[request, kind].over_s)
            before, request = request, following
            continue
        if before == NONE:
            known.head = following
        else:
            waits[before, kind].next = following
        waits[request, kind].next = NONE
        if known.told_tail == NONE:
            known.told_head = request
        else:
            waits[known.told_tail, kind].next = request
        known.told_tail = request
        known.num_told += 1
        request = following


@kernel
def take_next(a: Arrays, replica: int, kind: int) -> int:
    """Take note of the first of those that a step has heard of."""
    known = a.wait_lists[replica, kind]
    request = int(known.told_head)
    known.told_head = a.waits[request, kind].next
    if known.told_head == NONE:
        known.told_tail = NONE
    known.num_taken += 1
    a.sides[replica].num_pending -= 1
    return request


@kernel
def next_end_s(a: Arrays, replica: int) -> float:
    """When the next read ends that the engine does not know to be over; infinity: there is none."""
    return min(a.wait_lists[replica, SENT].next_s, a.wait_lists[replica, RECEIVED].next_s)


@kernel
def has_news(a: Arrays, replica: int, now_s: float) -> bool:
    """Whether a step would hear of a read, or take note of one that an earlier step has heard of."""
    sent, received = a.wait_lists[replica, SENT], a.wait_lists[replica, RECEIVED]
    is_told = sent.num_taken < sent.num_told or received.num_taken < received.num_told
    return bool(is_told or next_end_s(a, replica) <= now_s)


@rare_kernel
def tell(a: Arrays, replica: int, slot: int, now_s: float, looked_s: float) -> None:
    """A step of the engine is launched: with its output comes what is over by now, and had come when it looked."""
    tell_of(a, replica, SENT, now_s)
    tell_of(a, replica, RECEIVED, looked_s)
    for kind in (SENT, RECEIVED):
        a.told[replica, slot, kind] = a.wait_lists[replica, kind].num_told


@rare_kernel
def take_in(a: Arrays, replica: int, slot: int) -> None:
    """Take note of the reads that are over by a plan's output."""
    while a.wait_lists[replica, RECEIVED].num_taken < a.told[replica, slot, RECEIVED]:
        request = take_next(a, replica, RECEIVED)
        if a.offloads[request].loading == 1:
            a.offloads[request].loading = 2
        else:  # it ended meanwhile
            a.offloads[request].loading = 0
            blocks.release(a, replica, request)
    while a.wait_lists[replica, SENT].num_taken < a.told[replica, slot, SENT]:
        let_go(a, replica, take_next(a, replica, SENT))


@kernel
def let_go(a: Arrays, replica: int, request: int) -> None:
    """Free the blocks that were kept."""
    state, handover = a.replicas[replica], a.handovers[request]
    windows.free(a, replica, handover.row, handover.num_blocks, 0)
    a.free_rows[replica, state.num_free_rows] = handover.row
    state.num_free_rows += 1
    handover.row, handover.num_blocks = NONE, 0
