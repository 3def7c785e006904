"""Measured runs beside simulated ones as one HTML page or SVG drawing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from boundary.outputs import write_whole
from calibrate.check.runs import Checked
from headcount.answers.check import CheckAnswer, error_text
from headcount.report.charts import FIRST, LIMIT, MUTED, SECOND, chart
from headcount.report.html import drawing, figure, figures, join, page, paragraph, table
from headcount.report.sections import notes
from headcount.text.diagnosis import diagnosis_lines

NAMES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "itl_s": "ITL", "e2e_s": "E2E"}
MAX_STEPS = 400  # of a distribution's line


def write(path: Path, answer: CheckAnswer) -> None:
    """The page, or its first chart alone. The file appears whole or not at all."""
    plan, count = answer.first.deployment, f"{len(answer.checked)} measured runs"
    model, gpu, release = plan.architecture.name, plan.gpu.name, plan.args.vllm_version
    if path.suffix.lower() == ".html":
        made = page("check.html", _sections(answer), model=model, gpu=gpu, workload=count, vllm_version=release)
    else:
        made = drawing(_means_chart(answer.checked), f"{model} on {gpu}", f"simulated against measured: {count}")
    write_whole(path, made)


def _sections(answer: CheckAnswer) -> list[tuple[str, str, str]]:
    checked = answer.checked
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
    verdict = join(*map(paragraph, diagnosis_lines(answer.diagnosis)))
    return [
        *([("verdict", "As fast as it should be?", verdict)] if verdict else []),
        ("means", "Simulated against measured", figures(*charts)),
        ("notes", notes.TITLE, notes.render(answer)),
        ("every-figure", "Every figure", join(*(_figures_table(item) for item in checked))),
    ]


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
