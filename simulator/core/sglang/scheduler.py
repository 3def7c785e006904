"""One batch's decisions and its output, compiled: as in `conformance.reference.sglang.scheduler.Scheduler`."""

from simulator.core import delivery, draws, waiting
from simulator.core.jit import kernel, rare_kernel
from simulator.core.latency import add_to_sums
from simulator.core.layout import BLOCKED_BY_KV_BLOCKS, FINISHED, NONE, NOT_BLOCKED, WAITING
from simulator.core.routing import views
from simulator.core.sglang import decode, kv_cache, prefill, state_slots, tree
from simulator.core.sglang.layout import EXTEND, NO_BATCH
from simulator.core.state import Arrays
from simulator.core.step_log import log_step
from simulator.core.types import SGLangPool


@rare_kernel
def add_request(a: Arrays, replica: int, request: int) -> None:
    """Let a request wait, its answer no longer than the context and the memory allow."""
    p = a.sglang.pools[a.replicas[replica].pool]
    if a.replicas[replica].is_laid_out == 0:
        tree.lay_out(a.sglang, p, replica)
        a.replicas[replica].is_laid_out = 1
    req, of = a.requests[request], a.sglang.requests[request]
    max_req_len = min(p.context_len, p.num_pages * p.page_size) - 1
    in_memory = p.num_pages * p.page_size - kv_cache.ceil_paged(p, req.prompt) - p.page_size - 1
    of.max_new_tokens = max(0, min(of.max_new_tokens, max_req_len - req.prompt - 1, in_memory))
    decode.enqueue(a, replica, request)


@rare_kernel
def abort(a: Arrays, request: int, status: int, now_s: float) -> None:
    """The client of a request that has come to its scheduler has gone, which hears of it before its next decision."""
    req = a.requests[request]
    a.sglang.requests[request].gone_as = status
    if req.status == WAITING:
        waiting.remove(a, req.replica, request)
        let_go(a, request, now_s)
    else:
        a.sglang.engines[req.replica].has_aborts = 1


@kernel
def let_go(a: Arrays, request: int, now_s: float) -> None:
    """End a request whose client has gone."""
    views.note_ended(a, request)
    delivery.end(a, request, a.sglang.requests[request].gone_as, now_s)


@rare_kernel
def hear_of_aborts(a: Arrays, p: SGLangPool, replica: int, now_s: float) -> None:
    """Requests that are computed end with their next output; one in mid-prompt gives up all that it holds."""
    engine = a.sglang.engines[replica]
    engine.has_aborts = 0
    chunked = engine.chunked_req
    if chunked != NONE and a.sglang.requests[chunked].gone_as > 0:
        kv_cache.release(a, p, replica, chunked, False)
        let_go(a, chunked, now_s)
        engine.chunked_req = NONE
    for place in range(engine.batch_size):
        note_abort(a, a.running[replica, place])
    if engine.last_mode != NO_BATCH:
        for place in range(a.plans[replica, engine.last_slot].count):
            note_abort(a, a.entries[replica, engine.last_slot, place].request)


@kernel
def note_abort(a: Arrays, request: int) -> None:
    of = a.sglang.requests[request]
    of.is_aborted = int(of.gone_as > 0)


@kernel
def go_idle(a: Arrays, replica: int) -> None:
    """Nothing waits, runs or is on its way."""
    engine = a.sglang.engines[replica]
    engine.ratio = a.sglang.pools[a.replicas[replica].pool].init_ratio
    engine.last_mode = NO_BATCH


@rare_kernel
def schedule(a: Arrays, replica: int, slot: int, now_s: float) -> int:
    """Decide the next batch into plan `slot`; returns how many requests were retracted."""
    schedule_prefill(a, replica, slot, now_s)
    return int(schedule_rest(a, replica, slot, False))


