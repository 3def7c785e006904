"""How many users each GPU count serves, the number to sign first."""

from headcount.answers.capacity import CapacityAnswer, Served
from headcount.answers.capacity_text import error_lines, no_capacity_reason, row_layout
from headcount.report.html import join, render_template, spaced, table
from headcount.text.units import counted, dollars, milliseconds, seconds
from headcount.text.words import sentence, slo_text
from simulator.study.capacity_table import CapacityRow, latency_summary

TITLE = "The answer"
ORDER = 10
LATENCY_COLUMNS = tuple(f"{name} {q}" for name in ("TTFT", "TPOT") for q in ("p50", "p95", "p99"))


def render(answer: CapacityAnswer) -> str:
    return join(_box(answer), _users_table(answer), _reasons(answer), _load_table(answer))


def _box(answer: CapacityAnswer) -> str:
    best = answer.best if answer.users else None
    error = next((note.text for note in answer.notes if note.code == "step-time-error"), "")
    return render_template(
        "answer.html",
        headline=spaced(_headline(best)),
        beside=[spaced(text) for text in _beside(best)],
        slo=spaced(slo_text(answer.question.slo)),
        others=[(counted(row.gpus, "GPU"), counted(row.users_low, "user")) for row in answer.capacity] if best else [],
        interval=answer.covered if best else "",
        error=spaced(sentence(error)) if best else "",
        alerts=[str(note) for note in answer.alerts],
    )


def _headline(best: CapacityRow | None) -> str:
    if best is None:
        return "None of these GPU counts meets the SLO with a single user"
    if not best.users_low:
        return f"No number to sign on {counted(best.gpus, 'GPU')} yet"
    return f"{counted(best.users_low, 'user')} on {counted(best.gpus, 'GPU')}, with 95 % confidence"


def _beside(best: CapacityRow | None) -> list[str]:
    """Sentences below the headline."""
    if best is None:
        return []
    mean = f"The expected attainment meets the SLO up to {counted(best.users, 'user')}"
    if not best.users_low:
        return [f"{mean}, but {no_capacity_reason(best)}."]
    interval = f"the 90 % interval is {best.users_low:,} to {best.users_high:,}. Its lower end is the number to sign."
    return [f"{mean}; {interval}", *(f"{sentence(text)}." for text in error_lines(best))]


def _users_table(answer: CapacityAnswer) -> str:
    columns = ("GPUs", "layout", "users to sign (low)", "users (mean)", "users (high)", "$/hour",
               "$/million output tokens", "what binds")  # fmt: skip
    rows = [
        (
            row.gpus,
            row_layout(row),
            f"{row.users_low:,}",
            f"{row.users:,}",
            f"{row.users_high:,}",
            dollars(row.usd_per_hour),
            dollars(row.usd_per_million_output_tokens),
            row.binding or ("does not run" if row.plan is None else "misses the SLO"),
        )
        for row in answer.capacity
    ]
    return table(columns, rows, caption="Users per GPU count", layout="numbers last-is-text bold-3")


def _reasons(answer: CapacityAnswer) -> str:
    reasons = [(counted(row.gpus, "GPU"), row.reason) for row in answer.capacity if row.reason]
    return render_template("reasons.html", reasons=reasons)


def _load_table(answer: CapacityAnswer) -> str:
    if not answer.served:
        return ""
    columns = ("GPUs", "in flight", "requests/s", "output tokens/s", *LATENCY_COLUMNS, "attainment (95 % interval)")
    caption = "Load and latency at the mean number of users, as simulated: only users are corrected for drawn work"
    return table(columns, [_load_row(served) for served in answer.served], caption=caption)


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
