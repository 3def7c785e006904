"""GPUs by users, with the spare servers."""

from collections.abc import Iterator

from files.documents import ReadJson
from headcount.text.units import counted
from headcount.views.report.charts.chart import Limit, Lines, Series
from headcount.views.report.parts import Part

TITLE = "GPUs by users"
ORDER = 50
SHOWN_BY = "headcount plan or capacity"


def parts(answer: ReadJson) -> Iterator[Part]:
    found = answer["report"].get("staircase")
    if not found or len(found["steps"]) < 2:
        return
    steps = [step for step in found["steps"] if step["users"]]
    bought = next(step for step in steps if step["servers"] == found["bought"])
    spare = f", {counted(found['spare'], 'spare server')} included" if found["spare"] else ""
    needed = found["users_needed"]
    # each number of GPUs carries all users up to what it serves
    xs, ys = [0.0], [float(steps[0]["gpus"])]
    server = steps[1]["gpus"] - steps[0]["gpus"] if len(steps) > 1 else steps[0]["gpus"]
    for step in steps:
        xs.append(float(step["users"]))
        ys.append(float(step["gpus"] + server))
    yield Lines(
        title=f"Up to {bought['users']:,} users on {counted(bought['gpus'], 'GPU')}{spare}",
        note="Users at 95 % confidence by number of GPUs, in whole servers and in proportion to what was simulated."
        + (" Spare servers are included in the GPUs, but serve no users." if found["spare"] else ""),
        x_name="users",
        y_name="GPUs",
        series=[Series(name="GPUs needed", x=xs, y=ys, is_step=True)],
        limits=[
            *([] if needed is None else [Limit(value=needed, label="users to serve", is_vertical=True)]),
            Limit(value=bought["gpus"], label="bought"),
        ],
    )
