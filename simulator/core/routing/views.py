"""What the router knows, kept up as far as it reads it, and its choice."""

import math

from simulator.core.jit import call_router, kernel, rare_kernel
from simulator.core.layout import NONE, PREFILL
from simulator.core.routing import prefix_index
from simulator.core.state import Arrays
from simulator.core.vllm import prefix


@kernel
def choose(a: Arrays, request: int, now_s: float) -> int:
    """The engine of a request that comes to the router; NONE where Python must decide, or tell of a wrong choice."""
    stage = 0
    if a.handovers.shape[0] > 0:
        stage = a.handovers[request].stage
        open_role(a, PREFILL + stage)
        a.request_view[0].pool_role = PREFILL + stage
    look(a, request, now_s)
    if a.deciding.shape[0] > 0 and was_chosen(a, request, stage):
        return int(a.handovers[request].chosen)
    router = a.routing[0].router
    if router == 0:
        return NONE
    memory = a.router_memory if stage == 0 else a.decode_memory
    chosen = call_router(router, a.engine_views, a.request_view[0], a.router_parameters, memory)
    if 0 <= chosen < a.engine_views.shape[0] and a.engine_views[chosen].routable == 1:
        return chosen
    a.cursor[0].chosen = chosen
    return NONE


@rare_kernel
def was_chosen(a: Arrays, request: int, stage: int) -> bool:
    """Whether the engine for this stage was chosen already, for a decider."""
    chosen = a.handovers[request].chosen
    return bool(chosen != NONE and a.pools[a.replicas[chosen].pool].role == PREFILL + stage)


@rare_kernel
def open_role(a: Arrays, role: int) -> None:
    """Engines of that role alone take the request."""
    for replica in range(a.replicas.shape[0]):
        a.engine_views[replica].routable = int(a.pools[a.replicas[replica].pool].role == role)


@kernel
def look(a: Arrays, request: int, now_s: float) -> None:
    """Show the router the request, and the engines as it sees them now."""
    view, req = a.request_view[0], a.requests[request]
    view.prompt_tokens = req.prompt
    view.last = req.replica
    if a.handovers.shape[0] > 0:
        handover = a.handovers[request]
        view.last = handover.last_prefill if handover.stage == 0 else handover.last_decode
    view.now_s = now_s
    if a.sessions.shape[0] > 0:
        view.session = a.sessions[request % a.sessions.shape[0]]
    if a.routing[0].sees_metrics == 1 and a.routing[0].scrape_every_s == 0.0:
        scrape(a, now_s)
    if a.routing[0].chunk_tokens > 0:
        prefix_index.match(a, request, now_s)
    if a.routing[0].sees_active == 1:
        prefix_index.count_shared(a, request)
    if a.routing[0].sees_cache == 1:
        for replica in range(a.replicas.shape[0]):
            a.engine_views[replica].cached_tokens = prefix.cached_tokens(a, replica, request)


# -- its own counts


@kernel
def note_sent(a: Arrays, request: int, replica: int, now_s: float) -> None:
    view = a.engine_views[replica]
    view.outstanding += 1
    view.sent += 1
    a.routing[0].num_sent += 1
    if a.routing[0].sees_tokens == 1:
        prompt = a.requests[request].prompt
        a.prefill_charges[request] = prompt - max(view.matched_tokens, view.cached_tokens)
        view.prefill_tokens += a.prefill_charges[request]
        view.outstanding_tokens += prompt
    if a.routing[0].chunk_tokens > 0:
        prefix_index.learn(a, request, replica, now_s)
    if a.routing[0].sees_active == 1:
        prefix_index.hold(a, request, replica)


@kernel
def note_first_token(a: Arrays, request: int) -> None:
    """The router sees an answer begin: its prompt needs no more work."""
    if a.routing[0].sees_tokens == 1:
        a.engine_views[a.requests[request].replica].prefill_tokens -= a.prefill_charges[request]
        a.prefill_charges[request] = 0


@kernel
def note_ended(a: Arrays, request: int) -> None:
    """A request has ended, however it did."""
    view = a.engine_views[a.requests[request].replica]
    view.outstanding -= 1
    if a.routing[0].sees_tokens == 1:
        note_first_token(a, request)
        view.outstanding_tokens -= a.requests[request].prompt
    if a.routing[0].sees_active == 1:
        prefix_index.let_go(a, request, a.requests[request].replica)


# -- metrics of the engines, as old as their last scrape


@kernel
def scrape_before(a: Arrays, now_s: float) -> None:
    """What was due since the last instant saw the engines as they have been since then."""
    r = a.routing[0]
    if r.next_scrape_s < now_s and has_news(a):
        if r.only_changes == 1:
            scrape(a, max(r.next_scrape_s, a.cursor[0].now_s))  # at that instant itself the change was not known
        else:
            scrape(a, (math.ceil(now_s / r.scrape_every_s) - 1) * r.scrape_every_s)


@kernel
def scrape_at(a: Arrays, now_s: float) -> None:
    """A scrape at an instant sees the steps that end then, and not the arrivals."""
    if a.routing[0].next_scrape_s <= now_s and has_news(a):
        scrape(a, now_s)


@kernel
def has_news(a: Arrays) -> bool:
    if a.routing[0].only_changes == 0:
        return True
    for replica in range(a.replicas.shape[0]):
        view, state = a.engine_views[replica], a.replicas[replica]
        if view.waiting != state.num_waiting or view.running != state.num_running:
            return True
    return False


@kernel
def scrape(a: Arrays, time_s: float) -> None:
    """Read every engine's metrics at that time."""
    r = a.routing[0]
    if r.only_changes == 1:
        r.next_scrape_s = time_s + r.scrape_every_s
    elif r.scrape_every_s > 0.0:
        r.next_scrape_s = (math.floor(time_s / r.scrape_every_s + 0.5) + 1) * r.scrape_every_s
    for replica in range(a.replicas.shape[0]):
        view, state = a.engine_views[replica], a.replicas[replica]
        view.waiting = state.num_waiting
        view.running = state.num_running
        view.kv_usage = 1.0 - state.num_free_blocks / state.num_usable_blocks
        view.sent = 0
