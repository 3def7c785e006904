"""Where a step's time goes."""

from matplotlib.figure import Figure

from headcount.answers.capacity import CapacityAnswer, Served
from headcount.answers.capacity_text import row_layout
from headcount.report.charts import FIRST, INK, chart
from headcount.report.html import figure, figures, join, table
from headcount.text.units import counted

TITLE = "Where a step's time goes"
ORDER = 60
NOTHING = 0.0005  # shares below it are not drawn


def render(answer: CapacityAnswer) -> str:
    largest = answer.largest
    if largest is None or not largest.row.step_causes:
        return ""
    return join(figures(_figure(largest)), _table(answer.served))


def _figure(served: Served) -> str:
    causes = _sorted(served)
    said = ", ".join(f"{name} {share:.0%}" for name, share in causes)
    svg = chart(lambda drawn: _draw(drawn, causes), name="step-time", alt=f"Shares of step time: {said}.", height=230)
    note = (
        f"The mean step of {served.deployment} at {counted(served.row.users, 'user')}. What takes the most time is "
        "where a faster part helps most."
    )
    return figure(f"{causes[0][1]:.0%} of step time goes to {causes[0][0]}", svg, note)


def _sorted(served: Served) -> list[tuple[str, float]]:
    return sorted((served.row.step_causes or {}).items(), key=lambda item: -item[1])


def _draw(drawn: Figure, causes: list[tuple[str, float]]) -> None:
    axes = drawn.subplots()
    shown = [(name, share) for name, share in causes if share > NOTHING]
    axes.barh(range(len(shown)), [share for _, share in shown], height=0.66, color=FIRST)
    for place, (_, share) in enumerate(shown):
        axes.annotate(
            f"{100 * share:.1f} %", (share, place), xytext=(4, 0), textcoords="offset points", va="center", color=INK
        )
    axes.set_yticks(range(len(shown)), [name for name, _ in shown])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, 1.25 * shown[0][1])
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
    axes.set_xlabel("share of step time")


def _table(served: tuple[Served, ...]) -> str:
    names = [name for name, _ in _sorted(served[-1])]
    rows = [
        (s.row.gpus, row_layout(s.row), *(f"{(s.row.step_causes or {}).get(name, 0.0):.1%}" for name in names))
        for s in served
    ]
    return table(("GPUs", "layout", *names), rows, caption="Shares of step time, by GPU count")
