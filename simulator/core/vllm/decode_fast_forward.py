"""Requests to which nothing happens for some steps.

A quiet request decodes one token a step: it needs no block, hashes none, ends nothing. While the token budget suffices
for all, its steps need not look at it. So it leaves `running` and lies in a calendar under the step that must see it
again; a step counts all quiet ones at once, and their own counters are brought up to date as they come back.

Where blocks are kept in segments, a request that only fills a block and takes the next one stays quiet.
"""

from simulator.core.jit import kernel, prefetch
from simulator.core.layout import CALENDAR_STEPS, NONE
from simulator.core.state import Arrays
from simulator.core.types import Calendar, Plan, Pool, Replica, Request, Requests, Running
from simulator.core.vllm import blocks

MIN_STEPS = 4  # a shorter rest saves nothing


@kernel
def schedule_quiet(state: Replica, plan: Plan) -> None:
    """Enter one token of every quiet request into an empty plan."""
    state.quiet_context += state.num_quiet
    state.quiet_window_context += state.quiet_in_window
    plan.step = state.step
    plan.num_quiet = plan.count = plan.tokens = plan.sampled = plan.decodes = state.num_quiet
    plan.decode_context = state.quiet_context
    plan.window_context = state.quiet_window_context
    plan.prefill_tokens = 0
    plan.prefill_work = plan.window_prefill_work = 0.0


@kernel
def bring_up_to_date(state: Replica, req: Request, p: Pool) -> None:
    """Give a quiet request what the steps since have done to it, and take it out of the sums."""
    num_scheduled = state.step - req.quiet_since
    num_delivered = max(state.completed_step - req.quiet_since, 0)
    state.num_quiet -= 1
    state.quiet_in_window -= int(req.computed < p.window)
    req.computed += num_scheduled
    req.in_flight += num_scheduled - num_delivered
    req.placeholders += (num_scheduled - num_delivered) * p.asynchronous
    req.output += num_delivered
    if num_delivered > 0:
        req.last_token_s = state.last_completion_s
    state.quiet_context -= req.computed
    state.quiet_window_context -= min(req.computed, p.window)


@kernel
def rise(a: Arrays, replica: int, request: int) -> None:
    """Put a quiet request back into `running`, where its admission belongs, and into the plans in flight."""
    state, req = a.replicas[replica], a.requests[request]
    p = a.pools[state.pool]
    bring_up_to_date(state, req, p)
    for number in range(state.num_plans):
        slot = (state.oldest_plan + number) % p.plans_in_flight
        plan = a.plans[replica, slot]
        if plan.step > req.quiet_since:
            entry = a.entries[replica, slot, plan.count - plan.num_quiet]
            entry.request = request
            entry.tokens = entry.sampled = 1
            plan.num_quiet -= 1
    req.quiet_since = 0
    req.next = NONE
    place = state.num_running - state.num_quiet - 1
    while place > 0 and a.requests[a.running[replica, place - 1]].admission > req.admission:
        a.running[replica, place] = a.running[replica, place - 1]
        place -= 1
    a.running[replica, place] = request


@kernel
def suffices(state: Replica, p: Pool, running: Running, requests: Requests, replica: int, num_due: int) -> bool:
    """Whether tokens and free blocks suffice for all that run: nobody is preempted, or cut short but the last.

    Of the quiet ones, `num_due` may take a block.
    """
    num_blocks, tokens = num_due, state.num_quiet
    for index in range(state.num_running - state.num_quiet):
        req = requests[running[replica, index]]
        wanted = max(req.prompt + req.output + req.placeholders - req.computed, 0)
        if wanted > 1 and req.admission == state.num_admitted - 1:
            wanted = min(wanted, max(p.token_budget - tokens, 0))
        tokens += wanted
        if req.computed + wanted > req.quiet_until:
            num_blocks += wanted // p.block_size + 1
    return tokens <= p.token_budget and num_blocks * p.num_groups <= state.num_free_blocks


