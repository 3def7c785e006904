"""How long a step takes, from sums over its batch."""

from simulator.core.jit import kernel
from simulator.core.state import Arrays
from simulator.core.types import Plan
from simulator.core.vllm import adapters, encoder


@kernel
def add_to_sums(plan: Plan, computed: int, tokens: int, sampled: int, drafts: int, window: int) -> None:
    """Add a sequence that computes positions [computed - tokens, computed): a decode, drafts included, or a prefill.

    Decodes count the context they read, prefill chunks the positions that each of their tokens attends to.
    """
    plan.count += 1
    plan.tokens += tokens
    plan.sampled += sampled
    if tokens == 1 or drafts > 0:
        plan.decodes += 1
        plan.decode_context += computed
        plan.window_context += min(computed, window)
        return
    start = computed - tokens
    plan.prefill_tokens += tokens
    plan.prefill_work += attended(start, computed)
    plan.window_prefill_work += attended_in_window(start, computed, window)


@kernel
def remove_from_sums(plan: Plan, computed: int, tokens: int, sampled: int, drafts: int, window: int) -> None:
    """Undo `add_to_sums`; exact, since all sums are multiples of a half."""
    plan.count -= 1
    plan.tokens -= tokens
    plan.sampled -= sampled
    if tokens == 1 or drafts > 0:
        plan.decodes -= 1
        plan.decode_context -= computed
        plan.window_context -= min(computed, window)
        return
    start = computed - tokens
    plan.prefill_tokens -= tokens
    plan.prefill_work -= attended(start, computed)
    plan.window_prefill_work -= attended_in_window(start, computed, window)


@kernel
def step_time_s(a: Arrays, replica: int, slot: int, shared_s: float) -> float:
    """Price a plan in O(1), entering its sums into the replica's totals; `shared_s` is spent on all ranks' tokens."""
    pool = a.replicas[replica].pool
    p = a.pools[pool]
    plan = a.plans[replica, slot]
    totals = a.totals[replica]
    totals.steps += 1
    totals.tokens += plan.tokens
    totals.sequences += plan.count
    totals.sampled += plan.sampled
    totals.decode_sequences += plan.decodes
    totals.decode_context += plan.decode_context
    totals.window_context += plan.window_context
    totals.prefill_tokens += plan.prefill_tokens
    totals.prefill_work += plan.prefill_work
    totals.window_prefill_work += plan.window_prefill_work
    mode = 0
    if plan.prefill_tokens > 0:
        mode = 1
        totals.prefill_steps += 1
    gpu_s = (
        a.step_time[pool, mode, plan.tokens] + a.sampling_time[pool, plan.sampled] + plan.decode_context * p.context_s
    )
    gpu_s += shared_s + plan.window_context * p.window_context_s
    gpu_s += plan.prefill_work * p.prefill_s + plan.window_prefill_work * p.window_prefill_s
    if plan.decodes > 0:
        gpu_s += p.decode_base_s
    if mode == 1:
        gpu_s = max(gpu_s, a.step_time[pool, 2, plan.tokens])
    if p.max_loras > 0:
        gpu_s += adapters.step_s(a, replica)
    if p.encoder_budget > 0:
        gpu_s += encoder.take_step_s(a, replica)
    host_s = max(p.host_base_s + p.host_sequence_s * plan.count, p.stream_sequence_s * plan.count)
    totals.gpu_s += gpu_s
    totals.host_bound_s += max(host_s - gpu_s, 0.0)
    step_s = max(gpu_s, host_s) + p.gap_s
    return step_s if p.max_loras == 0 else step_s + adapters.take_load_s(a, replica)


@kernel
def attended(start: int, end: int) -> float:
    """Sum over positions [start, end) of the positions each attends to: q (start + q / 2)."""
    return (end - start) * (start + 0.5 * (end - start))


@kernel
def attended_in_window(start: int, end: int, window: int) -> float:
    """The same where a position attends to at most `window` others."""
    if end <= window:
        return attended(start, end)
    if start >= window:
        return float(end - start) * window
    return attended(start, window) + float(end - window) * window
