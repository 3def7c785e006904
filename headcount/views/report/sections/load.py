"""What the fleet does under load: how many users, how fast, what keeps it from more, what would change that."""

from collections.abc import Iterator, Mapping

from files.documents import ReadJson
from headcount.text.units import counted, milliseconds, percent, seconds
from headcount.text.words import BEST, SAFE
from headcount.views.report.charts.chart import TEXTS, Bar, Bars, Grid, Limit, Lines, Series
from headcount.views.report.parts import Part, Table, Text
from headcount.views.report.sections import section

MOST_FLEETS, MOST_REPLICAS = 3, 8  # that one chart shows apart: fleets beside the fixed one, replicas
NEAR = (0.6, 1.3)  # times the capacity: farther loads would stretch the axis
USERS_LINES = (("users_low_sampling", "noise, low"), ("users", BEST), ("users_high_sampling", "noise, high"))
BELOW_MEAN = 0.02  # the lowest mean: there the band ends, which few replications make wide
QUANTILES = (50, 95, 99)
LEAST_SHARE = 0.0005  # of a step: less is not drawn
_WHY = (
    "The bottleneck is the limit that requests miss first, with the resource that causes it. TTFT misses come from "
    "steps with prefill and from waiting; TPOT misses come from long steps, which the prompts of others may lengthen. "
    "If both limits are close, a small change of the load or of the GPU count moves the first miss from one to the "
    "other, so adjacent rows may differ."
)


@section("The fleet over time", 15, "headcount simulate --autoscaler NAME, --daily-profile day or --event crash@10min")
def fleet_over_time(answer: ReadJson) -> Iterator[Part]:
    """Replicas, attainment and load of a fleet that changes."""
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


@section("Capacity", 30, "headcount capacity")
def capacity_curve(answer: ReadJson) -> Iterator[Part]:
    """How the share of requests within the SLO falls with users."""
    report = answer["report"]
    if not report.get("curve"):
        return
    ends, target = report["ends"], report["slo"]["attainment"]
    near = [each for each in report["curve"] if NEAR[0] <= each["users"] / ends["users"] <= NEAR[1]]
    curve = near if len(near) > 1 else report["curve"]
    users, mean, low, high = ([each[name] for each in curve] for name in ("users", "mean", "low", "high"))
    floor = max(min(target, *mean) - BELOW_MEAN, 0.0)
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
            *(Limit(ends[name], said, is_vertical=True) for name, said in USERS_LINES),
        ],
    )


@section("Latency", 35, "headcount simulate, capacity or plan")
def latency(answer: ReadJson) -> Iterator[Part]:
    """How long requests take at half of the load, at the load and beyond it."""
    report = answer["report"]
    loads = report.get("loads") or []
    for name in ("ttft_s", "tpot_s"):
        if any(load[name] for load in loads):
            yield _distribution(report, name)
    if loads:
        yield _latency_table(report)


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


def _latency_table(report: ReadJson) -> Table:
    at = {value: report["percentiles"].index(value) for value in QUANTILES}
    latencies = [f"{latency} p{q}" for latency in ("TTFT", "TPOT") for q in QUANTILES]
    columns = ["load", "users", "within the SLO", *latencies]
    rows = [
        [
            _load_name(load),
            "–" if load["users"] is None else f"{load['users']:,.0f}",
            "–" if load["attainment"] is None else percent(load["attainment"]),
            *(seconds(load["ttft_s"][at[q]] if load["ttft_s"] else None) for q in QUANTILES),
            *(milliseconds(load["tpot_s"][at[q]] if load["tpot_s"] else None) for q in QUANTILES),
        ]
        for load in report["loads"]
    ]
    return Table(title="Latency at each load", columns=columns, rows=rows)


@section("KV cache and queue over time", 40, "headcount simulate, capacity or plan")
def over_time(answer: ReadJson) -> Iterator[Part]:
    """KV cache, running and waiting requests, preemptions over time."""
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
            yield Text(text=_load_means(load, preempted))


def _load_means(load: ReadJson, preempted: str) -> str:
    host = load.get("host_hit_rate")
    offloaded = "" if host is None else f" of the GPU and {host:.0%} in the offloaded KV cache"
    return (
        f"On average: {load['running']:,.1f} running, {load['waiting']:,.1f} waiting, {load['kv_usage']:.0%} of the KV "
        f"cache used, {load['prefix_hit_rate']:.0%} of prompt tokens found in the cache{offloaded}, "
        f"{1000 * load['preemptions_per_request']:.3g} {preempted} per 1,000 requests."
    )


@section("Bottleneck and suggestions", 45, "headcount capacity --suggest")
def bottleneck(answer: ReadJson) -> Iterator[Part]:
    """What keeps the deployment from serving more users, load by load, and suggestions."""
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
        yield _step_causes(report)
    yield from _suggestions(answer)


def _step_causes(report: ReadJson) -> Bars:
    causes = sorted(report["step_causes"].items(), key=lambda item: -item[1])
    bars = [Bar(name, share, f"{share:.1%}") for name, share in causes if share > LEAST_SHARE]
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
        columns = ("change", SAFE, "after the change", "change, with the 95 % interval", "note")
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


@section("Context and users", 60, "headcount whatif --vary context=x1,x2,x4")
def contexts(answer: ReadJson) -> Iterator[Part]:
    """GPUs by users and length of context."""
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


@section("Sensitivity analysis", 70, "headcount whatif --tornado")
def tornado(answer: ReadJson) -> Iterator[Part]:
    """What each assumption does to the users."""
    report = answer["report"]
    swings = report.get("tornado")
    if not swings:
        return
    swing = report["swing"]
    bars = [
        Bar(f"{each['name']} {sign}{swing:.0%}", each[side] - 1, f"{each[side] - 1:+.0%}", kind)
        for each in swings
        for side, sign, kind in (("less", "−", "plain"), ("more", "+", "marked"))
    ]
    some = "those that cost the most users simulated on one server, the others " * any("simulated" in s for s in swings)
    how = f"{some}estimated; headcount whatif --tornado simulates all"
    how = "simulated" if report.get("is_tornado_simulated") else how
    yield Bars(
        title=f"What matters most: {swings[0]['name']}",
        note=f"Users served when one assumption is {swing:.0%} less or more and the others stay the same ({how}).",
        axis_name="change of users",
        text="change",
        bars=bars,
        columns=("assumption", "change of users"),
    )
    rows = [
        (each["name"], each.get("value", ""), f"{each['less'] - 1:+.0%}", f"{each['more'] - 1:+.0%}") for each in swings
    ]
    columns = ("assumption", "as assumed", f"users with {swing:.0%} less", f"users with {swing:.0%} more")
    yield Table(title="Sensitivity by assumption", columns=columns, rows=rows, text_columns=(0, 1))
