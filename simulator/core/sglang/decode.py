"""A batch that decodes all running requests, compiled; where memory lacks, by retraction."""

from simulator.core import step_log, waiting
from simulator.core.jit import kernel, rare_kernel
from simulator.core.sglang import kv_cache
from simulator.core.sglang.layout import DECODE, NO_BATCH
from simulator.core.state import Arrays
from simulator.core.types import SGLangPool

RETRACT_DECODE_STEPS = 20  # tokens of room for each request that stays when one is retracted


@kernel
def leave_out_finishing(a: Arrays, replica: int) -> int:
    """Drop running requests whose last token, by the length of their answer, is on its way; how many there were."""
    engine = a.sglang.engines[replica]
    kept = 0
    for place in range(engine.batch_size):
        request = a.running[replica, place]
        req = a.requests[request]
        if req.in_flight == 0 or req.output + 1 < a.sglang.requests[request].max_new_tokens:
            a.running[replica, kept] = request
            kept += 1
    num_dropped = engine.batch_size - kept
    engine.batch_size = kept
    return int(num_dropped)


@kernel
def enter_running(a: Arrays, p: SGLangPool, replica: int, slot: int) -> None:
    """Let each running request compute a token in a plan; its place is taken. With drafts, how many is known later."""
    plan = a.plans[replica, slot]
    for place in range(a.sglang.engines[replica].batch_size):
        request = a.running[replica, place]
        entry = a.entries[replica, slot, plan.count]
        a.requests[request].computed += int(p.draft_tokens == 0)
        entry.request = request
        entry.tokens = 1
        entry.sampled = 1
        plan.count += 1


@kernel
def decode_batch(a: Arrays, p: SGLangPool, replica: int, slot: int) -> tuple[int, int]:
    """Make room for a token of each running request; says what is computed, and how many lost their place."""
    engine = a.sglang.engines[replica]
    num_finishing, num_retracted = leave_out_finishing(a, replica), 0
    if engine.batch_size == 0:
        engine.batch_is_full = 0
        return NO_BATCH, 0
    if kv_cache.fits_decode(a, p, replica, engine.batch_size):
        engine.ratio = max(engine.ratio - p.ratio_decay, p.min_ratio)
    elif num_finishing > 0:  # those that end now free theirs
        engine.batch_is_full = 0
        return NO_BATCH, 0
    else:
        num_retracted = retract(a, p, replica)
    if num_finishing > 0 or num_retracted > 0:
        engine.batch_is_full = 0
    if engine.batch_size == 0:
        return NO_BATCH, num_retracted
    kv_cache.allocate_decode(a, p, replica, engine.batch_size)
    engine.num_processed_tokens += engine.kept_extend_tokens
    enter_running(a, p, replica, slot)
    return DECODE, num_retracted


@rare_kernel
def retract(a: Arrays, p: SGLangPool, replica: int) -> int:
    """Take the requests with the shortest answers, among them the longest prompts, back to the queue; how many."""
    engine = a.sglang.engines[replica]
    sort_running(a, replica, engine.batch_size)
    count = kept = int(engine.batch_size)
    while kept > 1 and not (kept < count and kv_cache.fits_decode(a, p, replica, kept)):
        kept -= 1
        start_over(a, p, replica, a.running[replica, kept], kept)
    if kept == 1 and not kv_cache.fits_decode(a, p, replica, 1):
        a.cursor[0].stalled_request = a.running[replica, 0]  # SGLang fails it
    engine.batch_size = kept
    written, most = RETRACT_DECODE_STEPS * kept, 1
    for place in range(kept):
        written += a.requests[a.running[replica, place]].output
        most += a.sglang.requests[a.running[replica, place]].max_new_tokens
    engine.ratio = min(1.0, written / most)
    for place in range(count - 1, kept - 1, -1):
        enqueue(a, replica, a.running[replica, place])
    return count - kept


@kernel
def sort_running(a: Arrays, replica: int, count: int) -> None:
    """Longest answer first, then shortest prompt; equals as they are."""
    running = a.running
    for place in range(1, count):
        request = running[replica, place]
        req = a.requests[request]
        at = place
        while at > 0:
            before = a.requests[running[replica, at - 1]]
            if before.output > req.output or (before.output == req.output and before.prompt <= req.prompt):
                break
            running[replica, at] = running[replica, at - 1]
            at -= 1
        running[replica, at] = request


@kernel
def start_over(a: Arrays, p: SGLangPool, replica: int, request: int, num_remaining: int) -> None:
    """Drop what it holds, and evict at once for those that stay; what was answered is kept, and computed again."""
    req, of = a.requests[request], a.sglang.requests[request]
    kv_cache.release(a, p, replica, request, False)
    kv_cache.evict_to_free(a, p, replica, num_remaining * RETRACT_DECODE_STEPS)
    of.prefix_len = of.extend_end = of.protected = of.inserted = of.matched = of.inflight_chunks = 0
    req.computed = 0
    if p.kept_window > 0:
        in_windows = a.sglang.window_requests[request]
        in_windows.branching = in_windows.extend_batches = in_windows.decode_batches = 0
    if p.has_states == 1:
        a.sglang.state_requests[request].branching = 0
    of.is_retracted = 1
    req.preemptions += 1
    a.totals[replica].preemptions += 1
    if a.cursor[0].log_steps == 1:
        step_log.log_word(a.cursor[0], a.log, request)


@kernel
def enqueue(a: Arrays, replica: int, request: int) -> None:
    """Let a request wait behind all others."""
    waiting.enqueue_last(a, replica, request)
    engine, of = a.sglang.engines[replica], a.sglang.requests[request]
    engine.num_queue_entries += 1
    of.queue_entry = engine.num_queue_entries
    of.arrival_processed_tokens = engine.num_processed_tokens
