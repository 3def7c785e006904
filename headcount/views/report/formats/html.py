"""One page that opens offline."""

import json
import re
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from headcount.views.report.charts.chart import Chart
from headcount.views.report.charts.draw import draw, headroom
from headcount.views.report.document import Report
from headcount.views.report.parts import Command, File, Folded, Part, Table, Text

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def missing() -> str:
    """What has to be installed first; nothing where all is there."""
    return "" if find_spec("jinja2") else "an HTML report needs jinja2; install headcount[report]"


def made(report: Report) -> str:
    """The whole document; everything that comes from the answer is escaped."""
    return page(report, is_printed=False)


def page(report: Report, *, is_printed: bool) -> str:
    """The document; where it is printed, every section is open and no script is in it."""
    return (
        environment()
        .get_template("document.html")
        .render(
            report=report,
            first=report.summary,
            kind=report.answer["report"]["kind"],
            date=report.answer["report"]["date"],
            headroom=headroom(report.summary["headroom"]),
            data=_script_json(report.answer),
            is_printed=is_printed,
        )
    )


def _script_json(answer: object) -> str:
    """JSON that cannot end the script element that it stands in."""
    text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@lru_cache(maxsize=1)
def environment() -> "Environment":
    """Of the templates; what they show is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  an optional extra

    found = Environment(
        loader=PackageLoader("headcount.views.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"spaced": spaced, "template": template_of, "is_chart": lambda part: isinstance(part, Chart)}
    found.globals |= {"draw": draw}
    return found


_FLAG = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
_UNITS = re.compile(r"(?<=\d) (?=(?:s|ms|GiB|GPUs?|users?)\b)|(?<=\d) (?=×)|(?<=×) ")
_TEMPLATES: dict[type[Part], str] = {
    Text: "text.html", Table: "table.html", Command: "command.html", File: "file.html", Folded: "folded.html",
}  # fmt: skip


def template_of(part: Part) -> str:
    """The template that shows a part."""
    return "chart.html" if isinstance(part, Chart) else _TEMPLATES[type(part)]


def spaced(text: str) -> "Markup":
    """Escaped; `95 %`, `1 s` and `--users` without a break of the line, however the percentage was written."""
    from markupsafe import Markup, escape  # noqa: PLC0415  an optional extra

    together = _UNITS.sub("\u00a0", re.sub(r"(?<=\d) ?%", "\u00a0%", str(escape(text))))
    return Markup(_FLAG.sub(r'<span class="flag">\g<0></span>', together))
