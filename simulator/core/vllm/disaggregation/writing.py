"""The writes of a prefill engine into decode engines, and a request's two rows, compiled.

As in `conformance.reference.vllm.connectors.pushing`.
"""

import math

from simulator.core.heap import set_next
from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import DECODE, FINISHED, NONE
from simulator.core.routing import views
from simulator.core.state import Arrays
from simulator.core.vllm.disaggregation import keeping
from simulator.core.vllm.disaggregation.layout import RECEIVED, SENT


@kernel
def num_rows(a: Arrays) -> int:
    """Of requests; as many follow for their prefill engines."""
    return a.handovers.shape[0] >> 1


@rare_kernel
def is_undivided(a: Arrays, request: int) -> bool:
    """Whether a request comes to the router that is to be at two engines at once."""
    return bool(a.sides[0].pushes == 1 and a.handovers[request].stage == 0)


@rare_kernel
def divide(a: Arrays, request: int, source: int) -> int:
    """Its prefill engine was chosen: returns its row there. The request itself is for a decode engine."""
    handover, row = a.handovers[request], request + num_rows(a)
    handover.stage, handover.do_remote_prefill, handover.source = 1, 1, source
    a.requests[row].arrival_s = a.requests[request].arrival_s
    return row


@rare_kernel
def note_prefilled(a: Arrays, row: int, now_s: float) -> None:
    """A prompt has been computed."""
    handover = a.handovers[row - num_rows(a)]
    views.note_ended(a, row)
    handover.prefilled_s, handover.cached_tokens = now_s, a.requests[row].cached_tokens
    a.requests[row].status, a.requests[row].finish_s = FINISHED, now_s


@rare_kernel
def leave(a: Arrays, request: int) -> None:
    """A request's client has left: what it asked for never comes unless it is computed."""
    handover = a.handovers[request]
    if handover.asked == 1 and not keeping.is_kept(a, handover.source, request + num_rows(a)):
        lose(a, request)


@kernel
def lose(a: Arrays, request: int) -> None:
    if a.handovers[request].lost == 0:
        a.handovers[request].lost = 1
        a.sides[a.requests[request].replica].num_lost += 1


@rare_kernel
def launch(a: Arrays, replica: int, slot: int, now_s: float) -> None:
    """A step is launched: what it asks for goes out, what its engine has computed can be written.

    That a write from here is over it sees at once. That one to here is over a message says, and messages are read in
    the background: with a step that asks for something, else after it, to be seen with the next.
    """
    side = a.sides[replica]
    asks = a.pools[a.replicas[replica].pool].role == DECODE
    request = side.asked_head
    if asks and request != NONE:
        side.looked_s = now_s
    while request != NONE:
        following = a.handovers[request].next_asked
        if asks:
            ask(a, replica, request, now_s)
        else:
            offer(a, request, now_s)
        request = following
    side.asked_head = side.asked_tail = NONE
    keeping.tell(a, replica, slot, now_s, side.looked_s)
    side.looked_s = now_s


@kernel
def ask(a: Arrays, replica: int, request: int, now_s: float) -> None:
    """A decode engine has blocks for a request."""
    handover, row = a.handovers[request], request + num_rows(a)
    handover.asked = 1
    handover.known_s = now_s + max(a.sides[replica].transfer_s, a.sides[handover.source].transfer_s)
    keeping.await_end(a, replica, RECEIVED, request, math.inf)
    if a.handovers[row].offered == 0:
        return
    if keeping.is_kept(a, handover.source, row) and a.waits[row, SENT].over_s > handover.known_s:
        write(a, request, handover.known_s)
    else:  # its lease is over
        lose(a, request)


@kernel
def offer(a: Arrays, row: int, now_s: float) -> None:
    """A prompt has been computed, and a step launched after that."""
    a.handovers[row].offered = 1
    if a.handovers[row - num_rows(a)].asked == 1:
        write(a, row - num_rows(a), now_s)


@kernel
def write(a: Arrays, request: int, now_s: float) -> None:
    """Begin a write: one at a time from an engine and to an engine, as fast as the slower of the two."""
    handover, row = a.handovers[request], request + num_rows(a)
    replica = a.requests[request].replica
    side, source = a.sides[replica], a.sides[handover.source]
    num_blocks = handover.read_blocks
    begin_s = max(now_s, handover.known_s, source.sent_free_s, side.read_free_s)
    block_s = source.post_s + max(side.block_s, source.block_s)
    end_s = begin_s + (max(side.transfer_s, source.transfer_s) + num_blocks * block_s)
    source.sent_free_s = side.read_free_s = end_s
    a.totals[replica].read_s += end_s - begin_s
    handover.asked = 0
    expect_end(a, replica, RECEIVED, request, end_s)
    expect_end(a, handover.source, SENT, row, min(a.waits[row, SENT].over_s, end_s))


@kernel
def expect_end(a: Arrays, replica: int, kind: int, row: int, end_s: float) -> None:
    """What an engine waits for is over then, no later than was known; one that rests wakes for it."""
    known = a.wait_lists[replica, kind]
    a.waits[row, kind].over_s = end_s
    known.next_s = min(known.next_s, end_s)
    if a.tiers[replica].is_idle == 1:
        set_next(a.next_event_s, replica, keeping.next_end_s(a, replica))
