"""Every table of the report, one below the other, each under its section's title."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from typing import Final

from headcount.views.report.charts.chart import Chart
from headcount.views.report.document import Report
from headcount.views.report.parts import Folded, Part, Table

_NUMBER: Final = re.compile(r"[+-][\d.,\s]*\d(?:\s?[%A-Za-z]*)")


def missing() -> str:
    """Nothing is needed."""
    return ""


def made(report: Report) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([_safe(cell) for cell in row] for row in _rows(report))
    return out.getvalue()


def _rows(report: Report) -> Iterator[Sequence[object]]:
    first = report.summary
    yield from (("question", first["question"]), ("answer", first["answer"]), *first["figures"])
    if options := first["options"]:
        yield from ((), ("summary", options["title"]), options["columns"], *options["rows"])
    for section in report.shown:
        for title, columns, rows in (found for part in section.parts for found in _tables(part)):
            yield from ((), (section.title, title), columns, *rows)


def _safe(cell: object) -> str:
    """A spreadsheet takes a cell that begins so to be a formula, which an apostrophe keeps it from."""
    text = str(cell)
    is_formula = text.lstrip().startswith(("=", "+", "-", "@")) or text.startswith(("\t", "\r"))
    return f"'{text}" if is_formula and not _NUMBER.fullmatch(text) else text


def _tables(part: Part) -> list[tuple[str, list[str], list[list[str]]]]:
    if isinstance(part, Table):
        return [(part.title, list(part.columns), [list(row) for row in part.rows])]
    if isinstance(part, Chart):
        columns, rows = part.table()
        return [(part.title, list(columns), [list(row) for row in rows])]
    return [found for each in part.parts for found in _tables(each)] if isinstance(part, Folded) else []
