"""What is in a workload: when requests arrive, how long they are, what a prefix cache finds."""

from collections.abc import Iterator

from files.documents import ReadJson
from headcount.views.report.charts.chart import Lines, Series
from headcount.views.report.parts import Part, Text

TITLE = "The workload"
ORDER = 80
SHOWN_BY = "headcount workload describe"


def parts(answer: ReadJson) -> Iterator[Part]:
    report = answer["report"]
    if report.get("workload"):
        yield Text(text=report["workload"])
    found = report.get("traffic") or {}
    if found.get("rate"):
        rate = found["rate"]
        minutes = [value / 60 for value in rate["time_s"]]
        yield Lines(
            title="When requests arrive",
            note=rate["note"],
            x_name="minutes from the first request",
            y_name="requests/s",
            series=[Series("requests/s", minutes, rate["per_s"], is_step=True)],
        )
    if found.get("lengths"):
        lengths = found["lengths"]
        shares = [value / 100 for value in lengths["percentiles"]]
        yield Lines(
            title="How long prompts and answers are", note="Share of requests up to each length.", x_name="tokens",
            y_name="requests", y_text="percent", is_log=True,
            series=[Series(name, [max(value, 1) for value in lengths[name]], shares) for name in ("prompt", "answer")],
        )  # fmt: skip
    if found.get("reuse"):
        reuse = found["reuse"]
        yield Lines(
            title="What a prefix cache would find",
            note="One cache, requests one after the other; a server's cache also holds what is being answered.",
            x_name="KV cache, tokens", y_name="prompt blocks found", y_text="percent", is_log=True,
            series=[Series("found", reuse["tokens"], reuse["hit_rate"])],
        )  # fmt: skip
