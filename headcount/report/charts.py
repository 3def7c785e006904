"""Charts as inline SVG that follows the page's colours."""

import io
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

# Stand-ins that become CSS variables, so that one SVG serves light, dark and print.
INK, MUTED, GRID, FIRST, SECOND, LIMIT, SHADE, PAGE = (f"#0{n}0{n}0{n}" for n in range(1, 9))
_VARIABLES = {
    INK: "--ink", MUTED: "--muted", GRID: "--grid", FIRST: "--first", SECOND: "--second", LIMIT: "--limit",
    SHADE: "--shade", PAGE: "--page",
}  # fmt: skip

WIDTH = 420  # SVG units: at 400 px on the screen, one unit is about one pixel
POINTS_PER_INCH = 72
MAX_POINTS = 500  # of a line: more cannot be seen at this width

_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "headcount",
    "font.size": 11,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 11,
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "figure.facecolor": "none",
    "legend.frameon": False,
    "lines.linewidth": 2,
    "path.simplify": True,
}


def chart(draw: Callable[[Figure], None], *, name: str, alt: str, height: float = 260) -> str:
    """What `draw` draws, as inline SVG named `name`; `alt` tells those who cannot see it what it shows."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH / POINTS_PER_INCH, height / POINTS_PER_INCH), layout="constrained")
        draw(figure)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return Markup(_inline(text.getvalue(), name, str(escape(alt))))


def _inline(svg: str, name: str, alt: str) -> str:
    """The <svg> element alone: no namespaces, no metadata, no styles that leak, ids that no other chart has."""
    found = re.search(r'<svg[^>]*viewBox="([^"]*)"[^>]*>(.*)</svg>', svg, re.DOTALL)
    assert found is not None, "matplotlib wrote no svg element"
    body = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<!--.*?-->", "", found[2], flags=re.DOTALL)
    body = body.replace("xlink:href=", "href=")
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', body))
    body = re.sub(r' id="([^"]+)"', lambda match: f' id="{name}-{match[1]}"' if match[1] in used else "", body)
    body = re.sub(r'(href="#|url\(#)', rf"\1{name}-", body)
    body = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", body)  # the page's own font
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, f"var({variable})")
    return f'<svg viewBox="{found[1]}" role="img" aria-label="{alt}">{body.strip()}</svg>'


def thinned(count: int) -> slice:
    """Every k-th of so many points, so that at most MAX_POINTS remain."""
    return slice(None, None, max(math.ceil(count / MAX_POINTS), 1))


def from_zero(axes: Axes, *, x: bool = True, y: bool = True, room: float = 1.12) -> None:
    """Axes that begin at 0, with room for labels at the far end."""
    if x:
        axes.set_xlim(0, axes.dataLim.x1 * room)
    if y:
        axes.set_ylim(0, axes.dataLim.y1 * room)


def limit_line(axes: Axes, value: float, label: str, *, vertical: bool) -> None:
    """A dashed line with its meaning beside it."""
    dashes = (0, (4, 3))
    if vertical:
        axes.axvline(value, color=LIMIT, linestyle=dashes, linewidth=1.5)
        axes.annotate(
            label, (value, 0.03), xycoords=("data", "axes fraction"), xytext=(5, 0), textcoords="offset points",
            color=LIMIT, va="bottom",
        )  # fmt: skip
    else:
        axes.axhline(value, color=LIMIT, linestyle=dashes, linewidth=1.5)
        axes.annotate(
            label, (1, value), xycoords=("axes fraction", "data"), xytext=(4, 0), textcoords="offset points",
            color=LIMIT, va="center",
        )  # fmt: skip


def thousands(axis: Axis) -> None:
    """Tick labels such as 12,000."""
    axis.set_major_formatter(lambda value, _: f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}")


def panels(figure: Figure, count: int) -> Iterator[Axes]:
    """Axes one above the other, sharing time."""
    axes = figure.subplots(count, 1, sharex=True, squeeze=False)
    return iter(axes[:, 0])
