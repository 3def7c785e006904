"""A row of users per GPU count in words, and all of them in a table."""

from collections.abc import Sequence

from headcount.queries.capacity import CapacityResult
from headcount.queries.money import price_lines
from headcount.queries.suggestions import LIFTS_LEGEND, suggestion_lines
from headcount.text.blocks import Block, Line, Table
from headcount.text.capacity import no_capacity_reason, row_layout
from headcount.text.simulated import tenants_table
from headcount.text.units import counted, dollars, milliseconds, percent, seconds
from headcount.text.words import (
    AT_CONFIDENCE,
    BEST,
    KV_CACHE_ERROR,
    SAFE,
    STEP_TIME_ERROR,
    TTFT_ERROR,
    UPPER,
    hits_text,
    host_text,
    interval_text,
    joined,
    pool_owner,
    pool_text,
    ratio_text,
    safe_meaning,
)
from simulator.deployment import Deployment
from simulator.study.capacity_table import (
    CapacityRow,
)
from simulator.study.served import latency_summary
from workloads.traces.trace import Trace

COLUMNS = (
    "GPUs", "layout", SAFE, BEST, UPPER, "in flight", "req/s", "tokens/s", "TTFT p50", "TTFT p95",
    "TPOT p50", "TPOT p95", "$/hour", "$/M tokens", "bottleneck",
)  # fmt: skip


def rows_table(rows: Sequence[CapacityRow]) -> Table:
    """One line per GPU count; the users at 95 % confidence are bold."""
    return Table(
        columns=COLUMNS,
        rows=[_cells(row) for row in rows],
        text_columns=(0, len(COLUMNS) - 1),
        bold_column=COLUMNS.index(SAFE),
    )


def screened_line(row: CapacityRow) -> str:
    """Every tensor-parallel size that was screened, and about how many users it serves."""
    sizes = (f"TP {each.tp} {'does not run' if each.reason else f'about {each.users:,}'}" for each in row.screened)
    return f"screened for {counted(row.gpus, 'GPU')}: {', '.join(sizes)} users"


def headline(best: CapacityRow) -> str:
    """How many users are served at 95 % confidence, or why none are."""
    if best.users_low:
        return f"{counted(best.users_low, 'user')} {AT_CONFIDENCE} on {counted(best.gpus, 'GPU')}"
    return f"No users {AT_CONFIDENCE} on {counted(best.gpus, 'GPU')}: {no_capacity_reason(best)}"


def latency_line(row: CapacityRow) -> str:
    """TTFT and TPOT of the users at 95 % confidence; "" where there are none, or where it was not simulated."""
    if row.safe_point is None:
        return ""
    ttft, tpot = p95_cells(row)
    return f"latency at {counted(row.users_low, 'user')}: TTFT p95 {ttft}, TPOT p95 {tpot}"


def p95_cells(row: CapacityRow) -> tuple[str, str]:
    """TTFT and TPOT of the users at 95 % confidence."""
    point = row.safe_point
    ttft_s, tpot_s = (latency_summary(point, name)["p95"] if point else None for name in ("ttft_s", "tpot_s"))
    return seconds(ttft_s), milliseconds(tpot_s)


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
        lines.append(
            f"SLO judged over the whole run: {row.users_long_run:,} users; judged by the hour instead: {gained}"
        )
    if row.step_time_error is not None:
        lines.append(
            f"90 % interval from step-time error alone (±{row.step_time_error:.0%}{interval_label(row.plan)}): "
            f"{row.users_at_step_time_error_high:,} to {row.users_at_step_time_error_low:,} users"
        )
    if row.ttft_error is not None:
        lines.append(
            f"90 % interval from TTFT error alone (±{row.ttft_error:.0%}: front ends, short queues): "
            f"{row.users_at_ttft_error_high:,} to {row.users_at_ttft_error_low:,} users"
        )
    if row.users_at_kv_cache_low is not None:
        budget = row.plan.budget
        kv, size = ("tokens", budget.block_size) if budget.engine == "sglang" else ("blocks", 1)
        lines.append(
            f"90 % interval from KV-cache size alone ({budget.num_gpu_blocks_low * size:,} to "
            f"{budget.num_gpu_blocks_high * size:,} {kv} per {pool_owner(budget)}): "
            f"{row.users_at_kv_cache_low:,} to {row.users_at_kv_cache_high:,} users"
        )
    return lines


