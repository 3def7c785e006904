"""The first chart alone, as a drawing whose colours follow the reader's light or dark mode."""

import re

from boundary.files import InputError
from headcount.report.charts.draw import draw
from headcount.report.document import Report
from headcount.report.formats.html import environment, missing

__all__ = ["made", "missing"]


def made(report: Report) -> str:
    """Raises InputError where the answer has no chart."""
    if not report.charts:
        raise InputError("this answer has no chart; write .html, .md, .pdf, .csv or .json")
    drawn = draw(report.charts[0])
    found = re.match(
        r'<svg viewBox="0 0 (\S+) (\S+)" role="img" aria-label="([^"]*)"[^>]*>(.*)</svg>$', drawn, re.DOTALL
    )
    assert found is not None, "a chart begins with its viewBox"
    values = {"width": float(found[1]), "height": float(found[2]), "told": found[3], "body": found[4]}
    return environment().get_template("drawing.svg").render(title=report.charts[0].title, **values)
