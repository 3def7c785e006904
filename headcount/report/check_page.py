"""Measured runs beside simulated ones as one HTML page or SVG drawing."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from boundary.outputs import write_whole
from calibrate.check.runs import Checked
from headcount.answers.check import CheckAnswer, error_text
from headcount.report.charts import FIRST, LIMIT, MUTED, SECOND, chart
from headcount.report.html import figure, figures, join, render_template, table
from headcount.report.sections import notes

COLOURS = {
    "ink": "#1a1a1a",
    "muted": "#666",
    "grid": "#ddd",
    "first": "#0b62a4",
    "second": "#b35900",
    "limit": "#a4260b",
    "shade": "#eee",
}  # fmt: skip  of a drawing on its own
NAMES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "itl_s": "ITL", "e2e_s": "E2E"}
MAX_STEPS = 400  # of a distribution's line


def write(path: Path, answer: CheckAnswer) -> None:
    """The page, or its first chart alone. The file appears whole or not at all."""
    is_page = path.suffix.lower() == ".html"
    write_whole(path, check_page(answer) if is_page else standalone(_means_chart(answer.checked)))


def check_page(answer: CheckAnswer) -> str:
    """The whole HTML document."""
    checked, plan = answer.checked, answer.first.deployment
    charts = [figure("Each run's latencies, simulated against measured", _means_chart(checked), _reading(checked))]
    for number, item in enumerate(checked[:6]):
        charts += [
            figure(
                f"{NAMES[name]} of {item.name}",
                _distribution(item, name, number),
                "Share of requests at or below each latency.",
            )
            for name in item.samples
        ]
    sections = [
        {"title": "Simulated against measured", "name": "means", "body": figures(*charts)},
        {"title": notes.TITLE, "name": "notes", "body": notes.render(answer)},
        {"title": "Every figure", "name": "every-figure", "body": join(*(_figures_table(item) for item in checked))},
    ]
    return render_template(
        "check.html",
        model=plan.architecture.name,
        gpu=plan.gpu.name,
        workload=f"{len(checked)} measured runs",
        vllm_version=plan.args.vllm_version,
        written=f"{datetime.now(UTC):%Y-%m-%d}",
        sections=[section for section in sections if section["body"]],
    )


def standalone(svg: str) -> str:
    """A chart as a file of its own: with its namespace, and colours in place of the page's."""
    text = re.sub(r"var\(--(\w+)\)", lambda found: COLOURS[found[1]], str(svg))
    head = '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="11" '
    return text.replace("<svg ", head, 1) + "\n"


def _reading(checked: Sequence[Checked]) -> str:
    overloaded = sum(item.is_overloaded for item in checked)
    note = "On the line, simulated and measured are equal."
    return note + (f" {overloaded} overloaded runs are hollow and excluded from averages." if overloaded else "")


def _means_chart(checked: Sequence[Checked]) -> str:
    pairs = [
        (place, row.measured, row.simulated, item.is_overloaded)
        for item in checked
        for place, name in enumerate(("ttft_s", "tpot_s", "e2e_s"))
        if (row := item.row(f"{name}.mean")) is not None
    ]
    alt = f"Mean TTFT, TPOT, E2E of {len(checked)} runs, simulated against measured, both on logarithmic axes."
    return chart(lambda drawn: _draw_means(drawn, pairs), name="means", alt=alt)


def _draw_means(drawn: Figure, pairs: list[tuple[int, float, float, bool]]) -> None:
    axes = drawn.subplots()
    for place, (name, colour, marker) in enumerate((("TTFT", FIRST, "o"), ("TPOT", SECOND, "s"), ("E2E", LIMIT, "^"))):
        own = [pair for pair in pairs if pair[0] == place]
        for hollow in (False, True):
            chosen = [pair for pair in own if pair[3] is hollow]
            axes.plot(
                [pair[1] for pair in chosen], [pair[2] for pair in chosen], marker, color=colour, markersize=5,
                fillstyle="none" if hollow else "full", label=name if not hollow and chosen else None,
            )  # fmt: skip
    ends = (
        [min(min(pair[1:3]) for pair in pairs) / 1.5, max(max(pair[1:3]) for pair in pairs) * 1.5] if pairs else [1, 2]
    )
    axes.plot(ends, ends, color=MUTED, linewidth=1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("measured, s")
    axes.set_ylabel("simulated, s")
    if any(not pair[3] for pair in pairs):
        axes.legend()


def _distribution(item: Checked, name: str, number: int) -> str:
    measured, simulated = item.samples[name]
    alt = f"Distribution of {NAMES[name]} over the requests of {item.name}, measured and simulated."

    def draw(drawn: Figure) -> None:
        axes = drawn.subplots()
        shares = np.linspace(0, 100, MAX_STEPS)
        for values, colour, label in ((measured, FIRST, "measured"), (simulated, SECOND, "simulated")):
            axes.plot(np.percentile(values, shares), shares / 100, color=colour, label=label)
        axes.set_xlabel(f"{NAMES[name]}, s")
        axes.set_ylim(0, 1)
        axes.legend(loc="lower right")

    return chart(draw, name=f"{name.replace('_', '-')}-{number}", alt=alt)


def _figures_table(item: Checked) -> str:
    rows: list[Sequence[Any]] = [
        (row.name, f"{row.measured:.4g}", f"{row.simulated:.4g}", error_text(row)) for row in item.rows
    ]
    reasons = f"; overloaded: {'; '.join(item.measured_overload)}" if item.is_overloaded else ""
    return table(("figure", "measured", "simulated", "error"), rows, caption=f"{item.name}{reasons}")