@kernel
def wake(a: Arrays, replica: int, num_steps: int) -> None:
    """Let all rise that the next `num_steps` steps must see."""
    state = a.replicas[replica]
    for step in range(state.step + 1, state.step + 1 + num_steps):
        if state.num_quiet == 0:
            return
        request = a.decode_fast_forward[replica, step % CALENDAR_STEPS]
        a.decode_fast_forward[replica, step % CALENDAR_STEPS] = NONE
        while request != NONE:
            following = a.requests[request].next
            prefetch(a.requests, following)
            rise(a, replica, request)
            request = following


@kernel
def end_of_quiet(req: Request, p: Pool) -> int:
    """Up to this `computed` a request ends nothing."""
    return min(req.prompt + req.max_tokens, p.max_model_len) - 3


@kernel
def may_stay(state: Replica, p: Pool, req: Request) -> bool:
    """Whether all that the next step must do for a quiet request is to fill, to take or to let go of blocks.

    What is cached on delivery was then cached when the step after was scheduled.
    """
    if p.in_segments == 0 or req.computed < p.window:
        return False
    return bool(req.computed + state.step - req.quiet_since + MIN_STEPS <= end_of_quiet(req, p))


@kernel
def wake_due(a: Arrays, replica: int) -> int:
    """Let those rise that the next step must see but that may not stay; returns how many do."""
    state = a.replicas[replica]
    p = a.pools[state.pool]
    if state.num_quiet == 0:
        return 0
    bucket = (state.step + 1) % CALENDAR_STEPS
    request, num_due = a.decode_fast_forward[replica, bucket], 0
    a.decode_fast_forward[replica, bucket] = NONE
    while request != NONE:
        req = a.requests[request]
        following = req.next
        prefetch(a.requests, following)
        if may_stay(state, p, req):
            req.next = a.decode_fast_forward[replica, bucket]
            a.decode_fast_forward[replica, bucket] = request
            num_due += 1
        else:
            rise(a, replica, request)
        request = following
    return num_due


@kernel
def pass_all(a: Arrays, replica: int) -> None:
    """`pass_boundary` for all that are due in the next step: without windows nothing is let go of, so in any order."""
    step = a.replicas[replica].step + 1
    request = a.decode_fast_forward[replica, step % CALENDAR_STEPS]
    a.decode_fast_forward[replica, step % CALENDAR_STEPS] = NONE
    while request != NONE:
        following = a.requests[request].next
        prefetch(a.requests, following)
        pass_boundary(a, replica, request, step)
        request = following


@kernel
def line_up(a: Arrays, replica: int) -> None:
    """Put those that are due in the next step, by admission, behind the requests in `running`."""
    state = a.replicas[replica]
    bucket = (state.step + 1) % CALENDAR_STEPS
    request = a.decode_fast_forward[replica, bucket]
    a.decode_fast_forward[replica, bucket] = NONE
    first = end = state.num_running - state.num_quiet
    while request != NONE:
        req = a.requests[request]
        place = end
        while place > first and a.requests[a.running[replica, place - 1]].admission > req.admission:
            a.running[replica, place] = a.running[replica, place - 1]
            place -= 1
        a.running[replica, place] = request
        end += 1
        request = req.next
    state.num_due = end - first


@kernel
def pass_before(a: Arrays, replica: int, admission: int) -> None:
    """`pass_boundary` for those in line that were admitted before: blocks are let go of in the order of `running`."""
    state = a.replicas[replica]
    while state.next_due < state.num_due:
        request = a.running[replica, state.num_running - state.num_quiet + state.next_due]
        if a.requests[request].admission > admission:
            return
        pass_boundary(a, replica, request, state.step)
        state.next_due += 1


@kernel
def free_skipped(a: Arrays, replica: int, request: int) -> None:
    """Give back what lies before a running request's windows, after those in line whose turn is before."""
    req = a.requests[request]
    pass_before(a, replica, req.admission)
    blocks.free_skipped(a, replica, request, max(req.computed - req.in_flight, 0))


