"""The answer of `headcount capacity` as text in a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from headcount.text.answer_notes import (
    error_note_of,
    held_by_interval,
    layout_text,
    nine_in_ten,
    pool_note,
    pool_owner,
    why_none_to_sign,
)
from headcount.text.tables import print_table
from headcount.text.text import console, counted, milliseconds, seconds, table

if TYPE_CHECKING:
    from simulator.study.capacity_table import CapacityQuestion, CapacityRow


def capacity_text(
    question: "CapacityQuestion", rows: Sequence["CapacityRow"], *, workload: str, report: object
) -> None:
    """The answer first, then the table, then what it rests on."""
    from simulator.study.capacity_table import best_row  # noqa: PLC0415  loaded by the command that calls this

    out = console()
    out.print(
        f"[bold]{escape(question.architecture.name)}[/] on {question.gpu.name}, "
        f"workload {escape(workload)}: {question.slo}"
    )
    best = best_row(rows)
    if best.users:
        out.print(f"[bold]{_headline(best)}[/] (mean {best.users:,}, up to {best.users_high:,})")
        if best.step_time_error is not None and best.plan is not None:
            out.print(
                f"{best.users_if_slower:,} if every step takes {best.step_time_error:.0%} longer than simulated, "
                f"{best.users_if_faster:,} if as much shorter: {nine_in_ten(best.plan.latency)}"
            )
        if best.users_if_pool_smaller is not None and best.plan is not None:
            budget = best.plan.budget
            out.print(
                f"{best.users_if_pool_smaller:,} if vLLM has {budget.num_gpu_blocks_low:,} KV blocks "
                f"{pool_owner(budget)}, {best.users_if_pool_larger:,} if {budget.num_gpu_blocks_high:,}"
            )
        out.print()
    print_table(out, _capacity_table(rows))
    for row in rows:
        if row.reason:
            out.print(escape(f"{counted(row.gpus)}: {row.reason}"))
    out.print()
    for line in _footnotes(question, rows):
        out.print(line, style="dim", markup=False)
    if report is not None:
        out.print(f"report: {report}", markup=False)


def _headline(best: "CapacityRow") -> str:
    if best.users_low:
        return f"{best.users_low:,} users on {counted(best.gpus)} with 95 % confidence"
    return f"No number to sign on {counted(best.gpus)}: {why_none_to_sign(best)}"


def _capacity_table(rows: Sequence["CapacityRow"]) -> Table:
    from simulator.study.capacity_table import latency_summary  # noqa: PLC0415  loaded by the command that calls this

    made = table(
        "GPUs", "layout", "users low", "users", "users high", "in flight", "req/s", "tokens/s", "TTFT p50", "TTFT p95",
        "TPOT p50", "TPOT p95", "$/hour", "$/M tokens", "what binds",
    )  # fmt: skip
    made.columns[-1].justify, made.columns[-1].no_wrap = "left", True
    for row in rows:
        cells = [str(row.gpus), layout_text(row.replicas, row.tp, row.dp)]
        cells += [f"[bold]{row.users_low:,}[/]", f"{row.users:,}", f"{row.users_high:,}"]
        if row.point is None:
            made.add_row(*cells)
            continue
        ttft, tpot = latency_summary(row.point, "ttft_s"), latency_summary(row.point, "tpot_s")
        cost = row.usd_per_million_output_tokens
        made.add_row(
            *cells,
            f"{row.point.mean('in_flight'):,.1f}",
            f"{row.point.mean('requests_per_s'):,.1f}",
            f"{row.point.mean('output_tokens_per_s'):,.0f}",
            seconds(ttft["p50"]),
            seconds(ttft["p95"]),
            milliseconds(tpot["p50"]),
            milliseconds(tpot["p95"]),
            f"{row.usd_per_hour:,.2f}",
            "–" if cost is None else f"{cost:.2f}",
            row.binding or "",
        )
    return made


def _footnotes(question: "CapacityQuestion", rows: Sequence["CapacityRow"]) -> list[str]:
    from headcount.strict import assumed_notes  # noqa: PLC0415
    from workloads.trace import Trace  # noqa: PLC0415

    notes = [
        "users: active sessions, thinking or waiting. users low is the number to sign, the lower end of an interval "
        f"that holds {held_by_interval(question, rows)}. Latencies are those at 'users'.",
        f"think time: {question.think_time_s:.0f} s on average"
        + ("; users of a trace without sessions are λ (Z + R)" if isinstance(question.workload, Trace) else ""),
    ]
    plans = [row.plan for row in rows if row.plan is not None]
    left_out = dict.fromkeys(item for plan in plans for item in plan.not_simulated)
    notes = [*assumed_notes((*question.architecture.assumptions, *left_out)), *notes]
    if not plans:
        return notes
    pools = list(dict.fromkeys(pool_note(plan.budget) for plan in plans))
    return [*notes, *pools, error_note_of(rows)]
