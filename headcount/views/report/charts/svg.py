"""Pieces of SVG as text, everything escaped; classes get their colours from the page's palette."""

from collections.abc import Sequence
from html import escape
from typing import Final

WIDTH: Final = 460  # SVG units, about pixels on a phone
MARKS: Final = ("circle", "square", "triangle", "diamond")


def svg(body: str, *, height: float, told: str) -> str:
    """The whole drawing; `told` is for those who cannot see it."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(told)}" preserveAspectRatio="xMinYMin">'
        f"{body}</svg>"
    )


def text(x: float, y: float, said: str, *, anchor: str = "start", of: str = "") -> str:
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{where} class="{of}">{escape(said)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, *, of: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{of}"/>'


def rect(
    x: float, y: float, width: float, height: float, *, of: str, tip: str = "", opacity: float | None = None
) -> str:
    """A box; the pointer over it shows the tip."""
    said = f"<title>{escape(tip)}</title>" if tip else ""
    pale = "" if opacity is None else f' fill-opacity="{opacity:.2f}"'
    size = f'width="{max(width, 0):.1f}" height="{height:.1f}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size} class="{of}"{pale}>{said}</rect>'


def path(points: Sequence[tuple[float, float]], of: str, *, is_closed: bool = False) -> str:
    if not points:
        return ""
    places = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{places}{"Z" if is_closed else ""}" class="{of}"/>'


def mark(x: float, y: float, place: int, tip: str = "") -> str:
    """A series' own mark, told apart by its shape too."""
    said = f"<title>{escape(tip)}</title>" if tip else ""
    shape = MARKS[place % len(MARKS)]
    of = f'class="mark tone-{place % 4}"'
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" {of}>{said}</circle>'
    shapes: dict[str, list[tuple[float, float]]] = {
        "square": [(-3.6, -3.6), (3.6, -3.6), (3.6, 3.6), (-3.6, 3.6)],
        "triangle": [(0, -4.6), (4.4, 3.4), (-4.4, 3.4)],
        "diamond": [(0, -5), (5, 0), (0, 5), (-5, 0)],
    }
    places = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in shapes[shape])
    return f'<polygon points="{places}" {of}>{said}</polygon>'


def hit(x: float, y: float, tip: str) -> str:
    """A place that shows a figure under the pointer."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" class="hit"><title>{escape(tip)}</title></circle>'
