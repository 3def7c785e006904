"""A row of users per GPU count in words, and all of them in a table."""

from collections.abc import Sequence

from headcount.text.blocks import Table
from headcount.text.units import counted, dollars, milliseconds, seconds
from headcount.text.words import (
    BEST,
    KV_CACHE_ERROR,
    SAFE,
    STEP_TIME_ERROR,
    TTFT_ERROR,
    UPPER,
    found_text,
    hits_text,
    joined,
    layout_text,
    pool_owner,
    ratio_text,
)
from simulator.deployment import Deployment
from simulator.engines.memory import longest_fit
from simulator.study.capacity_interval import starts_with_fewest
from simulator.study.capacity_table import CapacityRow
from simulator.study.served import latency_summary

COLUMNS = (
    "GPUs", "layout", SAFE, BEST, UPPER, "in flight", "req/s", "tokens/s", "TTFT p50", "TTFT p95",
    "TPOT p50", "TPOT p95", "$/hour", "$/M tokens", "what binds",
)  # fmt: skip


def rows_table(rows: Sequence[CapacityRow]) -> Table:
    """One line per GPU count; what is safe to promise is bold."""
    return Table(
        columns=COLUMNS,
        rows=[_cells(row) for row in rows],
        text_columns=(0, len(COLUMNS) - 1),
        bold_column=COLUMNS.index(SAFE),
    )


def found_line(row: CapacityRow) -> str:
    """A row, shown as soon as it is found."""
    figures = found_text(row.users_low, row.users, row.users_high)
    return f"{counted(row.gpus, 'GPU')}: {figures if row.users else row.reason or 'no users'}"


def screened_line(row: CapacityRow) -> str:
    """Every tensor-parallel size that was looked at, and about how many users it serves."""
    sizes = (f"TP {each.tp} {'does not run' if each.reason else f'about {each.users:,}'}" for each in row.screened)
    return f"looked at for {counted(row.gpus, 'GPU')}: {', '.join(sizes)} users"


def headline(best: CapacityRow) -> str:
    """How many users are safe to promise, or why none are."""
    if best.users_low:
        return f"{best.users_low:,} users are safe to promise on {counted(best.gpus, 'GPU')}"
    return f"No number of users is safe to promise on {counted(best.gpus, 'GPU')}: {no_capacity_reason(best)}"


def latency_line(row: CapacityRow) -> str:
    """TTFT and TPOT of the users who are safe to promise; "" where nobody is, or where it was not simulated."""
    if row.safe_point is None:
        return ""
    ttft, tpot = p95_cells(row)
    return f"with {counted(row.users_low, 'user')}: TTFT p95 {ttft}, TPOT p95 {tpot}"


def p95_cells(row: CapacityRow) -> tuple[str, str]:
    """TTFT and TPOT of the users who are safe to promise."""
    point = row.safe_point
    ttft_s, tpot_s = (latency_summary(point, name)["p95"] if point else None for name in ("ttft_s", "tpot_s"))
    return seconds(ttft_s), milliseconds(tpot_s)


def no_capacity_reason(row: CapacityRow) -> str:
    """Why the lower end of the interval of users is 0."""
    if row.users_low_sampling and row.users_at_kv_cache_low == 0 and row.plan is not None:
        return _no_start_reason(row.plan)
    if row.users_low_sampling and row.users_at_step_time_error_high and row.users_at_ttft_error_high == 0:
        return f"not even one user is served where TTFT is {row.ttft_error:.0%} longer, which its error allows"
    if row.users_low_sampling and row.step_time_error is not None:
        longer = f"{row.step_time_error:.0%} longer, which their error allows"
        return f"not even one user is served where steps take {longer}; a latency profile narrows it"
    return "the interval over the replications is too wide; a larger --replications narrows it"


def _no_start_reason(plan: Deployment) -> str:
    """With the fewest KV blocks that are likely; and the longest context that is sure to start."""
    budget = plan.budget
    is_sglang = budget.engine == "sglang"
    low = budget.kv_cache_tokens_low if is_sglang else budget.num_gpu_blocks_low
    end = f"at the low end of the KV {'tokens' if is_sglang else 'blocks'}' interval ({low:,})"
    if is_sglang or starts_with_fewest(plan):
        return f"{end} no users are served; narrow it with --startup-log"
    longest = longest_fit(plan.architecture, plan.gpu, budget, plan.given)
    shorter = f"lower --max-model-len to {longest} or " if longest else ""
    return (
        f"{end} vLLM would not start: they do not hold one request of max_model_len {budget.max_model_len:,}; "
        f"{shorter}narrow the interval with --startup-log"
    )


