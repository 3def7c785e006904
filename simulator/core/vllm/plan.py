"""What a step was decided to compute, compiled: entries, counters, the log."""

from simulator.core.jit import kernel
from simulator.core.latency import add_to_sums, remove_from_sums
from simulator.core.state import Arrays
from simulator.core.vllm import encoder


@kernel
def capped(threshold: int, tokens: int) -> int:
    return min(tokens, threshold) if threshold > 0 else tokens


@kernel
def schedule_request(a: Arrays, replica: int, slot: int, request: int, tokens: int, drafts: int) -> int:
    """Enter a request into the plan, its counters advancing now, as in vLLM; returns 1 if the step samples it."""
    p = a.pools[a.replicas[replica].pool]
    req = a.requests[request]
    req.computed += tokens
    req.in_flight += tokens
    sampled = 1 if req.computed >= req.prompt + req.output + req.placeholders else 0
    if sampled == 1 and p.asynchronous == 1:
        req.placeholders += 1 + drafts
    plan = a.plans[replica, slot]
    entry = a.entries[replica, slot, plan.count - plan.num_quiet]
    entry.request = request
    entry.tokens = tokens
    entry.sampled = sampled
    if p.speculative_tokens > 0:
        entry.drafts = drafts
        entry.padded = 0
    add_to_sums(plan, req.computed, tokens, sampled, drafts, p.window)
    return sampled


@kernel
def schedule_quiet_run(a: Arrays, replica: int, slot: int, first: int, budget: int) -> int:
    """`schedule_request` for those in `running` from `first` on that take one token, sampled, and change nothing else.

    Returns how many there are before the next that does. The plan's sums wait in registers.
    """
    p = a.pools[a.replicas[replica].pool]
    plan = a.plans[replica, slot]
    count, context, window_context = plan.count - plan.num_quiet, 0, 0
    asynchronous, window = p.asynchronous, p.window
    end = min(first + budget, a.replicas[replica].num_running - a.replicas[replica].num_quiet)
    index = first
    while index < end:
        request = a.running[replica, index]
        req = a.requests[request]
        computed = req.computed + 1
        if computed > req.quiet_until:
            break
        req.computed = computed
        req.in_flight += 1
        req.placeholders += asynchronous
        entry = a.entries[replica, slot, count]
        entry.request = request
        entry.tokens = 1
        entry.sampled = 1
        count += 1
        context += computed
        window_context += min(computed, window)
        index += 1
    num_quiet = index - first
    plan.count = count + plan.num_quiet
    plan.tokens += num_quiet
    plan.sampled += num_quiet
    plan.decodes += num_quiet
    plan.decode_context += context
    plan.window_context += window_context
    return num_quiet


@kernel
def after_scheduling(a: Arrays, replica: int, request: int, sampled: int) -> None:
    """What the next steps need to know of one that may draft; what it encodes."""
    p = a.pools[a.replicas[replica].pool]
    req = a.requests[request]
    if p.encoder_budget > 0:
        encoder.commit(a, replica, request)
    req.prefilling = 1 - sampled
    req.drafts = 0
    if sampled == 1 and p.asynchronous == 1:
        req.drafts = p.speculative_tokens


@kernel
def stagger(a: Arrays, replica: int, slot: int) -> None:
    """Send what the step samples around the pipeline: it is decoded again when it has come back."""
    step = a.replicas[replica].step
    for place in range(a.plans[replica, slot].count):
        entry = a.entries[replica, slot, place]
        if entry.sampled == 1:
            a.requests[entry.request].next_decode_step = step + a.pools[a.replicas[replica].pool].decode_stagger


@kernel
def tokens_of(a: Arrays, replica: int, slot: int, request: int) -> int:
    """The tokens that a plan has of a request, 0 where it is not in it."""
    plan = a.plans[replica, slot]
    for place in range(plan.count - plan.num_quiet):
        if a.entries[replica, slot, place].request == request:
            return int(a.entries[replica, slot, place].tokens)
    return 0


@kernel
def unschedule(a: Arrays, replica: int, slot: int, request: int) -> int:
    """Take a request out of the plan again; returns the tokens it gives back."""
    p = a.pools[a.replicas[replica].pool]
    plan = a.plans[replica, slot]
    if p.encoder_budget > 0:
        encoder.unschedule(a, replica, request)
    for place in range(plan.count):
        if a.entries[replica, slot, place].request != request:
            continue
        req = a.requests[request]
        entry = a.entries[replica, slot, place]
        tokens = entry.tokens
        remove_from_sums(plan, req.computed, tokens, entry.sampled, entry.drafts, p.window)
        for later in range(place, plan.count):
            into, source = a.entries[replica, slot, later], a.entries[replica, slot, later + 1]
            into.request = source.request
            into.tokens = source.tokens
            into.sampled = source.sampled
            into.drafts = source.drafts
            into.padded = source.padded
        req.in_flight -= tokens
        return tokens
    return 0
