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
    needed, gpus = found["users_needed"], [step["gpus"] for step in steps]
    wanted = [] if needed is None else [Limit(needed, "users to serve", is_vertical=True)]
    # each number of GPUs carries all users up to what it serves
    server = gpus[1] - gpus[0] if len(gpus) > 1 else gpus[0]
    xs = [0.0, *(float(step["users"]) for step in steps)]
    ys = [float(gpus[0]), *(float(each + server) for each in gpus)]
    yield Lines(
        title=f"Up to {bought['users']:,} users on {counted(bought['gpus'], 'GPU')}{spare}",
        note="Users at 95 % confidence by number of GPUs, in whole servers and in proportion to what was simulated."
        + (" Spare servers are included in the GPUs, but serve no users." if found["spare"] else ""),
        x_name="users",
        y_name="GPUs",
        series=[Series("GPUs needed", xs, ys, is_step=True)],
        limits=[*wanted, Limit(bought["gpus"], "bought")],
    )
