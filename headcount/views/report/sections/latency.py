"""How long requests take at half of the load, at the load and beyond it."""

from collections.abc import Iterator, Mapping

from files.documents import ReadJson
from headcount.text.units import milliseconds, percent, seconds
from headcount.views.report.charts.chart import TEXTS, Limit, Lines, Series
from headcount.views.report.parts import Part, Table

TITLE = "Latency"
ORDER = 35
SHOWN_BY = "headcount simulate, capacity or plan"
TOLD = (50, 95, 99)


def parts(answer: ReadJson) -> Iterator[Part]:
    report = answer["report"]
    loads = report.get("loads") or []
    for name in ("ttft_s", "tpot_s"):
        if any(load[name] for load in loads):
            yield _distribution(report, name)
    if loads:
        yield _table(report)


def _distribution(report: ReadJson, name: str) -> Lines:
    shares = [value / 100 for value in report["percentiles"]]
    spoken, limit_s = name[:4].upper(), report["slo"].get(name)
    series = [
        Series(_load_name(load), [max(value, 1e-4) for value in load[name]], shares)
        for load in report["loads"]
        if load[name]
    ]
    limit = [] if limit_s is None else [Limit(limit_s, f"limit {TEXTS['time'](limit_s)}", is_vertical=True)]
    return Lines(
        title=f"{spoken}: share of requests at or below each time",
        note="After the warm-up, including queueing. The time axis is logarithmic.",
        x_name=spoken,
        y_name="requests",
        x_text="time",
        y_text="percent",
        is_log=True,
        series=series,
        limits=limit,
    )


def _load_name(load: Mapping[str, object]) -> str:
    return "this load" if load["share"] is None else f"{load['share']:.0%} of the load"


def _table(report: ReadJson) -> Table:
    at = {value: report["percentiles"].index(value) for value in TOLD}
    columns = ["load", "users", "within the SLO", *(f"TTFT p{q}" for q in TOLD), *(f"TPOT p{q}" for q in TOLD)]
    rows = [
        [
            _load_name(load),
            "–" if load["users"] is None else f"{load['users']:,.0f}",
            "–" if load["attainment"] is None else percent(load["attainment"]),
            *(seconds(load["ttft_s"][at[q]] if load["ttft_s"] else None) for q in TOLD),
            *(milliseconds(load["tpot_s"][at[q]] if load["tpot_s"] else None) for q in TOLD),
        ]
        for load in report["loads"]
    ]
    return Table(title="Latency at each load", columns=columns, rows=rows)
