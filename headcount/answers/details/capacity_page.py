"""How many users these GPUs serve, for the person who signs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headcount.answers.capacity_text import no_capacity_reason, row_layout
from headcount.answers.details.first_page import FirstPage, Headroom, served_page
from headcount.answers.money import usd_per_month, usd_per_user_month
from headcount.text.units import counted, dollars
from headcount.text.words import sentence
from simulator.study.capacity_table import CapacityRow

if TYPE_CHECKING:
    from headcount.answers.capacity import CapacityAnswer


def capacity_page(answer: "CapacityAnswer") -> FirstPage:
    """The row that leads; where nobody is served, why."""
    asked, best = answer.question, answer.best
    question = f"How many users can {asked.architecture.name} serve on {asked.gpu.name} GPUs?"
    if not best.users_low:
        why = no_capacity_reason(best) if best.users else best.reason or "nothing runs"
        return FirstPage(
            question=question, answer="No number of users can be promised on these GPUs", risk=sentence(f"{why}."),
            is_good=False,
        )  # fmt: skip
    month = usd_per_month(best.gpus, asked.gpu.usd_per_hour)
    gpus = f"{best.gpus:,} × {asked.gpu.name}"
    return served_page(
        answer,
        question,
        f"{counted(best.users_low, 'user')} on {gpus}",
        buy=f"{gpus} in {counted(best.replicas, 'server')}",
        whom=f"{counted(best.users_low, 'user')} at once",
        workload=answer.workload,
        money=(month, usd_per_user_month(month, best.users_low)),
        slo=asked.slo,
        headroom=Headroom(needed=None, low=best.users_low, users=best.users, high=best.users_high),
        covers=answer.covered,
    )


def layouts_json(rows: Sequence[CapacityRow]) -> dict[str, Any]:
    """The users of each GPU count, and why some serve nobody."""
    best = max(rows, key=lambda row: row.users_low, default=None)
    served = [row for row in rows if row.users]
    columns = ("GPUs", "layout", "users to sign", "users (mean)", "users (high)", "$/hour", "what binds")
    cells = [
        (f"{row.gpus}", row_layout(row), f"{row.users_low:,}", f"{row.users:,}", f"{row.users_high:,}",
         dollars(row.usd_per_hour), row.binding or ("misses the SLO" if row.runs else "does not run"))
        for row in rows
    ]  # fmt: skip
    return {
        "title": "Users to sign by number of GPUs",
        "axis": "users to sign",
        "text": "count",
        "bars": [
            {"name": f"{counted(row.gpus, 'GPU')}, {row_layout(row)}", "value": row.users_low,
             "label": f"{row.users_low:,}", "kind": "marked" if row is best else "plain"}
            for row in served
        ],
        "columns": columns,
        "rows": cells,
        "text_columns": [0, 1, 6],
        "said": [f"{counted(row.gpus, 'GPU')}: {row.reason}" for row in rows if row.reason],
    }  # fmt: skip
