"""How users grow with GPUs, how attainment falls with users."""

from matplotlib.figure import Figure

from headcount.answers.capacity import CapacityAnswer, Served
from headcount.report.charts import FIRST, INK, MUTED, SECOND, chart, limit_line, thousands
from headcount.report.html import figure, figures
from headcount.text.units import counted, percent
from simulator.study.capacity import Point
from simulator.study.capacity_table import CapacityRow

TITLE = "Capacity"
ORDER = 20
MIN_SHOWN = 6  # replications: with fewer, a bar would span the chart
NEAR = 1.05  # times the capacity: loads beyond it are left off the curve


def render(answer: CapacityAnswer) -> str:
    largest = answer.largest
    if largest is None:
        return ""
    attainment = _attainment_figure(answer, largest)
    rows = sorted(answer.capacity, key=lambda row: row.gpus)
    return figures(_users_figure(rows), attainment) if len(rows) > 1 else figures(attainment)


def _users_figure(rows: list[CapacityRow]) -> str:
    said = ", ".join(f"{counted(row.gpus, 'GPU')}: {row.users_low:,} to {row.users_high:,}" for row in rows)
    svg = chart(lambda drawn: _draw_users(drawn, rows), name="users-over-gpus", alt=f"Users over GPU count. {said}.")
    note = (
        "Line: mean. Band: the 90 % interval, low to high. Labels: the number to sign (low). Only the marked GPU "
        "counts were simulated."
    )
    return figure(_growth(rows), svg, note)


def _growth(rows: list[CapacityRow]) -> str:
    """How users grow from the fewest GPUs that serve anybody to the most."""
    served = [row for row in rows if row.users]
    first, last = served[0], served[-1]
    if first.gpus == last.gpus:
        return f"Only {counted(last.gpus, 'GPU')} meet the SLO: {last.users_low:,} to {last.users_high:,} users"
    return (
        f"{last.gpus / first.gpus:.3g} × the GPUs serve {last.users / first.users:.3g} × the users "
        f"({counted(first.gpus, 'GPU')} → {counted(last.gpus, 'GPU')})"
    )


def _draw_users(drawn: Figure, rows: list[CapacityRow]) -> None:
    axes = drawn.subplots()
    served = [row for row in rows if row.users]
    gpus = [row.gpus for row in served]
    low, mean, high = ([getattr(row, name) for row in served] for name in ("users_low", "users", "users_high"))
    axes.fill_between(gpus, low, high, color=FIRST, alpha=0.22, linewidth=0)
    axes.plot(gpus, mean, color=FIRST)
    axes.vlines(gpus, low, high, color=FIRST, linewidth=5, alpha=0.45)
    axes.plot(gpus, mean, "o", color=FIRST, markersize=5)
    axes.plot(
        [row.gpus for row in rows], [row.users_low for row in rows], "_", color=INK, markersize=12, markeredgewidth=2
    )
    highest = max(high)
    for row in rows:
        below = row.users_low > 0.1 * highest  # else the axis is in the way
        axes.annotate(
            f"{row.users_low:,}", (row.gpus, row.users_low), xytext=(5, -5 if below else 4),
            textcoords="offset points", va="top" if below else "bottom", color=INK,
        )  # fmt: skip
    axes.set_xlim(0, 1.15 * axes.dataLim.x1)
    axes.set_ylim(0, 1.15 * axes.dataLim.y1)
    axes.set_xticks([row.gpus for row in rows])
    axes.set_xlabel("GPUs")
    axes.set_ylabel("users")
    thousands(axes.yaxis)


def _attainment_figure(answer: CapacityAnswer, largest: Served) -> str:
    row, target = largest.row, answer.question.slo.attainment
    curve = _curve(largest)
    said = "; ".join(f"{users:,.0f} users: {point.attainment.mean:.1%}" for users, point in curve)
    svg = chart(
        lambda drawn: _draw_attainment(drawn, largest, target),
        name="attainment-over-users",
        alt=f"Attainment over users on {largest.deployment}, target {percent(target)}. {said}.",
    )
    note = (
        f"{largest.deployment}. Each point is a load simulated {MIN_SHOWN} times or more, with random numbers common "
        "to all loads; bars: 95 % interval of attainment as simulated. Dotted: the capacity with its interval from "
        "simulation noise alone, estimated from all loads and corrected for the work that chance drew."
    )
    if any(point.queue_grows for _, point in curve):
        note += " A cross marks a load whose waiting queue keeps growing; it does not count as served."
    return figure(f"{percent(target)} of requests meet the SLO up to {counted(row.users, 'user')}", svg, note)


def _draw_attainment(drawn: Figure, served: Served, target: float) -> None:
    axes = drawn.subplots()
    row, curve = served.row, _curve(served)
    users = [size for size, _ in curve]
    reached = [point.attainment for _, point in curve]
    low, high = ([max(i.low, 0.0) for i in reached], [min(i.high, 1.0) for i in reached])
    means = [i.mean for i in reached]
    axes.fill_between(users, low, high, color=FIRST, alpha=0.22, linewidth=0)
    axes.plot(users, means, color=FIRST)
    axes.vlines(users, low, high, color=FIRST, linewidth=1.5)
    for grows, marker in ((False, "o"), (True, "X")):
        chosen = [n for n, (_, point) in enumerate(curve) if point.queue_grows == grows]
        colour = SECOND if grows else FIRST
        axes.plot([users[n] for n in chosen], [means[n] for n in chosen], marker, color=colour, markersize=6)
    low_size, high_size = row.users_low_sampling, row.users_high_sampling
    for size in (low_size, row.users, high_size):
        axes.axvline(size, color=MUTED, linestyle=":", linewidth=1.2)
    for size, name, side in ((low_size, "low ", "right"), (high_size, " high", "left")):
        axes.annotate(name, (size, 1.01), xycoords=("data", "axes fraction"), ha=side, color=MUTED)
    limit_line(axes, target, f"target\n{percent(target)}", vertical=False)
    axes.set_ylim(max(min(*low, target) - 0.01, 0), min(max(*high, target) + 0.01, 1.005))
    axes.set_xlabel("users")
    axes.set_ylabel("attainment")
    axes.yaxis.set_major_formatter(lambda value, _: percent(value))
    thousands(axes.xaxis)


def _curve(served: Served) -> list[tuple[float, Point]]:
    """Users, point: only those near the capacity, where the axis would otherwise be stretched."""
    pairs = list(zip(served.row.curve_users, served.row.curve, strict=True))
    least = min(MIN_SHOWN, max(len(point.replications) for _, point in pairs))
    return [
        (users, point)
        for users, point in pairs
        if users <= NEAR * max(served.row.users_high, 1) and len(point.replications) >= least
    ]