@rare_kernel
def schedule_prefill(a: Arrays, replica: int, slot: int, now_s: float) -> None:
    """The first half of it: a batch that prefills, if there is anything to prefill."""
    state, engine = a.replicas[replica], a.sglang.engines[replica]
    p, plan = a.sglang.pools[state.pool], a.plans[replica, slot]
    if engine.has_aborts == 1:
        hear_of_aborts(a, p, replica, now_s)
    merge_last_batch(a, p, replica)
    state.step += 1
    plan.step = state.step
    plan.count = plan.num_extending = 0
    engine.last_mode = prefill.new_batch_prefill(a, p, replica, slot, now_s)
    engine.last_slot = slot


@kernel
def prefills(a: Arrays, replica: int) -> bool:
    """Whether the first half found something to prefill."""
    return bool(a.sglang.engines[replica].last_mode != NO_BATCH)


@rare_kernel
def schedule_rest(a: Arrays, replica: int, slot: int, waits: bool) -> int:
    """The rest: without one, a batch that decodes, unless it `waits` for another rank's that prefills."""
    state, engine = a.replicas[replica], a.sglang.engines[replica]
    p, plan = a.sglang.pools[state.pool], a.plans[replica, slot]
    num_retracted = 0
    if engine.last_mode == NO_BATCH and engine.batch_size > 0 and plan.count == 0 and not waits:
        engine.last_mode, num_retracted = decode.decode_batch(a, p, replica, slot)
    if num_retracted > 0:
        state.block_reason = BLOCKED_BY_KV_BLOCKS
    elif state.num_waiting == 0:
        state.block_reason = NOT_BLOCKED
    sum_up(a, replica, slot)
    if a.cursor[0].log_steps == 1 and (plan.count > 0 or num_retracted > 0):
        log_step(a, replica, slot, num_retracted, engine.batch_size)
    return num_retracted


@kernel
def has_computed(a: Arrays, request: int) -> bool:
    """Whether the chunked request was in the last batch that prefilled; it may have waited for memory."""
    of = a.sglang.requests[request]
    return bool(of.extend_end > of.prefix_len)


@kernel
def merge_last_batch(a: Arrays, p: SGLangPool, replica: int) -> None:
    """Requests that were prefilled run from now on, except one with chunks left; those that finished are dropped."""
    engine = a.sglang.engines[replica]
    if engine.chunked_req != NONE and has_computed(a, engine.chunked_req):
        kv_cache.checkpoint(a, p, replica, engine.chunked_req)
    size = num_entries = int(engine.batch_size)
    if engine.last_mode >= EXTEND:
        last = a.plans[replica, engine.last_slot]
        for place in range(last.count):
            request = a.entries[replica, engine.last_slot, place].request
            has_chunks = request == engine.chunked_req or request == engine.last_chunked  # noqa: PLR1714  no sets here
            if has_chunks or a.requests[request].status >= FINISHED:
                engine.batch_is_full = 0
            else:
                a.running[replica, num_entries] = request
                num_entries += 1
        if size == 0 and num_entries > 0:  # the batch becomes the running one
            engine.batch_is_full = 0
            engine.kept_extend_tokens = last.tokens
    kept = 0
    for place in range(num_entries):
        request = a.running[replica, place]
        if a.requests[request].status >= FINISHED:
            engine.batch_is_full = 0
        else:
            a.running[replica, kept] = request
            kept += 1
    engine.batch_size = kept


