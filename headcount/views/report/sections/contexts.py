"""GPUs by users and length of context."""

from collections.abc import Iterator

from files.documents import ReadJson
from headcount.views.report.charts.chart import Grid
from headcount.views.report.parts import Part

TITLE = "Context and users"
ORDER = 60
SHOWN_BY = "headcount whatif --vary context=x1,x2,x4"


def parts(answer: ReadJson) -> Iterator[Part]:
    report = answer["report"]
    found, grid = report.get("contexts"), report.get("grid")
    if grid:
        yield Grid(
            title=grid["title"], note="The darker a cell, the larger its figure.", corner="what if",
            columns=grid["columns"], rows=[(row["name"], row["values"]) for row in grid["rows"]],
        )  # fmt: skip
    if found:
        yield Grid(
            title="GPUs by users and length of context",
            note="Estimated in whole servers, in proportion to the users at 95 % confidence, without spare servers. "
            "headcount whatif simulates them. ×2: prompt and answer have twice the tokens on average.",
            corner="context",
            columns=[f"{users:,}" for users in found["users"]],
            rows=[(f"context ×{row['factor']:g}", row["gpus"]) for row in found["rows"]],
            x_name="users",
        )
