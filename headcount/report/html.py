"""HTML from templates, everything escaped that is not HTML already."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

LONGEST_TITLE = 46  # characters of a drawing's title in large type
PIXELS_PER_UNIT = 2  # of a drawing: twice the inline charts' size, since nothing else is on the page


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("headcount.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render_template(name: str, **values: Any) -> str:
    """A file of `headcount/report/templates`, filled in. What it returns counts as HTML in other templates."""
    return Markup(_environment().get_template(name).render(**values))


def page(name: str, sections: Sequence[tuple[str, str, str]] = (), **values: Any) -> str:
    """A whole document, dated today; `sections` have a name, a title and a body, without which they are left out."""
    shown = [section for section in sections if section[2]]
    return render_template(name, written=f"{datetime.now(UTC):%Y-%m-%d}", sections=shown, **values)


def drawing(svg: str, title: str, setting: str) -> str:
    """A chart as a file of its own, in colours that follow the reader's light or dark mode."""
    found = re.match(r'<svg viewBox="([\d.]+) ([\d.]+) ([\d.]+) ([\d.]+)" (.*?)>(.*)</svg>$', svg, re.DOTALL)
    assert found is not None, "a chart begins with its viewBox"
    return render_template(
        "drawing.svg",
        title=title,
        title_size=13 if len(title) <= LONGEST_TITLE else 10,
        setting=setting,
        label=Markup(found[5]),
        body=Markup(found[6]),
        width=float(found[3]),
        height=float(found[4]),
        scale=PIXELS_PER_UNIT,
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, caption: str, layout: str = "numbers") -> str:
    """A table whose rows begin with their names; `layout` is the class that `style.css` knows: `numbers` or `text`."""
    cells = [[spaced(str(cell)) for cell in row] for row in rows]
    return render_template("table.html", columns=columns, rows=cells, caption=caption, layout=layout)


def figure(title: str, svg: str, note: str) -> str:
    """A chart under the sentence that it shows, with a note on how to read it."""
    return render_template("figure.html", title=spaced(title), svg=svg, note=spaced(note))


def figures(*items: str) -> str:
    """Charts side by side where there is room."""
    return render_template("figures.html", items=items)


def join(*parts: str) -> str:
    """HTML parts, one after the other."""
    return Markup("\n").join(parts)


def paragraph(text: str) -> str:
    return render_template("paragraph.html", text=spaced(text))


def spaced(text: str) -> str:
    """`95 %` with a space at which no line breaks, however it was written."""
    return re.sub(r"(?<=\d) ?%", "\u00a0%", text)