def host_hit_lines(rows: Sequence[CapacityRow]) -> list[str]:
    """Where prompt tokens were found at the users of each row, if KV is offloaded."""
    found = [(row, row.point) for row in rows if row.point is not None and row.point.host_hit_rate is not None]
    said = (
        f"{counted(row.gpus, 'GPU')}: {hits_text(point.mean('prefix_hit_rate'), point.host_hit_rate)}"
        for row, point in found
    )
    return [f"prompt tokens found in a cache: {', '.join(said)}"] if found else []


def interval_label(plan: Deployment) -> str:
    """Whom the step-time error covers, behind the error."""
    if plan.latency.calibrated:
        return " for your server, with 90 % probability"
    return " for 90 % of measured servers" if plan.latency.is_measured else ", estimated"


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


def head(answer: CapacityResult) -> list[Block]:
    asked, best = answer.question, answer.best
    hours = "" if asked.hours_met is None else f", hourly SLO compliance {percent(asked.hours_met)}"
    title = f" on {asked.gpu.name}, workload {answer.workload}: {asked.slo}{hours}"
    lines: list[Block] = [Line(title, bold=asked.architecture.name)]
    if best.users:
        about = f" {interval_text(best.users_low, best.users, best.users_high)}{_rent(answer)}"
        lines.append(Line(about, bold=headline(best)))
    said = filter(None, (latency_line(best), *error_lines(best)))
    return [*lines, *map(Line, said)]


def _rent(answer: CapacityResult) -> str:
    """What the leading row costs; nothing without a price, or without users at 95 % confidence."""
    money = answer._month(answer.best)
    each = money["usd_per_user_month"]
    return f": ${money['usd_per_month']:,.0f} a month, ${each:,.2f} per user" if each else ""


def body(answer: CapacityResult) -> list[Block]:
    reasons = [Line(f"{counted(row.gpus, 'GPU')}: {row.reason}") for row in answer.capacity if row.reason]
    if not any(row.runs for row in answer.capacity):
        return [*reasons] if len(reasons) > 1 else []  # the only one is the error itself
    table = rows_table(answer.capacity)
    suggestions = [] if answer.suggestions is None else [Line(), *suggestion_lines(answer.suggestions, answer.best)]
    return [
        table,
        *reasons,
        *_tenants(answer),
        *suggestions,
        Line(),
        *(Line(text, dim=True) for text in _legend(answer)),
    ]


def _tenants(answer: CapacityResult) -> list[Block]:
    """How each tenant is served on the GPUs that lead."""
    best = answer.best
    if best.point is None or not best.point.tenants:
        return []
    of = f"tenants at {best.users:,} users on {counted(best.gpus, 'GPU')}:"
    return [Line(), Line(of), tenants_table(best.point.tenants)]


def _legend(answer: CapacityResult) -> list[str]:
    is_trace = isinstance(answer.question.workload, Trace)
    return [
        f"{safe_meaning(covered(answer.capacity))} {BEST}: the mean. {UPPER}: the upper end of the 90 % interval; 5 % "
        "of such fleets can serve more. A user is an active session, thinking or waiting. Load (in flight, req/s, "
        f"tokens/s), latencies and $/M tokens are simulated with the number of users {AT_CONFIDENCE} and the expected "
        "step times. On a slower server, or with more users, latencies are closer to the limits.",
        f"think time: {answer.question.think_time_s:.0f} s on average"
        + ("; a trace without sessions has λ (Z + R) users" if is_trace else ""),
        *dict.fromkeys(pool_text(plan.budget) for plan in answer.plans),
        *dict.fromkeys(text for plan in answer.plans if (text := host_text(plan.budget))),
        *host_hit_lines(answer.capacity),
        *price_lines([(answer.question.gpu, answer.question.gpu.usd_per_hour)]),
        *([f"flow control: {answer.question.flow_control}"] if answer.question.flow_control else []),
        *(screened_line(row) for row in answer.capacity if len(row.screened) > 1),
        *([LIFTS_LEGEND] if answer.suggestions else []),
    ]
