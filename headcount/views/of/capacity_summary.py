"""How many users these GPUs serve, for the person who decides."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headcount.queries.capacity import CapacityResult
from headcount.queries.money import usd_per_month, usd_per_user_month
from headcount.text.capacity import no_capacity_reason, row_layout
from headcount.text.units import counted, dollars, milliseconds, seconds, whole_dollars
from headcount.text.words import (
    BEST,
    PER_SAFE_MEANING,
    PER_SAFE_USER,
    SAFE,
    UPPER,
    model_title,
    ratio_text,
    sentence,
)
from headcount.views.of.capacity_text import p95_cells
from headcount.views.report_data.study import study_json
from headcount.views.summary.confidence import Headroom
from headcount.views.summary.summary import (
    LATENCY_WORDS,
    MOST_OPTIONS,
    P95_WORD,
    Bought,
    Options,
    Summary,
    if_all_come,
    served_summary,
    up_to,
)
from simulator.study.capacity_table import (
    CapacityRow,
)
from simulator.study.served import latency_summary

if TYPE_CHECKING:
    from headcount.queries.capacity import CapacityResult
    from simulator.study.slo import SLO


def summary(answer: "CapacityResult") -> Summary:
    """The row that leads; where nobody is served, why."""
    asked, best = answer.question, answer.best
    question = f"How many users can {model_title(asked.architecture.name)} serve on {asked.gpu.title} GPUs?"
    if not best.users_low or best.plan is None:
        why = no_capacity_reason(best) if best.users else best.reason or "nothing runs"
        return Summary(
            question=question, answer="These GPUs serve no users within the limits", risk=sentence(f"{why}."),
            is_good=False,
        )  # fmt: skip
    month = usd_per_month(best.gpus, asked.gpu.usd_per_hour)
    bought = Bought(
        gpu=asked.gpu, gpus=best.gpus, servers=best.replicas, usd_per_gpu_hour=asked.gpu.usd_per_hour,
        usd_per_month=month, usd_per_head=usd_per_user_month(month, best.users_low),
        heads=if_all_come(best.users_low),
    )  # fmt: skip
    several = len(answer.capacity) > 1
    return served_summary(
        answer,
        question,
        _said(answer),
        figures=(*bought.figures, *_reached(best, asked.slo)),
        priced=bought.priced,
        serves=up_to(best.users_low),
        load=asked.workload,
        slo=asked.slo,
        plan=best.plan,
        headroom=Headroom(needed=None, low=best.users_low, users=best.users, high=best.users_high),
        found=best,
        about=f"On {counted(best.gpus, 'GPU')}: " if several else "",
        risk=bought.failure(best.users_low),
        options=_options(answer) if several else None,
        words=LATENCY_WORDS[:2] + P95_WORD,
    )


def _reached(best: CapacityRow, slo: "SLO") -> tuple[tuple[str, str], ...]:
    """Latencies of the users at 95 % confidence beside their limits; nothing where they were not simulated."""
    if best.safe_point is None:
        return ()
    limits = (("TTFT", "ttft_s", slo.ttft_s, seconds), ("TPOT", "tpot_s", slo.tpot_s, milliseconds))
    reached = ", ".join(
        f"{name} p95 {shown(latency_summary(best.safe_point, key)['p95'])}"
        + ("" if limit is None else f" (limit {shown(limit)})")
        for name, key, limit, shown in limits
    )
    return ((f"latency at {counted(best.users_low, 'user')}", reached),)


def _said(answer: "CapacityResult") -> str:
    """The fewest GPUs that serve somebody, and those that lead."""
    best, first = answer.best, answer.served[0].row
    gpus = f"{counted(best.users_low, 'user')} on {best.gpus:,} × {answer.question.gpu.title}"
    if first is best or not first.users_low:
        return gpus
    return f"{gpus}, {first.users_low:,} on {counted(first.gpus, 'GPU')}"


def _options(answer: "CapacityResult") -> Options:
    rows, price = answer.capacity[:MOST_OPTIONS], answer.question.gpu.usd_per_hour
    return Options(
        title="By number of GPUs",
        columns=("GPUs", SAFE, BEST, "TTFT p95", "TPOT p95", "$ a month", PER_SAFE_USER),
        rows=tuple(
            (f"{row.gpus:,}", f"{row.users_low:,}", f"{row.users:,}", *p95_cells(row),
             whole_dollars(usd_per_month(row.gpus, price)),
             dollars(usd_per_user_month(usd_per_month(row.gpus, price), row.users_low)))
            for row in rows
        ),
        marked=next((place for place, row in enumerate(rows) if row is answer.best), None),
        note=f"TTFT and TPOT are simulated with the users at 95 % confidence. {PER_SAFE_MEANING}",
    )  # fmt: skip


def layouts_json(rows: Sequence[CapacityRow]) -> dict[str, object]:
    """The users of each GPU count, and why some serve nobody."""
    best = max(rows, key=lambda row: row.users_low, default=None)
    served = [row for row in rows if row.users]
    columns = ("GPUs", "layout", SAFE, BEST, UPPER, "TTFT p95", "TPOT p95", "$/hour", "bottleneck")
    cells = [
        (f"{row.gpus}", row_layout(row), f"{row.users_low:,}", f"{row.users:,}", f"{row.users_high:,}",
         *p95_cells(row), dollars(row.usd_per_hour), row.binding or ("misses the SLO" if row.runs else "does not run"))
        for row in rows
    ]  # fmt: skip
    return {
        "title": "Users at 95 % confidence by number of GPUs",
        "axis": "users at 95 % confidence",
        "text": "count",
        "bars": [
            {"name": f"{counted(row.gpus, 'GPU')}, {row_layout(row)}", "value": row.users_low,
             "label": f"{row.users_low:,}", "kind": "marked" if row is best else "plain"}
            for row in served
        ],
        "columns": columns,
        "rows": cells,
        "text_columns": [0, 1, len(columns) - 1],
        "said": [f"{counted(row.gpus, 'GPU')}: {row.reason}" for row in rows if row.reason],
    }  # fmt: skip


def details(answer: CapacityResult) -> dict[str, object]:
    """The leading row's deployment, every row, and what was tried on top."""
    best = answer.best
    return study_json(answer, answer.study) | {
        "layouts": layouts_json(answer.capacity),
        "suggestions": [
            {
                "change": lift.change,
                "before": f"{best.users_low:,}",
                "after": f"{lift.layout.users:,}",
                "ratio": ratio_text(lift.ratio),
                "remark": lift.remark,
            }
            for lift in answer.suggestions or ()
        ],
    }
