"""How users grow with GPUs, how attainment falls with users."""

from typing import TYPE_CHECKING

from headcount.report.charts import FIRST, INK, MUTED, SECOND, chart, from_zero, limit_line
from headcount.report.findings import Findings, Served, gpus_text, users_text
from headcount.report.html import figure, figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Capacity"
ORDER = 20


def render(findings: Findings) -> str:
    largest = findings.largest
    if largest is None:
        return ""
    return figures(_users_figure(findings.served), _attainment_figure(findings, largest))


def _users_figure(served: tuple[Served, ...]) -> str:
    first, last = served[0].row, served[-1].row
    title = f"{gpus_text(last.gpus)} serve {last.users_low:,} to {last.users_high:,} users"
    if last.gpus > first.gpus:
        title = (
            f"{last.gpus / first.gpus:.3g} × the GPUs serve {last.users / first.users:.3g} × the users "
            f"({gpus_text(first.gpus)} → {gpus_text(last.gpus)})"
        )
    said = ", ".join(f"{gpus_text(s.row.gpus)}: {s.row.users_low:,} to {s.row.users_high:,}" for s in served)
    svg = chart(
        lambda drawn: _draw_users(drawn, served), name="users-over-gpus", alt=f"Users over GPU count. {said}."
    )
    note = "Line: mean. Band: low to high, the 95 % interval over replications. Labels: the number to sign (low)."
    return figure(title, svg, note)


def _draw_users(drawn: "Figure", served: tuple[Served, ...]) -> None:
    axes = drawn.subplots()
    gpus = [s.row.gpus for s in served]
    low, mean, high = ([getattr(s.row, name) for s in served] for name in ("users_low", "users", "users_high"))
    if len(served) > 1:
        axes.fill_between(gpus, low, high, color=FIRST, alpha=0.22, linewidth=0)
        axes.plot(gpus, mean, color=FIRST)
    axes.vlines(gpus, low, high, color=FIRST, linewidth=5, alpha=0.45)
    axes.plot(gpus, mean, "o", color=FIRST, markersize=5)
    axes.plot(gpus, low, "_", color=INK, markersize=12, markeredgewidth=2)
    for s in served:
        axes.annotate(f"{s.row.users_low:,}", (s.row.gpus, s.row.users_low), xytext=(5, -5),
                      textcoords="offset points", va="top", color=INK)  # fmt: skip
    from_zero(axes, room=1.15)
    axes.set_xticks(gpus)
    axes.set_xlabel("GPUs")
    axes.set_ylabel("users")
    _thousands(axes)


def _attainment_figure(findings: Findings, largest: Served) -> str:
    row, slo = largest.row, findings.question.slo
    title = f"On {gpus_text(row.gpus)}, {slo.attainment:.4g} of requests meet the SLO up to {users_text(row.users)}"
    title = title.replace(f"{slo.attainment:.4g} of", f"{100 * slo.attainment:.4g} % of")
    alt = f"Attainment over users on {gpus_text(row.gpus)}, target {100 * slo.attainment:.4g} %. " + "; ".join(
        f"{users:,.0f} users: {point.attainment.mean:.1%}" for users, point in _curve(largest)
    )
    svg = chart(
        lambda drawn: _draw_attainment(drawn, largest, slo.attainment), name="attainment-over-users", alt=alt
    )
    note = (
        f"Points: loads simulated with {findings.question.replications} replications or more, all with the same random "
        "numbers. Bars: 95 % interval of attainment. A cross: the queue grows without end, so the load is refused "
        "whatever its attainment."
    )
    return figure(title, svg, note)


def _curve(served: Served) -> list[tuple[float, "object"]]:
    return list(zip(served.row.curve_users, served.row.curve, strict=True))
