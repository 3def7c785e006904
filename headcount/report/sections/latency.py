"""How long requests take at that load, beside the limits."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from numpy.typing import NDArray

from headcount.answers.capacity import CapacityAnswer, Served
from headcount.report.charts import FIRST, INK, MAX_POINTS, chart, limit_line
from headcount.report.html import figure, figures
from headcount.text.units import counted, milliseconds, seconds

TITLE = "Latency"
ORDER = 30
FARTHEST = 99.9  # percentile at the right edge
MARKED = (50, 95, 99)
STEPS = ((1, 2, 5), (1, 3), (1,))  # ticks of a decade of a logarithmic axis
MOST_TICKS = 6  # labels that fit side by side
BESIDE = {99: ((6, -3), "left", "top")}  # where its label stands: above, to the left, unless told here
ABOVE = ((-6, 2), "right", "bottom")


@dataclass(frozen=True)
class _Latency:
    """One latency of all requests at the mean number of users."""

    name: str
    times_s: NDArray[np.float64]
    limit_s: float | None
    within: float  # share of requests
    text: Callable[[float | None], str]
    log_scale: bool


def render(answer: CapacityAnswer) -> str:
    largest = answer.largest
    if largest is None:
        return ""
    slo, point = answer.question.slo, largest.point
    ttft = _Latency("TTFT", _times(largest, "ttft_s"), slo.ttft_s, 1 - point.mean("ttft_misses"), seconds, True)
    tpot = _Latency("TPOT", _times(largest, "tpot_s"), slo.tpot_s, 1 - point.mean("tpot_misses"), milliseconds, False)
    return figures(*(_figure(largest, latency) for latency in (ttft, tpot) if len(latency.times_s)))


def _times(served: Served, name: str) -> NDArray[np.float64]:
    times_s = served.point.times(name)
    return times_s[np.isfinite(times_s)]


def _figure(served: Served, latency: _Latency) -> str:
    marks = [(q, latency.text(float(np.percentile(latency.times_s, q)))) for q in MARKED]
    title = f"Half of all requests have a {latency.name} of {marks[0][1]} or less"
    if latency.limit_s is not None:
        title = f"{latency.within:.1%} of requests have a {latency.name} within {_axis_text(latency.limit_s)}"
    said = ", ".join(f"p{q} {value}" for q, value in marks)
    svg = chart(
        lambda drawn: _draw(drawn, latency),
        name=f"{latency.name.lower()}-distribution",
        alt=f"Cumulative distribution of {latency.name} on {served.deployment}: {said}.",
    )
    note = f"{served.deployment} at {counted(served.row.users, 'user')}: {len(latency.times_s):,} requests; {said}."
    return figure(title, svg, note + _caution(latency))


def _caution(latency: _Latency) -> str:
    if latency.name == "TPOT":
        return " Answers of one token have no TPOT."
    return " Queueing included. The time axis is logarithmic."


def _draw(drawn: Figure, latency: _Latency) -> None:
    axes = drawn.subplots()
    shares = np.linspace(0, FARTHEST, MAX_POINTS // 2)
    axes.plot(np.percentile(latency.times_s, shares), shares / 100, color=FIRST)
    for q in MARKED:
        value = float(np.percentile(latency.times_s, q))
        axes.plot([value], [q / 100], "o", color=FIRST, markersize=5)
        apart, ha, va = BESIDE.get(q, ABOVE)
        axes.annotate(f"p{q}", (value, q / 100), xytext=apart, textcoords="offset points", ha=ha, va=va, color=INK)
    _scale(axes, latency)
    if latency.limit_s is not None:
        limit_line(axes, latency.limit_s, f"limit {_axis_text(latency.limit_s)}", vertical=True)
    axes.set_ylim(0, 1.06)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axes.set_ylabel("requests")
    axes.set_xlabel(latency.name)


def _scale(axes: Axes, latency: _Latency) -> None:
    farthest = max(float(np.percentile(latency.times_s, FARTHEST)), 1.25 * (latency.limit_s or 0.0))
    if latency.log_scale:
        nearest = max(float(latency.times_s.min()), farthest / 1e4)
        axes.set_xscale("log")
        axes.set_xlim(nearest * 0.9, farthest * 1.1)
        begins, ends = axes.get_xlim()
        axes.xaxis.set_major_locator(LogLocator(subs=_log_steps(begins, ends), numticks=8))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(0, farthest)
    axes.xaxis.set_major_formatter(lambda value, _: _axis_text(value))


def _log_steps(begins: float, ends: float) -> tuple[int, ...]:
    """Ticks of each decade, as many as leave room for labels such as 500 ms."""
    return next((steps for steps in STEPS if math.log10(ends / begins) * len(steps) <= MOST_TICKS), STEPS[-1])


def _axis_text(value_s: float) -> str:
    return f"{value_s:g} s" if value_s >= 1 else f"{1e3 * value_s:.4g} ms"
