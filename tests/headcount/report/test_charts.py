"""Charts of a report, as SVG and as tables."""

import re

import pytest

from headcount.views.report.charts.chart import Bar, Bars, Grid, Limit, Lines, Series
from headcount.views.report.charts.draw import draw

CHARTS = {
    "lines": Lines(
        title="t", x_name="x", y_name="y", series=[Series(name="a", x=[1, 2], y=[3, 4], low=[2, 3], high=[4, 5])],
        limits=[Limit(value=3.5, label="limit"), Limit(value=1.5, label="here", is_vertical=True)],
    ),
    "one point": Lines(title="t", x_name="x", y_name="y", series=[Series(name="a", x=[1], y=[0])], is_log=True),
    "nothing": Lines(title="t", x_name="x", y_name="y", series=[Series(name="a", x=[], y=[])]),
    "equal": Lines(
        title="t", x_name="x", y_name="y", is_equal=True,
        series=[Series(name="a", x=[0.1, 2], y=[0.2, 1], has_line=False, has_points=True)],
    ),
    "bars": Bars(title="t", axis_name="x", bars=[Bar(name="a", begin=0, end=-2, label="-2"),
                                                 Bar(name="b" * 60, begin=0, end=3, label="3")]),
    "no bars": Bars(title="t", axis_name="x", bars=[]),
    "zero": Bars(title="t", axis_name="x", bars=[Bar(name="a", begin=0, end=0, label="0")]),
    "grid": Grid(title="t", corner="c", columns=["1", "2"], rows=[("r", [1.0, None])]),
}  # fmt: skip


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_stays_on_its_paper_and_says_its_figures(name: str) -> None:
    drawn = draw(CHARTS[name])
    width, height = map(float, re.search(r'viewBox="0 0 (\S+) (\S+)"', drawn).groups())  # type: ignore[union-attr]
    for axis, most in (("x", width), ("y", height), ("cx", width), ("cy", height), ("x2", width), ("y2", height)):
        assert all(-20 <= float(value) <= most + 20 for value in re.findall(rf' {axis}="([^"]+)"', drawn))
    assert "nan" not in drawn
    columns, rows = CHARTS[name].table()
    assert all(len(row) == len(columns) for row in rows)


def test_labels_of_upright_lines_near_each_other_stand_above_each_other() -> None:
    limits = [
        Limit(value=value, label=label, is_vertical=True) for value, label in ((50, "low"), (51, "mean"), (99, "far"))
    ]
    drawn = draw(
        Lines(title="t", x_name="x", y_name="y", series=[Series(name="a", x=[0, 100], y=[0, 1])], limits=limits)
    )
    heights = {label: float(y) for y, label in re.findall(r'<text[^>]* y="([^"]+)"[^>]*>(low|mean|far)<', drawn)}
    assert heights["mean"] < heights["low"] - 10
    assert heights["far"] == heights["low"]
