"""A grid of what-ifs as one HTML page: heatmap, tornado, table."""

from itertools import product
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from boundary.outputs import write_whole
from headcount.answers.varied.attribution import ratio_text
from headcount.answers.varied.whatif import SWING, Swing, WhatifAnswer
from headcount.questions.variations import Axis, value_text
from headcount.report.charts import FIRST, INK, SECOND, chart
from headcount.report.html import figure, figures, join, page, paragraph, render_template, table
from headcount.report.sections import notes, rerun

ROW_HEIGHT = 26  # SVG units


def write(path: Path, answer: WhatifAnswer) -> None:
    """Write the page. The file appears whole or not at all."""
    names = ", ".join([*(axis.name for axis in answer.axes), *(["users"] if answer.users else [])]) or "assumptions"
    made = page(
        "varied.html",
        [
            ("answer", "Answer", _answer(answer)),
            ("tornado", "What each assumption does", _tornado(answer)),
            (notes.TITLE.lower(), notes.TITLE, notes.render(answer)),
            ("rerun", rerun.TITLE, rerun.rendered(answer.asked, answer.seed)),
        ],
        title=f"{answer.model}: what if",
        kind="what-if",
        asked=f"{answer.model}: what if {names} change?",
        setting=f"Workload {answer.workload}: {answer.slo}",
    )
    write_whole(path, made)


def _answer(answer: WhatifAnswer) -> str:
    lost = [(cell.name, cell.reason) for cell in answer.cells if cell.reason]
    drawn = [figures(_heatmap(answer))] if len(answer.cells) * max(len(answer.users), 1) > 1 else []
    told = [render_template("reasons.html", reasons=lost)] if lost else []
    shown = table(answer.columns, answer.table_rows(), caption="Every cell", layout="numbers named bold-3")
    return join(*drawn, shown, *told, *map(paragraph, answer.legend))


def grid(answer: WhatifAnswer) -> tuple[list[str], list[str], np.ndarray[tuple[int, int], np.dtype[np.float64]]]:
    """Names of rows and columns, and users to sign in each, or GPUs where users are asked for."""
    cells = np.array([cell.users for cell in answer.cells], float)
    if answer.users:
        needed = [[need.gpus if need.gpus is not None else np.nan for need in needs] for needs in answer.needs]
        return (
            [cell.name for cell in answer.cells],
            [f"{users:,} users" for users in answer.users],
            np.array(needed, float),
        )
    if not answer.axes:
        return ["as given"], [""], cells.reshape(1, 1)
    last = answer.axes[-1]
    names = [", ".join(each) for each in product(*(_names(axis) for axis in answer.axes[:-1]))]
    return names, _names(last), cells.reshape(-1, len(last.values))


def _names(axis: Axis) -> list[str]:
    return [value_text(axis.name, value) for value in axis.values]


def _heatmap(answer: WhatifAnswer) -> str:
    rows, columns, values = grid(answer)
    what = "GPUs" if answer.users else "users to sign"
    lines = (
        f"{row or 'all'}: {', '.join(f'{value:,.0f}' for value in line)}"
        for row, line in zip(rows, values, strict=True)
    )
    title = "GPUs that so many users need" if answer.users else "Users to sign"
    svg = chart(
        lambda drawn: _draw(drawn, rows, columns, values),
        name="grid",
        alt=f"{what}, columns {', '.join(columns)}. {'; '.join(lines)}.",
        height=70 + ROW_HEIGHT * len(rows),
    )
    return figure(title, svg, "The darker a cell, the larger its figure.")


def _draw(
    drawn: Figure, rows: list[str], columns: list[str], values: np.ndarray[tuple[int, int], np.dtype[np.float64]]
) -> None:
    axes = drawn.subplots()
    most = float(np.nanmax(values)) if np.isfinite(values).any() else 1.0
    for (row, column), value in np.ndenumerate(values):
        share = 0.0 if np.isnan(value) else value / (most or 1.0)
        axes.barh(row, 1, left=column - 0.5, height=1, color=FIRST, alpha=0.08 + 0.5 * share, linewidth=0)
        axes.text(column, row, "–" if np.isnan(value) else f"{value:,.0f}", ha="center", va="center", color=INK)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.grid(visible=False)


def _tornado(answer: WhatifAnswer) -> str:
    if not answer.swings:
        return ""
    swings = answer.swings
    svg = chart(
        lambda drawn: _draw_tornado(drawn, swings),
        name="tornado",
        alt="; ".join(f"{swing.name}: {', '.join(map(ratio_text, swing.effects))}" for swing in swings),
        height=60 + ROW_HEIGHT * len(swings),
    )
    note = f"Each assumption {SWING:.0%} less and {SWING:.0%} more, the others as they are. 0 is the base."
    rows = [(swing.name, *map(ratio_text, swing.effects)) for swing in swings]
    shown = table(("assumption", f"{SWING:.0%} less", f"{SWING:.0%} more"), rows, caption="Users beside the base")
    return join(figures(figure(f"The largest effect: {swings[0].name}", svg, note)), shown)


def _draw_tornado(drawn: Figure, swings: tuple[Swing, ...]) -> None:
    axes = drawn.subplots()
    for place, swing in enumerate(swings):
        for found, colour, label in zip(swing.effects, (FIRST, SECOND), ("less", "more"), strict=True):
            change = 100 * ((found.mean if found else 0.0) - 1)
            axes.barh(place, change, color=colour, height=0.7, label=f"{SWING:.0%} {label}" if not place else None)
    axes.set_yticks(range(len(swings)), [swing.name for swing in swings])
    axes.invert_yaxis()
    axes.set_xlabel("users, % beside the base")
    axes.legend()