@kernel
def pass_boundary(a: Arrays, replica: int, request: int, step: int) -> None:
    """Give a quiet request the blocks that a step fills or takes, take what lies before each window, and file it anew.

    The step that must look at it next has it then.
    """
    state = a.replicas[replica]
    p = a.pools[state.pool]
    req = a.requests[request]
    computed = req.computed + step - req.quiet_since
    num_delivered = max(state.completed_step - req.quiet_since, 0)
    processed = req.computed - req.in_flight + num_delivered
    if p.num_windows > 0:
        blocks.free_skipped(a, replica, request, processed)
    if computed > req.num_blocks * p.block_size:
        blocks.grow(a, replica, request, req.num_blocks + 1)
    blocks.cache_known(a, replica, request, min(computed, req.prompt + req.output + num_delivered))
    req.quiet_until = quiet_until(req, p)
    num_steps = max(req.quiet_until - computed, 0) + 1
    if p.num_windows > 0:
        num_steps = min(num_steps, max(a.skip_at[req.row] - processed, 1))
        req.quiet_until = min(req.quiet_until, a.skip_at[req.row])
    bucket = (step + min(num_steps, CALENDAR_STEPS)) % CALENDAR_STEPS
    req.next = a.decode_fast_forward[replica, bucket]
    a.decode_fast_forward[replica, bucket] = request


@kernel
def quiet_until(req: Request, p: Pool) -> int:
    """How far a request decodes one token a step without a block to fill or to take, or an end."""
    found = min(req.num_blocks * p.block_size, end_of_quiet(req, p))
    return min(found, (req.cached_blocks + p.cache_unit) * p.block_size - 1) if p.prefix_caching == 1 else found


@kernel
def look_ahead(a: Arrays, replica: int) -> None:
    """Begin to load what the next two steps must see: with many engines it has left the cache since it lay down."""
    state = a.replicas[replica]
    if state.num_quiet == 0:
        return
    request = a.decode_fast_forward[replica, (state.step + 1) % CALENDAR_STEPS]
    if request != NONE:
        prefetch(a.spans, a.requests[request].span_start)
    prefetch(a.requests, a.decode_fast_forward[replica, (state.step + 2) % CALENDAR_STEPS])


@kernel
def open_step(a: Arrays, replica: int) -> bool:
    """Let those rise that the step must see; whether the others may rest. If not, all rise, and stay up for a while.

    Where they may, `pass_before` must follow for those in line.
    """
    state = a.replicas[replica]
    p = a.pools[state.pool]
    state.num_due = state.next_due = 0
    if state.step < state.restless_until or p.takes_quiet_steps == 0 or a.cursor[0].log_steps == 1:
        return False
    if suffices(state, p, a.running, a.requests, replica, wake_due(a, replica)):
        if p.num_windows == 0:
            pass_all(a, replica)
        else:
            line_up(a, replica)
        return True
    wake(a, replica, CALENDAR_STEPS)
    if suffices(state, p, a.running, a.requests, replica, 0):
        return True
    state.restless_until = state.step + CALENDAR_STEPS
    return False


@kernel
def num_quiet_steps(req: Request, window: int) -> int:
    """For how many steps a request may lie down; in the sum of contexts it grows up to the window only."""
    num_steps = min(req.quiet_until - req.computed, CALENDAR_STEPS - 1)
    return min(num_steps, window - req.computed) if req.computed < window else num_steps


@kernel
def close_step(
    state: Replica, p: Pool, running: Running, requests: Requests, decode_fast_forward: Calendar, replica: int
) -> None:
    """Let those lie down that the next steps need not see."""
    kept = 0
    for index in range(state.num_running - state.num_quiet):
        request = running[replica, index]
        req = requests[request]
        num_steps = num_quiet_steps(req, p.window)
        if num_steps < MIN_STEPS:
            running[replica, kept] = request
            kept += 1
            continue
        bucket = (state.step + num_steps + 1) % CALENDAR_STEPS
        req.quiet_since = state.step
        req.next = decode_fast_forward[replica, bucket]
        decode_fast_forward[replica, bucket] = request
        state.num_quiet += 1
        state.quiet_context += req.computed
        state.quiet_window_context += min(req.computed, p.window)
        state.quiet_in_window += int(req.computed < p.window)
