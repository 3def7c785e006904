"""The reads that a decode engine begins, and the way of a request from one engine to the other, compiled."""

import math

from simulator.core.heap import set_next
from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import AT_GATEWAY, NONE
from simulator.core.routing import views
from simulator.core.state import Arrays
from simulator.core.vllm.disaggregation import keeping, writing
from simulator.core.vllm.disaggregation.layout import RECEIVED


@kernel
def ask(a: Arrays, replica: int, request: int, num_blocks: int) -> None:
    """Let a request's KV come to the blocks that it was just given, from when the decided step is launched."""
    a.handovers[request].do_remote_prefill = 0
    a.handovers[request].read_blocks = num_blocks
    keeping.enlist(a, replica, request)


@rare_kernel
def launch(a: Arrays, replica: int, slot: int, now_s: float) -> None:
    """A step of the engine is launched: its reads begin, and it hears which are over by now."""
    side = a.sides[replica]
    if side.pushes == 1:
        writing.launch(a, replica, slot, now_s)
        return
    request = side.asked_head
    while request != NONE:
        following = a.handovers[request].next_asked
        read(a, replica, request, now_s)
        request = following
    request = side.given_up_head
    while request != NONE:
        source = a.sides[a.handovers[request].source]
        release(a, request, now_s + max(side.transfer_s, source.transfer_s))
        request = a.handovers[request].next_asked
    side.asked_head = side.asked_tail = side.given_up_head = NONE
    keeping.tell(a, replica, slot, now_s, now_s)


@kernel
def read(a: Arrays, replica: int, request: int, now_s: float) -> None:
    """Begin a read: one at a time from an engine and to an engine, as fast as the slower of the two."""
    side, source = a.sides[replica], a.sides[a.handovers[request].source]
    num_blocks = a.handovers[request].read_blocks
    begin_s = max(now_s, source.sent_free_s, side.read_free_s)
    transfer_s = max(side.transfer_s, source.transfer_s)
    block_s = side.post_s + max(side.block_s, source.block_s)
    end_s = begin_s + (transfer_s + num_blocks * block_s)
    source.sent_free_s = side.read_free_s = end_s
    a.totals[replica].read_s += end_s - begin_s
    keeping.await_end(a, replica, RECEIVED, request, end_s)
    release(a, request, end_s)


@kernel
def release(a: Arrays, request: int, time_s: float) -> None:
    """The source of a request's KV will know by then that nobody needs it; one that rests wakes for it."""
    keeping.release(a, request, time_s)
    source = a.handovers[request].source
    if a.tiers[source].is_idle == 1:
        set_next(a.next_event_s, source, keeping.next_end_s(a, source))


# -- the way of a request


@rare_kernel
def begin_prefill(a: Arrays, request: int) -> None:
    """A request is sent to be prefilled: there it ends with its first token."""
    a.handovers[request].max_tokens = a.requests[request].max_tokens
    a.requests[request].max_tokens = 1


@rare_kernel
def hand_over(a: Arrays, request: int, now_s: float) -> None:
    """A request has been prefilled: it waits at the gateway to be sent to a decode engine."""
    req, handover = a.requests[request], a.handovers[request]
    views.note_ended(a, request)
    handover.source, handover.stage, handover.do_remote_prefill = req.replica, 1, 1
    handover.prefilled_s, handover.cached_tokens = now_s, req.cached_tokens
    req.max_tokens = handover.max_tokens
    req.computed, req.quiet_until, req.in_flight, req.placeholders, req.stale, req.output = 0, 0, 0, 0, 0, 0
    req.prefilling, req.drafts, req.passed_over, req.quiet_since = 0, 0, 0, 0
    req.cached_tokens = NONE
    req.first_token_s, req.last_token_s = math.nan, math.nan
    req.status = AT_GATEWAY


@rare_kernel
def remember(a: Arrays, request: int, following: int) -> None:
    """What comes after a request of the same session knows where that was served."""
    handover, of = a.handovers[request], a.handovers[following]
    comes_to_decode = handover.stage == 1
    of.last_prefill = handover.source if comes_to_decode else a.requests[request].replica
    if comes_to_decode and handover.source == NONE:  # its decode engine has computed the prompt
        of.last_prefill = handover.last_prefill
    of.last_decode = handover.last_decode
    if comes_to_decode and a.requests[request].status != AT_GATEWAY:
        of.last_decode = a.requests[request].replica


@rare_kernel
def await_read(a: Arrays, request: int) -> None:
    """A request has come to its decode engine, which from now on renews the lease of its KV."""
    if a.sides[a.requests[request].replica].pushes == 1:  # it does not
        return
    if a.handovers[request].stage == 1 and a.handovers[request].do_remote_prefill == 1:
        release(a, request, math.inf)
