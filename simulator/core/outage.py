"""What happens to requests whose engine is gone, and to those that waited at the gateway for one."""

import math

from simulator.core import clients, delivery, occupancy
from simulator.core.heap import set_next
from simulator.core.jit import entry_point, kernel
from simulator.core.layout import AT_GATEWAY, LEAVES_FRONT_END, LOOKS, LOST, NEXT_TURN, NONE, SENT, WAITING
from simulator.core.routing import views
from simulator.core.state import Arrays
from simulator.core.types import Request
from simulator.core.vllm.host_tier import departure, offload


@kernel
def is_on(req: Request, first: int, end: int) -> bool:
    """Whether the request is with one of the engines [first, end)."""
    return first <= req.replica < end and WAITING <= req.status <= SENT


@kernel
def is_withdrawn(a: Arrays, kind: int, request: int, first: int, end: int) -> bool:
    req = a.requests[request]
    return req.status == AT_GATEWAY or (kind == LEAVES_FRONT_END and is_on(req, first, end))


@kernel
def drop_events(a: Arrays, first: int, end: int) -> None:
    """Of requests on their way into the engines [first, end), and of those at the gateway."""
    cursor = a.cursor[0]
    size, cursor.heap_size = cursor.heap_size, 0
    for index in range(size):  # an event moves to a place that was read already
        time_s, kind, request = a.heap[index].time_s, a.heap[index].kind, a.heap[index].request
        if kind == LOOKS or not is_withdrawn(a, kind, request, first, end):
            clients.push_event(a, time_s, kind, request)


@kernel
def take_back(a: Arrays, request: int) -> None:
    """The gateway has the request once more, from its start; its client notices that it takes longer."""
    req = a.requests[request]
    if a.clients.shape[0] > 0 and req.first_token_s == req.first_token_s:
        a.clients[request].gives_up_s = math.inf  # its client has seen an answer begin
    req.computed, req.quiet_until, req.in_flight, req.placeholders, req.stale, req.output = 0, 0, 0, 0, 0, 0
    req.num_blocks, req.cached_blocks, req.quiet_since, req.next_decode_step = 0, 0, 0, 0
    req.prefilling, req.drafts, req.passed_over, req.checkpoint, req.shared_prefix_boundary = 0, 0, 0, 0, 0
    req.row, req.cached_tokens = NONE, NONE
    req.scheduled_s, req.first_token_s, req.last_token_s = math.nan, math.nan, math.nan
    req.status = AT_GATEWAY
    if a.offloads.shape[0] > 0:
        offload.forget(a, request)


@entry_point
def take_down(a: Arrays, first: int, end: int, retries: int) -> int:
    """Take all requests off the engines [first, end): back to the gateway, or lost; returns how many they had.

    Their steps in flight never end. What else they hold is forgotten by whoever makes new engines of them.
    """
    now_s, num_taken = a.cursor[0].now_s, 0
    drop_events(a, first, end)
    for replica in range(first, end):
        occupancy.account(a, replica, now_s)
        set_next(a.next_event_s, replica, math.inf)
        if a.pools[a.replicas[replica].pool].is_shared == 1:
            departure.let_go(a, replica)
    for request in range(a.requests.shape[0]):
        if not is_on(a.requests[request], first, end):
            continue
        num_taken += 1
        views.note_ended(a, request)
        if retries == 1:
            take_back(a, request)
        else:
            delivery.end(a, request, LOST, now_s)
            clients.resume(a, request, now_s)
    return num_taken


@entry_point
def send_on(a: Arrays) -> None:
    """Let all that came back to the gateway, or found no engine, enter it now, in the order of ids."""
    drop_events(a, 0, 0)
    for request in range(a.requests.shape[0]):
        if a.requests[request].status == AT_GATEWAY:
            clients.push_event(a, a.cursor[0].now_s, NEXT_TURN, request)
