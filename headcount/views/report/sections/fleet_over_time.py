"""Replicas, attainment and load of a fleet that changes."""

from collections.abc import Iterator

from files.documents import ReadJson
from headcount.text.units import percent
from headcount.views.report.charts.chart import Limit, Lines, Series
from headcount.views.report.parts import Part

TITLE = "The fleet over time"
ORDER = 15
MOST_FLEETS, MOST_REPLICAS = 3, 8  # that one chart shows apart: fleets beside the fixed one, replicas
SHOWN_BY = "headcount simulate --autoscaler NAME, --daily-profile day or --event crash@10min"


def parts(answer: ReadJson) -> Iterator[Part]:
    report = answer["report"]
    lines = report.get("fleets_over_time")
    if not lines:
        return
    first, drawn = lines[0], [*lines[:-1][:MOST_FLEETS], lines[-1]]
    replicas = first["in_flight"][:MOST_REPLICAS]
    unit, x_name = (3600.0, "hours") if answer["duration_s"] > 7200 else (60.0, "minutes")
    x = [time_s / unit for time_s in first["time_s"]]
    events = [Limit(time_s / unit, "event", is_vertical=True) for time_s in report["events_s"]]
    yield Lines(
        title=f"{answer['fleets'][0]['replicas_mean']:.2f} replicas on average, "
        f"at most {answer['fleets'][0]['replicas_max']}",
        note="Replicas whose GPUs are billed: those that start, are ready or drain.",
        x_name=x_name, y_name="replicas", limits=events,
        series=[Series(line["name"], x, line["held"], is_step=True) for line in drawn],
    )  # fmt: skip
    # where nothing arrives, nothing misses
    attained = [[1.0 if share is None else share for share in line["attained"]] for line in drawn]
    target = Limit(report["target_attainment"], "target")
    yield Lines(
        title=f"{percent(round(answer['fleets'][0]['attainment'], 4))} of all requests meet the SLO",
        note="Share of the requests that arrive in an interval. Lost and unanswered requests count as misses.",
        x_name=x_name, y_name="attainment", y_text="percent", limits=[target, *events], from_zero=False,
        series=[Series(line["name"], x, shares) for line, shares in zip(drawn, attained, strict=True)],
    )  # fmt: skip
    yield Lines(
        title=f"Requests in each replica, {first['name']}",
        note="Sent there and not answered, those that wait too.",
        x_name=x_name, y_name="requests", limits=events,
        series=[Series(f"replica {number}", x, values) for number, values in enumerate(replicas)],
    )  # fmt: skip
