"""What each assumption does to the users."""

from collections.abc import Iterator

from files.documents import ReadJson
from headcount.views.report.charts.chart import Bar, Bars
from headcount.views.report.parts import Part, Table

TITLE = "Sensitivity analysis"
ORDER = 70
SHOWN_BY = "headcount whatif --tornado"


def parts(answer: ReadJson) -> Iterator[Part]:
    report = answer["report"]
    swings = report.get("tornado")
    if not swings:
        return
    swing = report["swing"]
    bars = [
        Bar(f"{each['name']} {sign}{swing:.0%}", each[side] - 1, f"{each[side] - 1:+.0%}", kind)
        for each in swings
        for side, sign, kind in (("less", "−", "plain"), ("more", "+", "marked"))
    ]
    how = "simulated" if report.get("is_tornado_simulated") else "estimated; headcount whatif --tornado simulates them"
    yield Bars(
        title=f"What matters most: {swings[0]['name']}",
        note=f"Users served when one assumption is {swing:.0%} less or more and the others stay the same ({how}).",
        axis_name="change of users",
        text="change",
        bars=bars,
        columns=("assumption", "change of users"),
    )
    rows = [
        (each["name"], each.get("value", ""), f"{each['less'] - 1:+.0%}", f"{each['more'] - 1:+.0%}") for each in swings
    ]
    columns = ("assumption", "as assumed", f"users with {swing:.0%} less", f"users with {swing:.0%} more")
    yield Table(title="Sensitivity by assumption", columns=columns, rows=rows, text_columns=(0, 1))
