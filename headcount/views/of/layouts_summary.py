"""Layouts compared, arguments searched and sweeps, for the person who decides, and what their reports show."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headcount.diagnostics.shipped import takes_times_of_vllm
from headcount.queries.report_data.disaggregation import disaggregated_parts
from headcount.queries.sweeps.layout import Layout
from headcount.text.blocks import Column, Line
from headcount.text.capacity import trace_text
from headcount.text.units import counted, dollars, percent, whole_dollars
from headcount.text.words import BEST, GPUS_REMARK, PER_SAFE_MEANING, PER_SAFE_USER, SAFE, error_sign, sentence
from headcount.views.report_data.study import layouts_json
from headcount.views.summary.confidence import Headroom
from headcount.views.summary.summary import MOST_OPTIONS, Bought, Options, Summary, options_of, risk_of, served_summary
from simulator.engines.engines import engine_of

if TYPE_CHECKING:
    from headcount.queries.result import Result
    from simulator.study.slo import SLO

MOST_NAMED: Final = 8  # of those that the table has no room for


def trace_lines(layout: Layout) -> list[Line]:
    """What the users rest on, of a trace; nothing of a population."""
    question = layout.looked.question if layout.looked else None
    text = "" if question is None else trace_text(question.workload, question.think_time_s, layout.row)
    return [Line(text)] if text else []


def layout_page(
    answer: "Result",
    question: str,
    layout: Layout | None,
    *,
    slo: "SLO",
    said: str = "",
    about: str = "",
    options: Options | None = None,
    words: Sequence[tuple[str, str]] = (),
    others: Sequence[Layout] = (),
    also: Sequence[tuple[str, str]] = (),
    headroom: Headroom | None = None,
    risk: str | None = None,
    leads: str = "",
) -> Summary:
    """One layout that leads; `said` is the answer, and `about` begins what is said of how sure it is.

    `others` are what else there is to choose from, `also` more figures, `headroom` that of more servers than the
    layout's; `risk` is said instead of what a failure does to the layout; the assumption that `leads` is to be
    confirmed first.
    """
    row, looked = (layout.row, layout.looked) if layout else (None, None)
    if not (layout and row and looked and looked.plan and layout.asked and layout.users):
        return Summary(
            question=question, answer="No option serves any users within these limits", is_good=False, options=options,
            risk=risk_of(answer.diagnostics, layout.reason or "" if layout else ""),
        )  # fmt: skip
    beside = tuple((each.asked.gpu, each.asked.gpu.usd_per_hour) for each in others[:MOST_OPTIONS] if each.asked)
    bought = replace(bought_of(layout), beside=beside)
    return served_summary(
        answer,
        question,
        said or use_text(layout),
        figures=(*bought.figures, *also),
        priced=bought.priced,
        load=looked.question.workload,
        slo=slo,
        plan=looked.plan,
        headroom=headroom or Headroom(needed=None, low=row.users_low, users=row.users, high=row.users_high),
        found=row,
        about=about,
        risk=" ".join([*_cheaper_texts(others, layout), bought.failure if risk is None else risk]),
        options=options,
        words=words,
        leads=leads,
    )


def use_text(layout: Layout) -> str:
    """What to buy, for how many users, at what cost."""
    month, each = layout.usd_per_month, layout.usd_per_user_month
    how = f", with {layout.how}" if layout.how else "" if layout.choice else ", with the settings unchanged"
    cost = "" if month is None or each is None else f": ${month:,.0f} a month, ${each:,.2f} per user"
    return f"Use {bought_of(layout)} for up to {counted(layout.users, 'user')} at once{cost}{how}"


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
        users_low=layout.users,
        parts=disaggregated_parts(layout.looked.disaggregated) if layout.looked and layout.looked.disaggregated else (),
    )


def compared_options(layouts: Sequence[Layout], best: Layout | None) -> Options | None:
    """Layouts compared, those first that lead; None where there is nothing to choose."""
    rows = layouts[:MOST_OPTIONS]
    if len(rows) < 2:
        return None
    title = "Options compared" if len(rows) == len(layouts) else f"{len(rows)} of {len(layouts):,} options"
    note = [PER_SAFE_MEANING, *_remarks(rows), *_hidden_texts(layouts)]
    return options_of(title, _OPTION, rows, best, " ".join(note))


def _about_users(each: Layout) -> str:
    return f"about {each.users:,}" if each.is_screened_only else "–"


def _per_user(each: Layout) -> str:
    over = "over " if each.is_screened_only and each.users else ""
    return f"{over}{each.about}{dollars(each.usd_per_user_month if each.users else None)}"


_OPTION = (
    Column[Layout]("option", spoken),
    Column[Layout]("GPUs", lambda each: f"{each.gpus:,}"),
    Column[Layout]("servers", lambda each: f"{each.num_servers:,}" if each.num_servers else "–"),
    Column[Layout](SAFE, lambda each: "–" if each.is_screened_only else f"{each.about}{each.users:,}"),
    Column[Layout](BEST, lambda each: f"{each.about}{each.row.users:,}" if each.row else _about_users(each)),
    Column[Layout]("$ a month", lambda each: whole_dollars(each.usd_per_month)),
    Column[Layout](PER_SAFE_USER, _per_user),
)


def _remarks(layouts: Sequence[Layout]) -> Iterator[str]:
    """Why some stand below others that cost more, that another number of GPUs may be ranked otherwise, and the like."""
    if any(each.is_screened_only for each in layouts):
        yield "Figures with 'about' or 'over' are estimates: these options are much worse and were not simulated."
    if len({each.asked.gpu.name for each in layouts if each.asked}) > 1:
        yield GPUS_REMARK
    yield from _servers_texts(layouts)
    yield from _speed_texts(layouts)
    plans = [each.looked.plan for each in layouts if each.looked and each.looked.plan]
    if len({engine_of(plan.args) for plan in plans}) > 1 and any(takes_times_of_vllm(plan) for plan in plans):
        yield (
            "SGLang is simulated with vLLM's step times and a wider interval, so it has fewer users at 95 % "
            "confidence: compare the expected users, and measure one load on both engines."
        )


def _servers_texts(layouts: Sequence[Layout]) -> Iterator[str]:
    """What a failure leaves, where some have more servers than others."""
    counts = {each.num_servers for each in layouts if each.users}
    if len(counts) > 1:
        most, fewest = max(counts), min(counts)
        instead = percent(round(1 - 1 / fewest, 2)) if fewest > 1 else "none"
        yield (
            f"With one server down, an option of {most:,} servers still serves about "
            f"{percent(round(1 - 1 / most, 2))} of its users, an option of {fewest:,} {instead}."
        )


def _speed_texts(layouts: Sequence[Layout]) -> Iterator[str]:
    """How exact the simulated speed of each GPU is, where several were simulated."""
    errors: dict[str, str] = {}
    for each in layouts:
        if each.asked and each.row and each.row.plan and each.row.step_time_error is not None:
            latency = each.row.plan.latency
            error = f"{each.asked.gpu.title} {error_sign(latency.tpot_log_error)}{each.row.step_time_error:.0%}"
            is_judged = not latency.is_measured
            errors.setdefault(each.asked.gpu.name, error + " (estimated, not measured)" * is_judged)
    if len(errors) > 1:
        yield f"Error of the simulated speed: {', '.join(errors.values())}."


def _hidden_texts(layouts: Sequence[Layout]) -> Iterator[str]:
    """The options that the table has no room for, in their order."""
    hidden = layouts[MOST_OPTIONS:]
    if hidden:
        named = [f"{spoken(each)} ({_figure(each)})" for each in hidden[:MOST_NAMED]]
        more = f"; and {len(hidden) - MOST_NAMED:,} more in the table below" if len(hidden) > MOST_NAMED else ""
        yield f"The other {counted(len(hidden), 'option')}: {'; '.join(named)}{more}."


def _figure(layout: Layout) -> str:
    """What an option costs a user, or how many it serves."""
    about, each = "about " if layout.is_screened_only else "", layout.usd_per_user_month
    return f"{about}${each:,.2f}" if each is not None and layout.users else f"{about}{counted(layout.users, 'user')}"


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
    if most:
        yield "Fewer GPUs than compared here may cost even less."


def layout_bars(layouts: Sequence[Layout], best: Layout | None, *, by_cost: bool) -> dict[str, object]:
    """Bars of all that serve somebody, the best first; the table stands among the answer's figures."""
    served = [layout for layout in layouts if layout.users]
    kinds = ["marked" if each is best else "plain" if each.row else "pale" for each in served]
    reasons = [f"{layout.name}: {sentence(layout.reason)}" for layout in layouts if layout.reason]
    if by_cost and all(layout.usd_per_user_month is not None for layout in served):
        costs = [(each.name, each.usd_per_user_month or 0.0) for each in served]
        bars = [(name, usd, f"${usd:,.2f}", kind) for (name, usd), kind in zip(costs, kinds, strict=True)]
        axis = "US dollars per user and month"
        return layouts_json("Cost per user by layout", axis, bars, reasons, text="dollars")
    counts = [(each.name, each.users, f"{each.users:,}", kind) for each, kind in zip(served, kinds, strict=True)]
    return layouts_json("Users at 95 % confidence by layout", "users at 95 % confidence", counts, reasons)
