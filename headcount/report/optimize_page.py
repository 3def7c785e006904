"""The best arguments, the frontier of users and latency, and every choice that was simulated, as one HTML page."""

from pathlib import Path

from matplotlib.figure import Figure

from boundary.outputs import write_whole
from headcount.answers.varied.layout import Layout
from headcount.answers.varied.optimize import FRONTIER_COLUMNS, OptimizeAnswer, frontier_cells
from headcount.report.charts import FIRST, INK, MUTED, chart, thousands
from headcount.report.compare_page import answer_section, gain_section
from headcount.report.html import figure, figures, join, page, paragraph, table
from headcount.report.sections import notes, rerun


def write(path: Path, answer: OptimizeAnswer) -> None:
    """Write the page. The file appears whole or not at all."""
    said = [str(block) for block in answer.head()[1:]]
    made = page(
        "varied.html",
        [
            ("best", "Answer", join(*map(paragraph, said))),
            ("frontier", "Frontier", _frontier(answer)),
            ("layouts", "Choices that were simulated", answer_section(answer.compared)),
            ("gain", "What gains", gain_section(answer.compared)),
            (notes.TITLE.lower(), notes.TITLE, notes.render(answer)),
            ("rerun", rerun.TITLE, rerun.rendered(answer.asked, answer.compared.seed)),
        ],
        title=f"{answer.compared.model}: best arguments",
        kind="search",
        asked=f"Which arguments serve {answer.compared.model} best?",
        setting=f"Workload {answer.compared.workload}: {answer.compared.slo}",
    )
    write_whole(path, made)


def _frontier(answer: OptimizeAnswer) -> str:
    served = [layout for layout in answer.compared.layouts if layout.row and layout.row.users]
    if not served:
        return ""
    shown = table(FRONTIER_COLUMNS, [frontier_cells(layout) for layout in answer.frontier], caption="The frontier")
    cases = "; ".join(f"{each.name}: {each.users:,} users, {_ms(each):,.1f} ms" for each in answer.frontier)
    svg = chart(lambda drawn: _draw(drawn, answer, served), name="frontier", alt=f"TPOT p95 of {cases}.", height=260)
    note = "Dark points are on the frontier: no other serves more users, with less TTFT and with less TPOT."
    return join(figures(figure("Users to sign beside TPOT", svg, note)), shown)


def _draw(drawn: Figure, answer: OptimizeAnswer, served: list[Layout]) -> None:
    axes = drawn.subplots()
    for layout in served:
        is_best = layout in answer.frontier
        axes.plot(layout.users, _ms(layout), "o", color=FIRST if is_best else MUTED, alpha=1.0 if is_best else 0.5)
    axes.annotate("best", (answer.best.users, _ms(answer.best)), xytext=(6, 4), textcoords="offset points", color=INK)
    axes.set_xlabel("users to sign")
    axes.set_ylabel("TPOT p95, ms")
    thousands(axes.xaxis)


def _ms(layout: Layout) -> float:
    return 1000 * (layout.p95_s("tpot_s") or 0.0)
