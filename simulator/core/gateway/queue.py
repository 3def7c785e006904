"""Which request the gateway turns down, which it holds, and which it lets go next."""

import math

from simulator.core import waiting
from simulator.core.gateway.layout import CONCURRENCY, UTILIZATION
from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import DECODE, HELD, NONE, SERVE
from simulator.core.routing import views
from simulator.core.state import Arrays
from simulator.core.types import Gateway


@rare_kernel
def is_within_quota(a: Arrays, request: int, now_s: float) -> bool:
    """Take a request, and the tokens of its prompt, out of its tenant's buckets; False where one has too few."""
    if a.quotas.shape[0] == 0:
        return True
    quota = a.quotas[a.tenant_of[request % a.tenant_of.shape[0]]]
    elapsed_s, quota.filled_s = now_s - quota.filled_s, now_s
    quota.requests = min(quota.most_requests, quota.requests + elapsed_s * quota.requests_per_s)
    quota.tokens = min(quota.most_tokens, quota.tokens + elapsed_s * quota.tokens_per_s)
    prompt = a.requests[request].prompt
    if quota.requests < 1.0 or quota.tokens < prompt:
        return False
    quota.requests -= 1.0
    quota.tokens -= prompt
    return True


@rare_kernel
def hold(a: Arrays, request: int, now_s: float) -> bool:
    """Put a request behind the others of its flow; False where the queue is full."""
    g, flow = a.gateways[0], a.flow_of[request % a.flow_of.shape[0]]
    band = a.bands[a.flows[flow].band]
    if g.num_held + 1 > g.max_requests or band.num_held + 1 > g.band_max_requests:
        return False
    waiting.link(a, request, a.flows[flow].tail, NONE)
    if a.flows[flow].head == NONE:
        a.flows[flow].head = request
    a.flows[flow].tail = request
    a.requests[request].status = HELD
    a.queued_s[request] = now_s
    account(g, now_s)
    band.num_held += 1
    g.num_held += 1
    return True


@kernel
def account(gateway: Gateway, now_s: float) -> None:
    """Carry the queue's time integral to `now_s`; call before anything changes."""
    gateway.held_s += gateway.num_held * (now_s - gateway.accounted_s)
    gateway.accounted_s = now_s


@rare_kernel
def let_go(a: Arrays, request: int, now_s: float) -> None:
    """Take a request out of the queue."""
    account(a.gateways[0], now_s)
    flow, req = a.flows[a.flow_of[request % a.flow_of.shape[0]]], a.requests[request]
    if flow.head == request:
        flow.head = req.next
    if flow.tail == request:
        flow.tail = req.previous
    waiting.unlink(a, request)
    req.previous, req.next = NONE, NONE
    a.bands[flow.band].num_held -= 1
    a.gateways[0].num_held -= 1


@rare_kernel
def saturation(a: Arrays, now_s: float) -> float:
    """How full the fleet is, 1 if it is saturated; of engines that prefill and engines that decode the fuller ones."""
    g, found = a.gateways[0], 0.0
    if g.detector == UTILIZATION and a.routing[0].scrape_every_s == 0.0:
        views.scrape(a, now_s)
    for role in range(DECODE + 1):
        total, count = 0.0, 0
        for replica in range(a.replicas.shape[0]):
            view = a.engine_views[replica]
            if a.pools[a.replicas[replica].pool].role == role and (view.routable == 1 or role != SERVE):
                count += 1
                if g.detector == CONCURRENCY:
                    total += view.outstanding
                else:
                    total += max(view.waiting / g.queue_depth_threshold, view.kv_usage / g.kv_cache_util_threshold)
        if count > 0:
            found = max(found, total / (count * g.max_concurrency) if g.detector == CONCURRENCY else total / count)
    return found


@rare_kernel
def next_of_all(a: Arrays, now_s: float) -> int:
    """The request that goes to the router now, taken out of the queue; NONE where the fleet is saturated or empty."""
    g = a.gateways[0]
    if g.is_empty != a.cursor[0].is_closed:
        g.is_empty, g.changed_s = a.cursor[0].is_closed, now_s
    if g.is_empty == 1 or saturation(a, now_s) >= 1.0:
        return NONE
    for band in range(a.bands.shape[0]):
        request = next_in_turn(a, band) if g.round_robin == 1 else earliest(a, band)
        if request != NONE:
            let_go(a, request, now_s)
            return int(request)
    return NONE


@kernel
def next_in_turn(a: Arrays, band: int) -> int:
    """The first request of the next flow that holds one."""
    b = a.bands[band]
    start = 0 if b.last_flow == NONE else b.last_flow + 1 - b.first_flow
    for step in range(b.num_flows):
        flow = b.first_flow + (start + step) % b.num_flows
        if a.flows[flow].head != NONE:
            b.last_flow = flow
            return int(a.flows[flow].head)
    b.last_flow = NONE
    return NONE


@kernel
def earliest(a: Arrays, band: int) -> int:
    """The request of the band that came first."""
    first = a.bands[band].first_flow
    found = NONE
    for flow in range(first, first + a.bands[band].num_flows):
        request = a.flows[flow].head
        if request != NONE and (found == NONE or came_before(a, request, found)):
            found = request
    return found


@kernel
def came_before(a: Arrays, request: int, other: int) -> bool:
    if a.queued_s[request] != a.queued_s[other]:
        return bool(a.queued_s[request] < a.queued_s[other])
    return request < other


@rare_kernel
def expired(a: Arrays, now_s: float) -> int:
    """A request that has waited for as long as it may, taken out of the queue; NONE if there is none."""
    g = a.gateways[0]
    ttl_s = g.no_endpoint_ttl_s if g.is_empty == 1 else g.ttl_s
    for flow in range(a.flows.shape[0]):
        request = a.flows[flow].head
        if request != NONE and now_s >= max(a.queued_s[request], g.changed_s) + ttl_s:
            let_go(a, request, now_s)
            return int(request)
    return NONE


@rare_kernel
def next_look_s(a: Arrays, now_s: float) -> float:
    """When the gateway looks at its queue again: infinity where it need not, or where that is known already."""
    g = a.gateways[0]
    is_needed = g.num_held > 0
    for band in range(a.bands.shape[0]):
        is_needed |= a.bands[band].last_flow != NONE  # turns begin anew once nobody waits
    if g.is_looking == 1 or not is_needed:
        return math.inf
    g.is_looking = 1
    return next_multiple(g.dispatch_every_s, now_s)


@kernel
def next_multiple(period_s: float, now_s: float) -> float:
    """The first multiple of the period after now."""
    number = math.floor(now_s / period_s) + 1
    return number * period_s if number * period_s > now_s else (number + 1) * period_s
