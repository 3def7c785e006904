"""How many users each GPU count serves, the number to sign first."""

from headcount.report.findings import Findings, Served, gpus_text, sentence, slo_text, users_text
from headcount.report.html import join, render_template, spaced, table
from headcount.text.answer_notes import error_note_of, held_by_interval, layout_text, why_none_to_sign
from headcount.text.text import milliseconds, seconds
from simulator.study.capacity_table import CapacityRow, latency_summary

TITLE = "The answer"
ORDER = 10
LATENCY_COLUMNS = tuple(f"{name} {q}" for name in ("TTFT", "TPOT") for q in ("p50", "p95", "p99"))


def render(findings: Findings) -> str:
    return join(_box(findings), _users_table(findings), _reasons(findings), _load_table(findings))


def _box(findings: Findings) -> str:
    best = findings.best
    return render_template(
        "answer.html",
        headline=spaced(_headline(best)),
        beside=spaced(_beside(best)),
        slo=spaced(slo_text(findings.question.slo)),
        others=[(gpus_text(row.gpus), users_text(row.users_low)) for row in findings.rows] if best else [],
        interval=held_by_interval(findings.question, findings.rows) if best else "",
        error=spaced(sentence(error_note_of(findings.rows))) if best else "",
    )


def _headline(best: CapacityRow | None) -> str:
    if best is None:
        return "None of these GPU counts serves anybody within the SLO"
    if not best.users_low:
        return f"No number to sign on {gpus_text(best.gpus)} yet"
    return f"{users_text(best.users_low)} on {gpus_text(best.gpus)}, with 95 % confidence"


def _beside(best: CapacityRow | None) -> str:
    if best is None:
        return ""
    mean = f"On the mean of the replications the SLO is met up to {users_text(best.users)}"
    if not best.users_low:
        return f"{mean}, but {why_none_to_sign(best)}."
    found = f"the 90 % interval is {best.users_low:,} to {best.users_high:,}. Its lower end is the number to sign."
    if best.step_time_error is None:
        return f"{mean}; {found}"
    slower = users_text(best.users_if_slower or 0)
    return f"{mean}, up to {slower} where every step takes {best.step_time_error:.0%} longer; {found}"


def _users_table(findings: Findings) -> str:
    columns = ("GPUs", "layout", "users to sign (low)", "users (mean)", "users (high)", "$/hour",
               "$/million output tokens", "what binds")  # fmt: skip
    rows = [
        (
            row.gpus,
            layout_text(row.replicas, row.tp, row.dp),
            f"{row.users_low:,}",
            f"{row.users:,}",
            f"{row.users_high:,}",
            f"{row.usd_per_hour:,.2f}",
            _dollars(row.usd_per_million_output_tokens),
            row.binding or ("does not run" if row.plan is None else "misses the SLO"),
        )
        for row in findings.rows
    ]
    return table(columns, rows, caption="Users per GPU count", layout="numbers last-is-text")


def _reasons(findings: Findings) -> str:
    reasons = [(gpus_text(row.gpus), row.reason) for row in findings.rows if row.reason]
    return render_template("reasons.html", reasons=reasons)


def _load_table(findings: Findings) -> str:
    if not findings.served:
        return ""
    columns = ("GPUs", "in flight", "requests/s", "output tokens/s", *LATENCY_COLUMNS, "attainment (95 % interval)")
    caption = "Load and latency at the mean number of users"
    return table(columns, [_load_row(served) for served in findings.served], caption=caption)


def _load_row(served: Served) -> tuple[object, ...]:
    point = served.point
    ttft, tpot = latency_summary(point, "ttft_s"), latency_summary(point, "tpot_s")
    reached = point.attainment
    return (
        served.row.gpus,
        f"{point.mean('in_flight'):,.1f}",
        f"{point.mean('requests_per_s'):,.2f}",
        f"{point.mean('output_tokens_per_s'):,.0f}",
        *(seconds(ttft[q]) for q in ("p50", "p95", "p99")),
        *(milliseconds(tpot[q]) for q in ("p50", "p95", "p99")),
        f"{reached.mean:.1%} ({max(reached.low, 0):.1%} to {min(reached.high, 1):.1%})",
    )


def _dollars(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f}"
