"""What keeps the deployment from serving more users, load by load, and suggestions."""

from collections.abc import Iterator

from files.documents import ReadJson
from headcount.text.units import percent
from headcount.text.words import SAFE
from headcount.views.report.charts.chart import Bar, Bars
from headcount.views.report.parts import Part, Table, Text

TITLE = "Bottleneck and suggestions"
ORDER = 45
SHOWN_BY = "headcount capacity --suggest"
LEAST = 0.0005  # of a step: less is not drawn
_WHY = (
    "The bottleneck is the limit that requests miss first, with the resource that causes it. TTFT misses come from "
    "steps with prefill and from waiting; TPOT misses come from long steps. If both limits are close, a small change "
    "of the load or of the GPU count moves the first miss from one to the other, so adjacent rows may differ."
)


def parts(answer: ReadJson) -> Iterator[Part]:
    report = answer["report"]
    loads = [load for load in report.get("loads") or [] if load.get("binding")]
    if not loads and not report.get("binding"):
        return
    if report.get("binding"):
        yield Text(text=f"Bottleneck just above the capacity of {report['fleet']}: {report['binding']}. {_WHY}")
    if loads:
        rows = [
            (f"{load['share']:.0%}", f"{load['users']:,.0f}", percent(load["attainment"]), load["binding"])
            for load in loads
        ]
        yield Table(
            title="Bottleneck by load", columns=("load", "users", "within the SLO", "bottleneck"), rows=rows,
            text_columns=(0, 3),
        )  # fmt: skip
    if report.get("step_causes"):
        yield _step(report)
    yield from _suggestions(answer)


def _step(report: ReadJson) -> Bars:
    causes = sorted(report["step_causes"].items(), key=lambda item: -item[1])
    bars = [Bar(name, share, f"{share:.1%}") for name, share in causes if share > LEAST]
    return Bars(
        title=f"{causes[0][1]:.0%} of a step's time goes to {causes[0][0]}",
        note="The mean step at the capacity.",
        axis_name="share of step time",
        bars=bars,
        text="percent",
        columns=("cause", "share"),
    )


def _suggestions(answer: ReadJson) -> Iterator[Part]:
    report = answer["report"]
    if report.get("suggestions"):
        columns = ("change", SAFE, "after the change", "expected users, with the 95 % interval", "note")
        suggestions = [
            [lift[name] for name in ("change", "before", "after", "ratio", "remark")] for lift in report["suggestions"]
        ]
        yield Table(title="Suggestions: one setting changed at a time, simulated", columns=columns, rows=suggestions,
                    text_columns=(0, 4))  # fmt: skip
        return
    estimated = sorted(report.get("estimated_suggestions") or [], key=lambda each: -each["ratio"])
    if estimated:
        rows = [(each["change"], f"{each['ratio'] - 1:+.0%}") for each in estimated]
        yield Table(
            title="Suggestions: one setting changed at a time, estimated (capacity --suggest simulates them)",
            columns=("change", "users"),
            rows=rows,
        )
