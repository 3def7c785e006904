"""What clients do: they send turns one after another, do not wait for ever, try again."""

import math

from simulator.core import delivery
from simulator.core import replica as replicas
from simulator.core.heap import pop, push
from simulator.core.jit import kernel
from simulator.core.layout import ABANDONED, FINISHED, FIRST_TOKEN, NEXT_TURN, NONE, REJECTED, TIMED_OUT, WHOLE_ANSWER
from simulator.core.state import Arrays
from simulator.core.vllm.disaggregation import reading, writing


@kernel
def push_event(a: Arrays, time_s: float, kind: int, request: int) -> None:
    push(a.heap, a.cursor[0].heap_size, time_s, kind, request)
    a.cursor[0].heap_size += 1


@kernel
def follow_up(a: Arrays, request: int, following: int, now_s: float) -> None:
    """Think, then send the session's next turn, `following`; a free client takes the next of the shared queue."""
    cursor = a.cursor[0]
    if following != NONE:
        a.requests[following].replica = a.requests[request].replica
        if a.handovers.shape[0] > 0:
            reading.remember(a, request, following)
    if following == NONE and cursor.next_free < a.shared_queue.shape[0]:
        following = a.shared_queue[cursor.next_free]
        cursor.next_free += 1
    if following == NONE:
        cursor.num_exhausted += 1
        return
    a.requests[following].arrival_s = now_s + a.think_s[following]
    push_event(a, a.requests[following].arrival_s, NEXT_TURN, following)


# -- clients that do not wait for ever


@kernel
def watch(a: Arrays, request: int, now_s: float) -> None:
    """Enter the first deadline of an attempt that is sent now."""
    client = a.clients[request]
    if request < a.next_turn.shape[0]:
        client.gives_up_s = now_s + client.patience_s
    times_out_s = now_s + client.timeout_s
    if min(client.gives_up_s, times_out_s) < math.inf:
        kind = FIRST_TOKEN if client.gives_up_s <= times_out_s else WHOLE_ANSWER
        push(a.deadlines, a.cursor[0].num_deadlines, min(client.gives_up_s, times_out_s), kind, request)
        a.cursor[0].num_deadlines += 1


@kernel
def next_deadline_s(a: Arrays) -> float:
    """Of a request that has not ended; once the first token is there, the whole answer has a deadline."""
    cursor = a.cursor[0]
    while cursor.has_clients == 1 and cursor.num_deadlines > 0:
        request, kind = a.deadlines[0].request, a.deadlines[0].kind
        req = a.requests[request]
        has_begun = req.first_token_s == req.first_token_s or a.clients[request].gives_up_s == math.inf
        if req.status < FINISHED and not (kind == FIRST_TOKEN and has_begun):
            return a.deadlines[0].time_s
        times_out_s = req.arrival_s + a.clients[request].timeout_s
        pop(a.deadlines, cursor.num_deadlines)
        if req.status >= FINISHED or times_out_s == math.inf:
            cursor.num_deadlines -= 1
        else:
            push(a.deadlines, cursor.num_deadlines - 1, times_out_s, WHOLE_ANSWER, request)
    return math.inf


@kernel
def cancel_overdue(a: Arrays, now_s: float) -> None:
    """Cancel every request whose client's wait has ended."""
    while next_deadline_s(a) <= now_s:
        request, kind = a.deadlines[0].request, a.deadlines[0].kind
        pop(a.deadlines, a.cursor[0].num_deadlines)
        a.cursor[0].num_deadlines -= 1
        replicas.abort(a, request, ABANDONED if kind == FIRST_TOKEN else TIMED_OUT, now_s)
        go_on(a, request, kind == WHOLE_ANSWER, now_s)


@kernel
def reject(a: Arrays, request: int, now_s: float) -> None:
    """The gateway turns a request down."""
    delivery.end(a, request, REJECTED, now_s)
    go_on(a, request, True, now_s)


@kernel
def go_on(a: Arrays, request: int, may_retry: bool, now_s: float) -> None:
    """What comes after an attempt without a whole answer: another attempt, or a later turn."""
    count, ends_s = a.next_turn.shape[0], now_s
    num_rows = a.requests.shape[0]
    if a.handovers.shape[0] > 0 and a.sides[0].pushes == 1:
        num_rows = writing.num_rows(a)
    if may_retry and request + count < num_rows:
        ends_s = try_again(a, request, request + count, now_s)
    if ends_s < math.inf:
        resume(a, request, ends_s)


@kernel
def resume(a: Arrays, request: int, now_s: float) -> None:
    """A user goes on after a turn without a whole answer."""
    resumes = a.clients[request].resumes if a.clients.shape[0] > 0 else a.next_turn[request]
    follow_up(a, request, resumes, now_s)


@kernel
def try_again(a: Arrays, request: int, retry: int, now_s: float) -> float:
    """Send the next attempt after its back-off; returns when the turn ends without it, if patience ends before."""
    client, req = a.clients[request], a.requests[request]
    arrival_s = now_s + a.clients[retry].backoff_s
    gives_up_s = math.inf if req.first_token_s == req.first_token_s else client.gives_up_s
    if arrival_s >= gives_up_s:
        return gives_up_s
    a.clients[retry].gives_up_s = gives_up_s
    a.requests[retry].replica = req.replica
    if a.handovers.shape[0] > 0:
        reading.remember(a, request, retry)
    a.requests[retry].arrival_s = arrival_s
    push_event(a, arrival_s, NEXT_TURN, retry)
    return math.inf
