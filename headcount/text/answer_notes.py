"""What an answer rests on and how far it may be off, in sentences for terminals and reports."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvcache.memory.budget import MemoryBudget
    from simulator.deployment import ReplicaPlan
    from simulator.latency.model import LatencyModel
    from simulator.study.capacity_table import CapacityQuestion, CapacityRow


def nine_in_ten(latency: "LatencyModel") -> str:
    """What the users under longer and shorter steps stand for."""
    if latency.calibrated:
        return "nine times in ten your server lies between"
    return "nine in ten servers lie between" + ("" if latency.is_measured else ", as judged without a measurement")


def why_none_to_sign(row: "CapacityRow") -> str:
    """What leaves the interval of users open down to none."""
    if row.users_low_sampling and row.users_if_pool_smaller == 0:
        return "at the low end of its KV blocks vLLM serves nobody; --startup-log with your server's log narrows it"
    if row.users_low_sampling and row.step_time_error is not None:
        longer = f"{row.step_time_error:.0%} longer, which their error allows"
        return f"not even one user is served where steps take {longer}; a latency profile narrows it"
    return "the interval over the replications is too wide; more of them narrow it"


def layout_text(replicas: int, tp: int, dp: int) -> str:
    """Replicas × GPUs of each."""
    return f"{replicas} × TP{tp}" + (f" DP{dp}" if dp > 1 else "")


def error_note_of(rows: Sequence["CapacityRow"]) -> str:
    """How far the step times of the row whose number leads may be off at its load; of some row there must be any."""
    from simulator.study.capacity_interval import mean_sequences  # noqa: PLC0415  with the next, loaded by what calls this
    from simulator.study.capacity_table import best_row  # noqa: PLC0415

    best = best_row([row for row in rows if row.plan is not None])
    assert best.plan is not None, "a row that runs has a plan"
    return error_note(best.plan.latency, None if best.point is None else mean_sequences(best.point))


def held_by_interval(question: "CapacityQuestion", rows: Sequence["CapacityRow"]) -> str:
    """Which errors the interval of users holds."""
    are_given = any(row.plan is not None and row.plan.latency.is_given for row in rows)
    pool = any(row.users_if_pool_smaller is not None for row in rows)
    off = [name for name, is_held in (("step times", not are_given), ("the KV pool", pool)) if is_held]
    replications = f"what {question.replications} replications leave open"
    return f"{replications} and how far {' and '.join(off)} may be off" if off else replications


def pool_note(budget: "MemoryBudget") -> str:
    """The KV blocks that were simulated with, beside what vLLM may log instead."""
    blocks = f"KV cache at TP {budget.tp}: {budget.num_gpu_blocks:,} blocks {pool_owner(budget)}"
    low, high = budget.num_gpu_blocks_low, budget.num_gpu_blocks_high
    return f"{blocks}, as given" if low == high else f"{blocks}; vLLM logs {low:,} to {high:,} nine times in ten"


def pool_owner(budget: "MemoryBudget") -> str:
    """Whose the budget's KV blocks are."""
    return "an attention replica" if budget.data_parallel_size > 1 else "a replica"


def settings_note(plan: "ReplicaPlan") -> str:
    """What the server is taken to have been started with."""
    found = plan.settings
    cache = plan.architecture.dtype if found["kv_cache_dtype"] == "auto" else found["kv_cache_dtype"]
    scheduling = "" if found["async_scheduling"] else ", synchronous scheduling"
    return (
        f"vLLM {found['vllm_version']}{scheduling}, {cache} KV cache, "
        f"memory utilization {found['gpu_memory_utilization']:g}, "
        f"steps of up to {found['max_num_batched_tokens']:,} tokens and {found['max_num_seqs']:,} sequences"
    )


def error_note(latency: "LatencyModel", sequences: float | None = None) -> str:
    """How far the step times may be off with so many sequences running, in words."""
    if latency.is_given:
        return "every step lasts as long as given: the decisions are vLLM's, the times are yours"
    errors = latency.tpot_log_error, latency.ttft_log_error
    tpot, ttft = (error.half_width if sequences is None else error.half_width_at(sequences) for error in errors)
    within = f"nine in ten mean latencies lie within ±{tpot:.0%} for TPOT, ±{ttft:.0%} for TTFT"
    if not latency.is_measured:
        return f"step times of this GPU are scaled from its specifications, not measured; as judged, {within}"
    if latency.calibrated:
        count = len(latency.warnings)
        outside = f"; {count} setting{'s lie' if count > 1 else ' lies'} outside it" if count else ""
        return f"step times from your latency profile: {within}{outside}"
    return f"step times are not calibrated on your server: {within}"
