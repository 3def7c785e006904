"""KV cache, running and waiting requests, preemptions over time."""

from collections.abc import Iterator

from files.documents import ReadJson
from headcount.text.units import counted
from headcount.views.report.charts.chart import Lines, Series
from headcount.views.report.parts import Part, Text

TITLE = "KV cache and queue over time"
ORDER = 40
SHOWN_BY = "headcount simulate, capacity or plan"


def parts(answer: ReadJson) -> Iterator[Part]:
    report = answer["report"]
    line = report.get("timeline")
    if not line or not line["time_s"]:
        return
    times, warmup = [value / 60 for value in line["time_s"]], (0.0, line["warmup_s"] / 60, "warm-up")
    shaded = warmup if line["warmup_s"] else None
    live, cached = line["kv_usage"], line["kv_cached"]
    free = [round(max(1 - one - other, 0.0), 9) for one, other in zip(live, cached, strict=True)]
    shares = (("live", live), ("cached", cached), ("free", free))
    measured = [place for place, time_s in enumerate(line["time_s"]) if time_s >= line["warmup_s"]]
    yield Lines(
        title=f"At the peak, {max((live[place] for place in measured), default=0.0):.0%} of the KV cache is in use",
        note="Shares of the KV cache. Live: used by running requests. Cached: free, but kept for prefix reuse until "
        "needed. Shaded: the warm-up, which no figure includes.",
        x_name="minutes of simulated time", y_name="KV cache", y_text="percent",
        series=[Series(name, times, values) for name, values in shares], shaded=shaded,
    )  # fmt: skip
    requests = [Series(name, times, line[name]) for name in ("running", "waiting")]
    most = max((line["waiting"][place] for place in measured), default=0.0)
    yield Lines(
        title=f"At most {counted(round(most), 'request')} at once in the queue" if most else "No request waits",
        note=f"One replication of {report['fleet']}, all servers together.",
        x_name="minutes of simulated time", y_name="requests",
        series=requests, shaded=shaded,
    )  # fmt: skip
    preempted = "retractions" if answer.get("engine") == "sglang" else "preemptions"
    if line["preemptions"][-1]:
        yield Lines(
            title=f"{line['preemptions'][-1]:,.0f} {preempted} since the start",
            x_name="minutes of simulated time", y_name=preempted,
            series=[Series(preempted, times, line["preemptions"], is_step=True)], shaded=shaded,
        )  # fmt: skip
    for load in report.get("loads") or []:
        if load["share"] in (None, 1.0):
            yield Text(text=_means(load, preempted))


def _means(load: ReadJson, preempted: str) -> str:
    host = load.get("host_hit_rate")
    offloaded = "" if host is None else f" of the GPU and {host:.0%} in the offloaded KV cache"
    return (
        f"On average: {load['running']:,.1f} running, {load['waiting']:,.1f} waiting, {load['kv_usage']:.0%} of the KV "
        f"cache used, {load['prefix_hit_rate']:.0%} of prompt tokens found in the cache{offloaded}, "
        f"{1000 * load['preemptions_per_request']:.3g} {preempted} per 1,000 requests."
    )
