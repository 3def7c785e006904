"""Layouts compared, arguments searched and grids, for the person who signs, and what their reports show."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headcount.answers.details.first_page import FirstPage, Headroom, risk_of, served_page
from headcount.answers.varied.layout import Layout
from headcount.text.units import counted
from headcount.text.words import sentence

if TYPE_CHECKING:
    from headcount.answers.answer import Answer
    from simulator.study.slo import SLO


def layout_page(
    answer: "Answer", question: str, layout: Layout | None, *, slo: "SLO", workload: str, said: str = ""
) -> FirstPage:
    """One layout that leads; `said` stands where nobody is served, or beside how sure it is."""
    row = layout.row if layout else None
    asked = f"{question}?"
    if layout is None or row is None or not layout.users:
        return FirstPage(
            question=asked, answer=said or "No layout serves anybody within these limits", is_good=False,
            risk=risk_of(answer.notes, layout.reason or "" if layout else ""),
        )  # fmt: skip
    gpus = f"{layout.gpus:,} × {layout.asked.gpu.name if layout.asked else 'GPU'}"
    page = served_page(
        answer,
        asked,
        f"{layout.name}: {counted(layout.users, 'user')} on {gpus}",
        buy=f"{gpus}, {layout.layout}",
        whom=f"{counted(layout.users, 'user')} at once",
        workload=workload,
        money=(layout.usd_per_month, layout.usd_per_user_month),
        slo=slo,
        headroom=Headroom(needed=None, low=row.users_low, users=row.users, high=row.users_high),
    )
    return replace(page, sure=f"{page.sure} {said}".strip())


def layouts_json(layouts: Sequence[Layout], best: Layout | None, *, by_cost: bool) -> dict[str, Any]:
    """Bars of all that serve somebody, the best first; the table stands among the answer's figures."""
    served = [layout for layout in layouts if layout.users]
    is_cost = by_cost and all(layout.usd_per_user_month is not None for layout in served)
    return {
        "title": "Cost of a user by layout" if is_cost else "Users to sign by layout",
        "axis": "US dollars per user and month" if is_cost else "users to sign",
        "text": "dollars" if is_cost else "count",
        "bars": [_bar(layout, best, is_cost=is_cost) for layout in served],
        "columns": [],
        "rows": [],
        "text_columns": [],
        "said": [f"{layout.name}: {sentence(layout.reason)}" for layout in layouts if layout.reason],
    }


def _bar(layout: Layout, best: Layout | None, *, is_cost: bool) -> dict[str, Any]:
    value = (layout.usd_per_user_month or 0.0) if is_cost else layout.users
    kind = "marked" if layout is best else "plain" if layout.row else "pale"
    return {"name": layout.name, "value": value, "label": f"${value:,.2f}" if is_cost else f"{value:,}", "kind": kind}
