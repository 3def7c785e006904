"""What else was compared, and what it costs."""

from collections.abc import Iterator

from files.documents import ReadJson
from headcount.views.report.charts.chart import Bar, Bars
from headcount.views.report.parts import Part, Table, Text

TITLE = "Layouts compared"
ORDER = 55
SHOWN_BY = "headcount plan or compare"
MOST = 24


def parts(answer: ReadJson) -> Iterator[Part]:
    found = answer["report"].get("layouts")
    if not found:
        return
    if len(found["bars"]) > 1:
        yield Bars(
            title=found["title"],
            note="The marked bar is the best. Pale bars are estimates; those layouts were not simulated.",
            axis_name=found["axis"],
            text=found["text"],
            bars=[Bar(each["name"], each["value"], each["label"], each["kind"]) for each in found["bars"][:MOST]],
            columns=("layout", found["axis"]),
        )
    if found["rows"]:
        yield Table(
            title="Every layout", columns=found["columns"], rows=found["rows"], text_columns=found["text_columns"]
        )
    if found["said"]:
        yield Text(items=found["said"])
