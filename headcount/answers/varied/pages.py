"""Layouts compared, arguments searched and grids, for the person who signs, and what their reports show."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from headcount.answers.details.apart import apart_parts
from headcount.answers.details.first_page import (
    MOST_OPTIONS,
    Bought,
    FirstPage,
    Headroom,
    Options,
    if_all_come,
    risk_of,
    served_page,
    up_to,
)
from headcount.answers.notes.step_times_of_sglang import takes_times_of_vllm
from headcount.answers.varied.layout import Layout
from headcount.text.units import counted, dollars, whole_dollars
from headcount.text.words import PER_SAFE_MEANING, PER_SAFE_USER, sentence
from simulator.engines.engines import engine_of

if TYPE_CHECKING:
    from headcount.answers.answer import Answer
    from simulator.study.slo import SLO

GPUS_REMARK: Final = (
    "The order of GPUs may change with their number and layout; for a number of users ask headcount plan --users N."
)


def layout_page(
    answer: "Answer",
    question: str,
    layout: Layout | None,
    *,
    slo: "SLO",
    said: str = "",
    about: str = "",
    options: Options | None = None,
    words: Sequence[tuple[str, str]] = (),
    others: Sequence[Layout] = (),
) -> FirstPage:
    """One layout that leads; `said` is the answer, and `about` begins what is said of how sure it is.

    `others` are what else there is to choose from.
    """
    row, looked = (layout.row, layout.looked) if layout else (None, None)
    if not (layout and row and looked and looked.plan and layout.asked and layout.users):
        return FirstPage(
            question=question, answer="No layout serves anybody within these limits", is_good=False, options=options,
            risk=risk_of(answer.notes, layout.reason or "" if layout else ""),
        )  # fmt: skip
    beside = tuple((each.asked.gpu, each.asked.gpu.usd_per_hour) for each in others[:MOST_OPTIONS] if each.asked)
    bought = replace(bought_of(layout), beside=beside)
    return served_page(
        answer,
        question,
        said or f"{spoken(layout)}: {counted(layout.users, 'user')} on {bought}",
        figures=bought.figures,
        priced=bought.priced,
        serves=up_to(layout.users),
        load=looked.question.workload,
        slo=slo,
        plan=looked.plan,
        headroom=Headroom(needed=None, low=row.users_low, users=row.users, high=row.users_high),
        found=row,
        about=about,
        risk=" ".join([*_cheaper_texts(others, layout), bought.failure(layout.users)]),
        options=options,
        words=words,
    )


def spoken(layout: Layout) -> str:
    """Its name, with the GPU's as its vendor has it."""
    gpu = layout.asked.gpu if layout.asked else None
    return layout.name if gpu is None else layout.name.replace(gpu.name, gpu.title)


def bought_of(layout: Layout) -> Bought:
    """The GPUs of a layout that can be asked for."""
    assert layout.asked is not None, "a refused layout has no GPU"
    return Bought(
        gpu=layout.asked.gpu,
        gpus=layout.gpus,
        servers=layout.num_servers,
        usd_per_gpu_hour=layout.asked.gpu.usd_per_hour,
        usd_per_month=layout.usd_per_month,
        usd_per_head=layout.usd_per_user_month,
        heads=if_all_come(layout.users),
        parts=apart_parts(layout.looked.apart) if layout.looked and layout.looked.apart else (),
    )


def compared_options(layouts: Sequence[Layout], best: Layout | None) -> Options | None:
    """Layouts side by side, those first that lead; None where there is nothing to choose."""
    rows = layouts[:MOST_OPTIONS]
    if len(rows) < 2:
        return None
    return Options(
        title="Side by side" if len(rows) == len(layouts) else f"The first {len(rows)} of {len(layouts):,}",
        columns=("option", "GPUs", "safe to promise", "best estimate", "$ a month", PER_SAFE_USER),
        rows=tuple(
            (spoken(each), _gpus_text(each), f"{'about ' if each.is_screened_only else ''}{each.users:,}",
             f"{each.row.users:,}" if each.row else "–",
             whole_dollars(each.usd_per_month), dollars(each.usd_per_user_month if each.users else None))
            for each in rows
        ),
        marked=next((place for place, each in enumerate(rows) if each is best), None),
        note=" ".join([PER_SAFE_MEANING, *_gpus_texts(rows), *_engines_texts(rows)]),
    )  # fmt: skip


def _gpus_texts(layouts: Sequence[Layout]) -> Iterator[str]:
    """That another number of them may be ranked otherwise."""
    if len({each.asked.gpu.name for each in layouts if each.asked}) > 1:
        yield GPUS_REMARK


def _engines_texts(layouts: Sequence[Layout]) -> Iterator[str]:
    """Why fewer users are safe to promise with SGLang than its best estimate beside vLLM's suggests."""
    plans = [each.looked.plan for each in layouts if each.looked and each.looked.plan]
    if len({engine_of(plan.args) for plan in plans}) > 1 and any(takes_times_of_vllm(plan) for plan in plans):
        yield (
            "SGLang's steps take vLLM's times here, with a wider interval, so fewer users are safe to promise: "
            "compare the best estimates, and measure one load on both engines."
        )


def _cheaper_texts(layouts: Sequence[Layout], best: Layout) -> Iterator[str]:
    """Options that cost less in total than the best, up to the users that each of them serves."""
    month, most = best.usd_per_month, 0
    served = [(each.usd_per_month, each) for each in layouts if each.row and each.users and each.usd_per_month]
    for usd, each in sorted(served, key=lambda pair: (pair[0], -pair[1].users)):
        if month and usd < month and each.users > most:
            most = each.users
            yield (
                f"Up to {counted(each.users, 'user')} at once, {spoken(each)} costs less in total: "
                f"${whole_dollars(usd)} a month instead of ${whole_dollars(month)}."
            )


def _gpus_text(layout: Layout) -> str:
    """Such as `4 (2 servers)`: a server is down alone."""
    servers = layout.num_servers
    return f"{layout.gpus:,} ({counted(servers, 'server')})" if servers > 1 else f"{layout.gpus:,}"


def layouts_json(layouts: Sequence[Layout], best: Layout | None, *, by_cost: bool) -> dict[str, Any]:
    """Bars of all that serve somebody, the best first; the table stands among the answer's figures."""
    served = [layout for layout in layouts if layout.users]
    is_cost = by_cost and all(layout.usd_per_user_month is not None for layout in served)
    return {
        "title": "Cost of a user by layout" if is_cost else "Safe to promise by layout",
        "axis": "US dollars per user safe to promise and month" if is_cost else "users safe to promise",
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
