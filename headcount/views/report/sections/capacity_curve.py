"""How the share of requests within the SLO falls with users."""

from collections.abc import Iterator

from files.documents import ReadJson
from headcount.text.units import percent
from headcount.text.words import BEST
from headcount.views.report.charts.chart import Limit, Lines, Series
from headcount.views.report.parts import Part

TITLE = "Capacity"
ORDER = 30
SHOWN_BY = "headcount capacity"
SHOWN = (0.6, 1.3)  # times the capacity: farther loads would stretch the axis
LINES = (("users_low_sampling", "noise, low"), ("users", BEST), ("users_high_sampling", "noise, high"))
BELOW = 0.02  # the lowest mean: there the band ends, which few replications make wide


def parts(answer: ReadJson) -> Iterator[Part]:
    report = answer["report"]
    if not report.get("curve"):
        return
    ends, target = report["ends"], report["slo"]["attainment"]
    near = [each for each in report["curve"] if SHOWN[0] <= each["users"] / ends["users"] <= SHOWN[1]]
    curve = near if len(near) > 1 else report["curve"]
    users, mean, low, high = ([each[name] for each in curve] for name in ("users", "mean", "low", "high"))
    floor = max(min(target, *mean) - BELOW, 0.0)
    growing = sum(each["queue_grows"] for each in curve)
    note = (
        f"{report['fleet']}. Each point is a simulated load; all loads use the same random numbers. The band is the "
        "95 % interval of attainment. Vertical lines: the expected users, at which the mean attainment meets the "
        "target, with the 95 % interval of simulation noise only. Users at 95 % confidence also cover the errors of "
        "step times and TTFT."
    )
    note += f" At {growing} of the loads the waiting queue keeps growing; these do not count as served." * bool(growing)
    yield Lines(
        title=f"{percent(target)} of requests meet the SLO up to {ends['users']:,} users",
        note=note,
        x_name="users",
        y_name="requests within the SLO",
        y_text="percent",
        from_zero=False,
        series=[Series("attainment", users, mean, [max(each, floor) for each in low], high, has_points=True)],
        limits=[
            Limit(target, f"target {percent(target)}"),
            *(Limit(ends[name], said, is_vertical=True) for name, said in LINES),
        ],
    )
