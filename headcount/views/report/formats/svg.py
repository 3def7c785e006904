"""The chart of the answer alone, as a drawing whose colours follow the reader's light or dark mode."""

import re

from files.reading import InputError
from headcount.views.report.charts.chart import Chart, Grid
from headcount.views.report.charts.draw import draw
from headcount.views.report.document import Report
from headcount.views.report.formats.html import environment, missing

__all__ = ["made", "missing"]

_ANSWERED_BY = {  # sections by the answer's kind; one bar alone answers nothing; else the first chart stands
    "plan": ("cost", "layouts", "staircase"),  # a cost chart beside an API alone
    "capacity": ("layouts", "capacity-curve"),
    "compare": ("layouts",),
    "optimize": ("layouts",),
    "simulation": ("latency",),
    "autoscaling": ("fleet-over-time",),
}


def made(report: Report) -> str:
    """Raises InputError where the answer has no chart."""
    if not report.charts:
        raise InputError("this answer has no chart; write .html, .md, .pdf, .csv or .json")
    chart = answering(report)
    drawn = draw(chart)
    found = re.match(
        r'<svg viewBox="0 0 (\S+) (\S+)" role="img" aria-label="([^"]*)"[^>]*>(.*)</svg>$', drawn, re.DOTALL
    )
    assert found is not None, "a chart begins with its viewBox"
    values = {"width": float(found[1]), "height": float(found[2]), "told": found[3], "body": found[4]}
    return environment().get_template("drawing.svg").render(title=chart.title, **values)


def answering(report: Report) -> Chart:
    """The chart that answers the question; a what-if has a grid or a tornado."""
    details = report.answer["report"]
    names = _ANSWERED_BY.get(details["kind"], ())
    if details["kind"] == "what-if":
        names = ("tornado",) if details.get("is_tornado_simulated") else ("contexts",)
    if details.get("suggestions"):
        names = ("binding",)
    charts = {section.name: [part for part in section.parts if isinstance(part, Chart)] for section in report.shown}
    found = [
        chart
        for name in names
        for chart in charts.get(name, ())
        if isinstance(chart, Grid) or len(chart.table()[1]) > 1
    ]
    return found[0] if found else report.charts[0]
