"""The engine arguments that serve the most users, in words."""

from dataclasses import replace
from typing import Final

from headcount.inputs.reading.variations import FORMATS, UNCHANGED, value_text
from headcount.queries.optimize import OptimizeResult
from headcount.queries.sweeps.layout import Layout
from headcount.text.blocks import Block, Column, Line, table_of
from headcount.text.units import counted, dollars, milliseconds, seconds
from headcount.text.words import (
    AT_CONFIDENCE,
    PER_SAFE_USER,
    PRECISION_REMARK,
    SAFE,
    joined,
    model_title,
    ratio_text,
    settings_text,
)
from headcount.views.of import compare
from headcount.views.of.layouts_summary import compared_options, layout_bars, layout_page, trace_lines
from headcount.views.report_data.study import study_json
from headcount.views.summary.summary import Summary

FRONTIER = (
    Column[Layout]("frontier", lambda each: each.name, is_text=True),
    Column[Layout]("servers", lambda each: each.layout, is_text=True),
    Column[Layout](SAFE, lambda each: f"{each.about}{each.users:,}", is_bold=True),
    Column[Layout](PER_SAFE_USER, lambda each: dollars(each.usd_per_user_month)),
    Column[Layout]("TTFT p95", lambda each: seconds(each.p95_s("ttft_s"))),
    Column[Layout]("TPOT p95", lambda each: milliseconds(each.p95_s("tpot_s"))),
)
SIMPLEST_REMARK: Final = "The marked row leaves out settings that raise the users by less than 2 %."
KEPT_SIMPLE: Final = "best: without settings that do not clearly raise the users by 2 %"
FRONTIER_MEANING: Final = (
    "frontier (Pareto): no other layout has more users, lower TTFT p95 and lower TPOT p95, within 1 %"
)


def _settings(answer: OptimizeResult) -> list[Line]:
    """The values where nothing is changed; a serve line leaves out the defaults."""
    plan = answer.base.looked.plan if answer.base.looked else None
    return [Line(f"{UNCHANGED}: {settings_text(plan)}")] if plan else []


def _held(answer: OptimizeResult) -> str:
    """Such as `max_num_seqs 1,024, max_num_batched_tokens 8,192`."""
    return ", ".join(value_text(name, value) for name, value in answer.held.items())


def summary(answer: OptimizeResult) -> Summary:
    compared, best, base = answer.compared, answer.best, answer.base
    question = f"Which engine arguments serve the most users of {model_title(compared.model)}?"
    beside = f"unchanged settings ({_held(answer)}), which serve {base.users:,} users {AT_CONFIDENCE}"
    gained = f"Users: {ratio_text(answer.gain)} compared with {beside}. " if best is not base else ""
    options = compared_options(compared.layouts, best)
    if options and any(each.users > best.users for each in compared.layouts):
        options = replace(options, note=f"{options.note} {SIMPLEST_REMARK}")
    return layout_page(answer, question, best, slo=compared.slo, about=gained, options=options,
                       others=compared.layouts)  # fmt: skip


def head(answer: OptimizeResult) -> list[Block]:
    title, *_ = compare.head(answer.compared)
    best, base = answer.best, answer.base
    if not best.users:
        return [title, Line(f"no users are served; {best.reason or base.reason}")]
    if best is base:
        tried = sum(each.row is not None for each in answer.compared.layouts if each is not base)
        defaults = " (with each default)" if answer.compared.axes else ""  # each one more than the listed values
        said = (
            f": {counted(base.users, 'user')} {AT_CONFIDENCE}. {answer.num_looked_at:,} candidates{defaults} screened "
            f"and {tried:,} simulated, none clearly raises the users by 2 %"
        )
        held = f"keep {_held(answer)}" if answer.held else UNCHANGED
        return [title, Line(said, bold=held), *_settings(answer), *trace_lines(base), Line(answer.serve_line)]
    cost = f", ${dollars(best.usd_per_user_month)} per user and month" if best.usd_per_user_month else ""
    gain = f"; {ratio_text(answer.gain)} compared with {base.users:,} unchanged ({_held(answer)})" if base.users else ""
    return [
        title,
        Line(f"{cost}{gain}", bold=f"{best.name}: {counted(best.users, 'user')} {AT_CONFIDENCE}"),
        *trace_lines(best),
        Line(answer.serve_line),
        *_left_alone(answer),
        *([Line(PRECISION_REMARK)] if any(name in best.choice for name in FORMATS) else []),
    ]


def _left_alone(answer: OptimizeResult) -> list[Line]:
    """What was searched, and is best left as it is."""
    same = [axis.name for axis in answer.compared.axes if axis.name not in answer.best.choice]
    if not same:
        return []
    are = "stays as it is: no value that was" if len(same) == 1 else "stay as they are: no values that were"
    return [Line(f"{joined(same)} {are} tried clearly gain{'s' * (len(same) == 1)} 2 %")]


def body(answer: OptimizeResult) -> list[Block]:
    table = table_of(FRONTIER, answer.frontier)
    frontier: list[Block] = [table, Line(FRONTIER_MEANING, dim=True), Line()] if table.rows else []
    values = [replace(each, dim=True) for each in _settings(answer)] if answer.best is not answer.base else []
    close = [each for each in answer.compared.layouts if answer.gain_is_close(each)]
    remarks = [
        Line(
            f"{each.name}: {each.about}{each.users:,} users are not clearly 2 % more than the best's "
            f"{answer.best.users:,} ({ratio_text(each.users_over(answer.best))}); the best changes fewer settings"
        )
        for each in close
    ]
    return [
        *frontier,
        *compare.layouts_blocks(answer.compared),
        *remarks,
        *values,
        *[Line(KEPT_SIMPLE, dim=True)] * bool(close),
    ]


def details(answer: OptimizeResult) -> dict[str, object]:
    bars = layout_bars(answer.compared.layouts, answer.best, by_cost=False)
    return study_json(answer, answer.study) | {"layouts": bars}
