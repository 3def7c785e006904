"""Charts as inline SVG that follows the page's colours."""

import io
import re
from collections.abc import Callable
from pathlib import Path
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

_STYLE = Path(__file__).with_name("charts.mplstyle")


def chart(draw: Callable[[Figure], None], *, name: str, alt: str, height: float = 260) -> str:
    """What `draw` draws, as inline SVG named `name`; `alt` tells those who cannot see it what it shows."""
    with mpl.rc_context(fname=_STYLE):
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


def limit_line(axes: Axes, value: float, label: str, *, vertical: bool) -> None:
    """A dashed line with its meaning beside it."""
    style: Any = {"color": LIMIT, "linestyle": (0, (4, 3)), "linewidth": 1.5}
    text: Any = {"color": LIMIT, "textcoords": "offset points"}
    if vertical:
        axes.axvline(value, **style)
        axes.annotate(label, (value, 0.03), xycoords=("data", "axes fraction"), xytext=(5, 0), va="bottom", **text)
    else:
        axes.axhline(value, **style)
        axes.annotate(label, (1, value), xycoords=("axes fraction", "data"), xytext=(4, 0), va="center", **text)


def thousands(axis: Axis) -> None:
    """Tick labels such as 12,000."""
    axis.set_major_formatter(lambda value, _: f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}")
