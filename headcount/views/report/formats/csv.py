"""Every table of the report, one below the other, each under its section's title."""

import csv
import io

from headcount.views.report.charts.chart import Chart
from headcount.views.report.document import Report
from headcount.views.report.parts import Folded, Part, Table


def missing() -> str:
    """Nothing is needed."""
    return ""


def made(report: Report) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    first = report.summary
    writer.writerows([["question", first["question"]], ["answer", first["answer"]], *first["figures"]])
    if options := first["options"]:
        writer.writerows([[], ["summary", options["title"]], options["columns"], *options["rows"]])
    for section in report.shown:
        for title, columns, rows in (found for part in section.parts for found in _tables(part)):
            writer.writerows([[], [section.title, title], columns, *rows])
    return out.getvalue()


def _tables(part: Part) -> list[tuple[str, list[str], list[list[str]]]]:
    if isinstance(part, Table):
        return [(part.title, list(part.columns), [list(row) for row in part.rows])]
    if isinstance(part, Chart):
        columns, rows = part.table()
        return [(part.title, list(columns), [list(row) for row in rows])]
    return [found for each in part.parts for found in _tables(each)] if isinstance(part, Folded) else []