@kernel
def sum_up(a: Arrays, replica: int, slot: int) -> None:
    """What prices a plan, from its entries."""
    plan, window = a.plans[replica, slot], a.pools[a.replicas[replica].pool].window
    drafted = a.sglang.pools[a.replicas[replica].pool].draft_width  # 0 without drafts
    width = 1 if plan.num_extending > 0 else max(1, drafted)  # tokens of one that decodes
    ahead = width if drafted > 0 else 0  # without drafts, they are in `computed`
    count = plan.count
    plan.count = plan.tokens = plan.sampled = plan.decodes = plan.prefill_tokens = 0
    plan.decode_context = plan.window_context = 0
    plan.prefill_work = plan.window_prefill_work = 0.0
    for place in range(plan.num_extending):
        entry = a.entries[replica, slot, place]
        a.requests[entry.request].in_flight += 1
        add_to_sums(plan, a.requests[entry.request].computed, entry.tokens, entry.sampled, 0, window)
    context, window_context = 0, 0
    for place in range(plan.num_extending, count):
        req = a.requests[a.entries[replica, slot, place].request]
        req.in_flight += 1
        context += req.computed + ahead
        window_context += min(req.computed + ahead, window)
    num_decoding = count - plan.num_extending
    plan.count = count
    plan.tokens += num_decoding * width
    plan.sampled += num_decoding
    plan.decodes += num_decoding
    plan.decode_context += context
    plan.window_context += window_context


@rare_kernel
def complete(a: Arrays, replica: int, now_s: float) -> int:
    """Take in the output of the oldest plan. Returns how many finished; they are its entries with tokens < 0."""
    state = a.replicas[replica]
    slot, p = state.oldest_plan, a.sglang.pools[state.pool]
    plan = a.plans[replica, slot]
    num_finished, num_alike, alike_s = 0, 0, 0.0
    for place in range(plan.count):
        entry = a.entries[replica, slot, place]
        request = entry.request
        req, of = a.requests[request], a.sglang.requests[request]
        req.in_flight -= 1
        if req.status >= FINISHED or of.is_retracted == 1:
            continue  # it ended, or started over, in the batch before
        if place < plan.num_extending and of.inflight_chunks > 0:
            of.inflight_chunks -= 1
            continue
        if p.has_states == 1 and plan.num_extending == 0 and p.draft_tokens == 0:
            state_slots.track_decode(a, p, request, kv_cache.num_tokens_of(req))
        gap_s = now_s - req.last_token_s
        req.last_token_s = now_s
        if req.output == 0:
            req.first_token_s = now_s
            views.note_first_token(a, request)
        elif gap_s == alike_s:
            num_alike += 1
        else:
            delivery.record_gaps(a, replica, alike_s, num_alike)
            alike_s, num_alike = gap_s, 1
        append_tokens(a, p, replica, request, place)
        if of.is_aborted == 1 or req.output == req.max_tokens or req.output >= of.max_new_tokens:
            kv_cache.release(a, p, replica, request, True)
            if of.gone_as > 0:
                let_go(a, request, now_s)
            else:
                delivery.finish(a, request, now_s)
                entry.tokens = -1
                num_finished += 1
        elif place < plan.num_extending:
            kv_cache.checkpoint(a, p, replica, request)
    delivery.record_gaps(a, replica, alike_s, num_alike)
    return num_finished


@kernel
def append_tokens(a: Arrays, p: SGLangPool, replica: int, request: int, place: int) -> None:
    """Append what an output has of a request: a token, with drafts also those that are right, which count as computed.

    A batch that prefills too verifies none, and what ends there leaves its last token out.
    """
    if p.draft_tokens == 0:
        a.requests[request].output += 1
        return
    state, req, of = a.replicas[replica], a.requests[request], a.sglang.requests[request]
    plan = a.plans[replica, state.oldest_plan]
    tokens = 1
    if plan.num_extending == 0:
        tokens += draws.accepted_drafts(a, state.pool, request, req.output, p.draft_tokens)
        tokens = max(1, min(tokens, req.max_tokens - req.output))
        if p.has_states == 1:
            state_slots.track_verified(a, p, request, kv_cache.num_tokens_of(req) + tokens - 1, tokens)
    ends_at = min(req.max_tokens, of.max_new_tokens)
    req.output += max(1, min(tokens, ends_at - req.output))
    is_over = of.is_aborted == 1 or req.output >= ends_at
    if place >= plan.num_extending and (plan.num_extending == 0 or not is_over):
        req.computed += tokens
