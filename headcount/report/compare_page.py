"""Layouts side by side as one HTML page."""

from pathlib import Path

from matplotlib.figure import Figure

from boundary.names import shortened
from boundary.outputs import write_whole
from headcount.answers.varied.attribution import Change, ratio_text
from headcount.answers.varied.compare import CompareAnswer
from headcount.answers.varied.layout import Layout
from headcount.report.charts import FIRST, INK, MUTED, chart, thousands
from headcount.report.html import figure, figures, join, page, paragraph, render_template, table
from headcount.report.sections import notes, rerun

MOST_BARS = 24
BAR_HEIGHT = 16  # SVG units
LONGEST_NAME = 48  # characters beside a bar; the table has all


def write(path: Path, answer: CompareAnswer) -> None:
    """Write the page. The file appears whole or not at all."""
    best = answer.best
    made = page(
        "varied.html",
        [
            ("answer", "Answer", answer_section(answer)),
            ("gain", "What gains", gain_section(answer)),
            (notes.TITLE.lower(), notes.TITLE, notes.render(answer)),
            ("rerun", rerun.TITLE, rerun.rendered(answer.asked, answer.seed)),
        ],
        title=f"{answer.model}: {len(answer.layouts)} layouts",
        kind="comparison",
        asked=f"Which layout serves {answer.model} best?",
        setting=f"Workload {answer.workload}: {answer.slo}" + (f". Best: {best.name}" if best else ""),
    )
    write_whole(path, made)


def answer_section(answer: CompareAnswer) -> str:
    """Bars, the table, why some serve nobody."""
    served = [layout for layout in answer.layouts if layout.users][:MOST_BARS]
    lost = [(layout.name, layout.reason) for layout in answer.layouts if layout.reason]
    drawn = [figures(_bars(answer, served))] if served else []
    shown = table(
        answer.columns, answer.cells(), caption="Layouts, the best first", layout="numbers last-is-text named bold-3"
    )
    told = [render_template("reasons.html", reasons=lost)] if lost else []
    return join(*drawn, shown, *told, *map(paragraph, answer.legend))


def _bars(answer: CompareAnswer, served: list[Layout]) -> str:
    by_cost = answer.by_cost and all(layout.usd_per_user_month is not None for layout in served)
    values = [(layout.usd_per_user_month or 0.0) if by_cost else float(layout.users) for layout in served]
    what = "$ per user and month" if by_cost else "users to sign"
    svg = chart(
        lambda drawn: _draw(drawn, served, values, what),
        name="layouts",
        alt=f"{what} of each layout: "
        + ", ".join(f"{each.name} {value:,.4g}" for each, value in zip(served, values, strict=True)),
        height=60 + BAR_HEIGHT * len(served),
    )
    shown = f"${values[0]:,.2f} per user and month" if by_cost else f"{values[0]:,.0f} {what}"
    return figure(f"{served[0].name}: {shown}", svg, "Pale bars are estimates: those layouts were only screened.")


def _draw(drawn: Figure, served: list[Layout], values: list[float], what: str) -> None:
    axes = drawn.subplots()
    places = list(range(len(served)))[::-1]
    for place, layout, value in zip(places, served, values, strict=True):
        axes.barh(place, value, color=FIRST if layout.row else MUTED, alpha=1.0 if layout.row else 0.4, height=0.7)
    axes.set_yticks(places, [shortened(layout.name, LONGEST_NAME) for layout in served], color=INK)
    axes.set_xlabel(what)
    thousands(axes.xaxis)


def gain_section(answer: CompareAnswer) -> str:
    """What each change from the base to the best does."""
    found = answer.attribution
    if found is None:
        return ""
    said = (
        f"From the base to the best {found.of} change by {ratio_text(found.whole)}, with the 95 % interval in brackets."
    )
    columns = ("change", "on top of those above", "alone")
    rows = [
        (change.what, _ratio(change), _ratio(alone)) for change, alone in zip(found.chain, found.alone, strict=True)
    ]
    return join(paragraph(said), table(columns, rows, caption=f"What each change does to {found.of}"))


def _ratio(change: Change) -> str:
    return ratio_text(change.ratio)
