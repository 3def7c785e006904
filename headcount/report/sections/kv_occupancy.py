"""How full the KV cache is over time."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headcount.answers.capacity import CapacityAnswer, Served
from headcount.report.charts import FIRST, MAX_POINTS, MUTED, SECOND, SHADE, chart, thousands
from headcount.report.html import figure, figures
from headcount.text.units import counted

if TYPE_CHECKING:
    from simulator.study.replication import Timeline

TITLE = "KV cache and queue over time"
ORDER = 40
HEIGHT = 330  # SVG units, two panels


def render(answer: CapacityAnswer) -> str:
    largest = answer.largest
    return "" if largest is None else figures(_figure(largest))


def _figure(served: Served) -> str:
    point = served.point
    used, running, waiting = (point.mean(name) for name in ("kv_usage", "running", "waiting"))
    queue = "almost nobody waits" if waiting < max(0.01 * running, 0.5) else f"{waiting:,.1f} requests wait on average"
    one = point.replications[0]
    peak = float(one.timeline.kv_usage.max()) if len(one.timeline.kv_usage) else 0.0
    alt = (
        f"KV use and requests over {one.horizon_s:,.0f} s on {served.deployment}: {used:.0%} of blocks used on "
        f"average, {running:,.1f} requests running, {waiting:,.1f} waiting."
    )
    svg = chart(lambda drawn: _draw(drawn, served), name="kv-over-time", alt=alt, height=HEIGHT)
    note = (
        f"One replication of {served.deployment} at {counted(served.row.users, 'user')}, all replicas together; "
        f"its highest use is {peak:.0%}. Blocks kept for prefix reuse count as free. Over all replications: "
        f"{running:,.1f} running, {waiting:,.1f} waiting, "
        f"{point.mean('prefix_hit_rate'):.0%} of prompt tokens found in the cache, "
        f"{1000 * point.mean('preemptions_per_request'):.3g} preemptions per 1,000 requests. "
        "Shaded: warm-up, left out of every figure."
    )
    return figure(f"The KV cache is {used:.0%} full on average; {queue}", svg, note)


def _draw(drawn: Figure, served: Served) -> None:
    one = served.point.replications[0]
    unit_s, unit = (60.0, "min") if one.horizon_s > 600 else (1.0, "s")
    upper, lower = drawn.subplots(2, 1, sharex=True)
    shown = slice(None, None, -(-len(one.timeline.time_s) // MAX_POINTS) or 1)  # every k-th point
    time = one.timeline.time_s[shown] / unit_s
    upper.plot(time, one.timeline.kv_usage[shown], color=FIRST, linewidth=1.2)
    upper.set_ylim(0, 1.02)
    upper.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    upper.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    upper.set_ylabel("KV blocks used")
    _draw_requests(lower, one.timeline, shown, unit_s)
    for axes in (upper, lower):
        axes.axvspan(0, one.warmup_s / unit_s, color=SHADE, linewidth=0, zorder=0)
        axes.set_xlim(0, one.horizon_s / unit_s)
    if one.warmup_s > 0.15 * one.horizon_s:
        upper.text(one.warmup_s / unit_s / 2, 0.94, "warm-up", ha="center", va="top", color=MUTED)
    lower.set_xlabel(f"simulated time ({unit})")


def _draw_requests(axes: Axes, timeline: "Timeline", shown: slice, unit_s: float) -> None:
    time = timeline.time_s[shown] / unit_s
    axes.plot(time, timeline.running[shown], color=FIRST, linewidth=1.2, label="running")
    axes.plot(time, timeline.waiting[shown], color=SECOND, linewidth=1.2, label="waiting")
    highest = float(np.max([timeline.running.max(initial=1), timeline.waiting.max(initial=1)]))
    axes.set_ylim(0, 1.35 * highest)
    axes.legend(loc="upper right", ncols=2, borderaxespad=0.1)
    thousands(axes.yaxis)
    axes.set_ylabel("requests")