def covered(rows: Sequence[CapacityRow]) -> str:
    """Which errors the interval of users covers."""
    are_given = any(row.plan.latency.is_given for row in rows if row.plan is not None)
    counts = sorted({row.replications for row in rows if row.replications})
    ran = " to ".join(map(str, dict.fromkeys([counts[0], counts[-1]]))) if counts else "no"
    errors = [
        (STEP_TIME_ERROR, not are_given),
        (TTFT_ERROR, any(row.ttft_error is not None for row in rows)),
        (KV_CACHE_ERROR, any(row.users_at_kv_cache_low is not None for row in rows)),
    ]
    return joined([f"simulation noise ({ran} replications)", *(name for name, is_covered in errors if is_covered)])


def error_lines(row: CapacityRow) -> list[str]:
    """What the errors of step times and TTFT, and the uncertain KV cache, make of the users, a sentence each."""
    lines: list[str] = []
    if row.plan is None or not row.users:
        return lines
    if row.hours_over_long_run is not None:
        gained = ratio_text(row.hours_over_long_run)
        lines.append(f"mean over the long run: {row.users_long_run:,} users; hours instead of it: {gained}")
    if row.step_time_error is not None:
        lines.append(
            f"part of the interval: step-time error alone (±{row.step_time_error:.0%}, {interval_label(row.plan)}): "
            f"{row.users_at_step_time_error_high:,} to {row.users_at_step_time_error_low:,} users"
        )
    if row.ttft_error is not None:
        lines.append(
            f"part of the interval: TTFT's own error alone (±{row.ttft_error:.0%}: front ends, short queues): "
            f"{row.users_at_ttft_error_high:,} to {row.users_at_ttft_error_low:,} users"
        )
    if row.users_at_kv_cache_low is not None:
        budget = row.plan.budget
        kv, size = ("tokens", budget.block_size) if budget.engine == "sglang" else ("blocks", 1)
        lines.append(
            f"part of the interval: size of the KV cache alone ({budget.num_gpu_blocks_low * size:,} to "
            f"{budget.num_gpu_blocks_high * size:,} {kv} per {pool_owner(budget)}): "
            f"{row.users_at_kv_cache_low:,} to {row.users_at_kv_cache_high:,} users"
        )
    return lines


def host_hit_lines(rows: Sequence[CapacityRow]) -> list[str]:
    """Where prompt tokens were found at the users of each row, if KV is kept in host memory."""
    found = [(row, row.point) for row in rows if row.point is not None and row.point.host_hit_rate is not None]
    said = (
        f"{counted(row.gpus, 'GPU')}: {hits_text(point.mean('prefix_hit_rate'), point.host_hit_rate)}"
        for row, point in found
    )
    return [f"prompt tokens found in GPU and host memory: {', '.join(said)}"] if found else []


def interval_label(plan: Deployment) -> str:
    """Whom the step-time error covers."""
    if plan.latency.calibrated:
        return "your server with 90 % probability"
    return "90 % of measured servers" if plan.latency.is_measured else "90 % of servers, by judgement"


def _cells(row: CapacityRow) -> tuple[str, ...]:
    cells = (str(row.gpus), row_layout(row), f"{row.users_low:,}", f"{row.users:,}", f"{row.users_high:,}")
    point = row.safe_point
    if point is None:
        return (*cells, *["–"] * 7, dollars(row.usd_per_hour), "–", row.binding or "") if row.point else cells
    ttft, tpot = latency_summary(point, "ttft_s"), latency_summary(point, "tpot_s")
    return (
        *cells,
        f"{point.mean('in_flight'):,.1f}",
        f"{point.mean('requests_per_s'):,.1f}",
        f"{point.mean('output_tokens_per_s'):,.0f}",
        *(seconds(ttft[q]) for q in ("p50", "p95")),
        *(milliseconds(tpot[q]) for q in ("p50", "p95")),
        dollars(row.usd_per_hour),
        dollars(row.usd_per_million_at(point)),
        row.binding or "",
    )


def row_layout(row: CapacityRow) -> str:
    if not row.replicas:  # the sizes asked for do not divide the GPUs
        return "–"
    return layout_text(row.replicas, row.tp, row.dp, row.pp)
