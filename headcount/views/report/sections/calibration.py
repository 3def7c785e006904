"""How far simulated times are from measured ones."""

from collections.abc import Iterator

from files.documents import ReadJson
from headcount.text.words import sentence
from headcount.views.report.charts.chart import Bar, Bars, Lines, Series
from headcount.views.report.parts import Part, Table, Text

TITLE = "Calibration"
ORDER = 75
SHOWN_BY = "headcount calibrate check"
_ENDS = (
    ("users_at_step_time_error_high", "slower steps"), ("users_at_ttft_error_high", "longer TTFT"),
    ("users_at_kv_cache_low", "fewest KV blocks"), ("users", "as simulated"),
    ("users_at_kv_cache_high", "most KV blocks"), ("users_at_ttft_error_low", "shorter TTFT"),
    ("users_at_step_time_error_low", "faster steps"),
)  # fmt: skip


def parts(answer: ReadJson) -> Iterator[Part]:
    report = answer["report"]
    if report.get("measured"):
        yield from _scatter(report["measured"])
    if report.get("step_time_error"):
        yield Text(text=f"{sentence(report['step_time_error'])}.")
    ends = report.get("ends")
    if ends and ends["users_at_step_time_error_high"] is not None:
        known = [(said, ends[name]) for name, said in _ENDS if ends[name] is not None]
        yield Bars(
            title=f"90 % interval: {ends['users_low']:,} to {ends['users_high']:,} users",
            note="Users at the ends of each error. To narrow the interval, measure "
            "your server: headcount calibrate record, fit and check.",
            axis_name="users",
            bars=[
                Bar(said, users, f"{users:,}", "marked" if said == "as simulated" else "plain") for said, users in known
            ],
        )


def _scatter(found: ReadJson) -> Iterator[Part]:
    series = [
        Series(each["name"], each["measured_s"], each["simulated_s"], has_line=False, has_points=True)
        for each in found["latencies"]
    ]
    if series:
        yield Lines(
            title="Mean latencies by run, simulated and measured",
            note="On the line both are equal. Both axes are logarithmic. Overloaded runs are left out.",
            x_name="measured", y_name="simulated", x_text="time", y_text="time", series=series, is_equal=True,
        )  # fmt: skip
    if found["rows"]:
        columns = ("run", "latency", "measured", "simulated", "error")
        yield Table(title="Each run", columns=columns, rows=found["rows"], text_columns=(0, 1))
    for each in found["distributions"]:
        shares = [value / 100 for value in found["percentiles"]]
        yield Lines(
            title=f"{each['latency']} of {each['run']}", x_name=each["latency"], y_name="requests", x_text="time",
            y_text="percent", note="Share of requests at or below each time.", is_log=True,
            series=[Series(name, [max(value, 1e-5) for value in each[f"{name}_s"]], shares)
                    for name in ("measured", "simulated")],
        )  # fmt: skip
