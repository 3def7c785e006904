"""How a fleet serves that changes over time, in words."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from files.documents import Json, ReadJson
from headcount.queries.autoscaling.over_time import DAY_S, HOUR_S, AutoscalingResult, FleetOverTime
from headcount.queries.report_data.study import MOST_TIMES
from headcount.text.blocks import Block, Column, Line, Table, cells, table_of, titles
from headcount.text.simulated import TENANTS
from headcount.text.units import dollars, milliseconds, percent, seconds
from headcount.text.words import joined, sentence, settings_text, step_time_error
from headcount.views.report_data.assumptions import gpu_rows, of_terms
from headcount.views.report_data.deployment import deployment_json
from headcount.views.report_data.memory import memory_json
from headcount.views.summary.summary import Summary, risk_of
from simulator.fleet.startup import STORAGES

COLUMNS = (
    Column[ReadJson]("fleet", lambda row: str(row["fleet"]), is_text=True),
    Column[ReadJson]("replicas", lambda row: f"{row['replicas_mean']:.2f}"),
    Column[ReadJson]("most", lambda row: str(row["replicas_max"])),
    Column[ReadJson]("attainment", lambda row: percent(round(row["attainment"], 4))),
    Column[ReadJson]("SLO", lambda row: "met" if row["meets_slo"] else "missed", is_text=True),
    Column[ReadJson]("TTFT p95", lambda row: seconds(row["ttft_s"]["p95"])),
    Column[ReadJson]("TPOT p95", lambda row: milliseconds(row["tpot_s"]["p95"])),
    Column[ReadJson]("GPU-hours", lambda row: f"{row['gpu_hours']:,.1f}"),
    Column[ReadJson]("$/day", lambda row: dollars(row["usd_per_day"])),
    Column[ReadJson]("interrupted", lambda row: f"{row['requests_interrupted']:,}"),
    Column[ReadJson]("lost", lambda row: f"{row['requests_lost']:,}"),
    Column[ReadJson]("rejected", lambda row: f"{row['requests_rejected']:,}"),
)


def head(answer: AutoscalingResult) -> list[Block]:
    plan, asked = answer.question.plan, answer.question
    sizes = f"{asked.min_replicas} to {asked.max_replicas}" if asked.autoscalers else f"{asked.max_replicas}"
    what = f"{plan.architecture.name} on {sizes} replicas of {plan.gpus} × {plan.gpu.name}"
    return [Line(bold=f"{what}: {answer.load.words}"), Line(f"SLO: {asked.slo}"), Line(_said(answer))]


def _said(answer: AutoscalingResult) -> str:
    rows, target = answer.rows(), percent(answer.question.slo.attainment)
    best, row = answer.best, rows[answer.best]
    if len(rows) == 1:
        met = f"{_attained(row)} of requests meet the SLO with {row['fleet']} replicas"
        return met if answer.meets(best) else f"{met}, which misses the {target} asked for: raise --max-replicas"
    if not answer.meets(best):
        return (
            f"No fleet meets the SLO for {target} of requests. {row['fleet']} comes closest with {_attained(row)}. "
            "Raise --max-replicas, or relax the SLO"
        )
    tried = ", tried beside what you asked for," if row["fleet"] == answer.suggested else ""
    cheapest = (
        f"In this run {row['fleet']}{tried} is the cheapest fleet that meets the SLO: {_attained(row)} of requests"
    )
    cheapest += f", {_cost(row)}{_surely(answer, best)}"
    if row["autoscaler"] is None:
        return f"{cheapest}. {_scaled_said(answer)}"
    fixed = rows[-1]
    than = f"{_more_or_less(row, fixed)} GPU-hours than {fixed['fleet']}"
    than += f" ({_attained(fixed)})" if fixed["meets_slo"] else f", which misses it ({_attained(fixed)})"
    return f"{cheapest}, {than}{_aiming(row, '. It aims at ')}"


def _surely(answer: AutoscalingResult, best: int) -> str:
    """What the fixed fleet is at 95 % confidence; nothing where step times were given."""
    sure, smallest = answer.sure, answer.fleets[-1].shown
    if sure is None:
        return ""
    itself = "" if sure.autoscaled is None else "it misses it, and "
    if sure.replicas is None:
        most = answer.question.max_replicas
        missed = f"fixed at {most} misses it: raise --max-replicas"
        if sure.autoscaled:
            return f" (also at 95 % confidence, where {missed})"
        return f" (by mean step times; at 95 % confidence, {itself}{missed})"
    if sure.replicas == smallest.most_replicas and best == len(answer.fleets) - 1:
        return " (also at 95 % confidence)"
    hours = sure.replicas * answer.question.plan.gpus * smallest.until_s / HOUR_S
    price = answer.question.plan.gpu.usd_per_hour
    usd = None if price is None else hours * price * DAY_S / smallest.until_s
    cost = _cost({"gpu_hours": hours, "usd_per_day": usd})
    if sure.autoscaled:
        return f" (also at 95 % confidence, as fixed at {sure.replicas} does: {cost})"
    return f" (by mean step times; at 95 % confidence, {itself}fixed at {sure.replicas} meets it: {cost})"


def _scaled_said(answer: AutoscalingResult) -> str:
    """What the best autoscaler does where a fixed fleet is cheaper, and which of its settings to change."""
    rows, number = answer.rows(), answer.best_scaled
    assert number is not None, "one fixed fleet alone has a sentence of its own"
    row, goal = rows[number], answer.goals[number]
    if answer.meets(number):
        more = _more_or_less(row, rows[answer.best])
        said = f"{row['fleet']} meets it, too, with {more} GPU-hours ({_attained(row)}){_aiming(row, '; it aims at ')}"
        if goal is None:
            return said
        peak, fixed = answer.in_flight_at_peak, rows[-1]["fleet"]
        is_below = goal.in_flight is not None and goal.in_flight < peak
        below = f", below the {peak:,.3g} that each replica of {fixed} has in its busiest hour" if is_below else ""
        return f"{said}. For fewer replicas, give {goal.for_fewer}{below}"
    said = f"No autoscaler meets it with these settings. {row['fleet']} comes closest with {_attained(row)}"
    said += _aiming(row, "; it aims at ")
    return said if goal is None else f"{said}. For more replicas, give {goal.for_more}"


def _aiming(row: ReadJson, before: str) -> str:
    return "" if row["aims_at"] is None else f"{before}{row['aims_at']}"


def _attained(row: ReadJson) -> str:
    return percent(round(row["attainment"], 4))


def _cost(row: ReadJson) -> str:
    """What a fleet costs; its GPU-hours where its GPU has no price."""
    usd = row["usd_per_day"]
    return f"{row['gpu_hours']:,.1f} GPU-hours" if usd is None else f"${dollars(usd)} a day"


def _more_or_less(row: ReadJson, other: ReadJson) -> str:
    share = row["gpu_hours"] / other["gpu_hours"] - 1
    return f"{abs(share):.1%} {'fewer' if share < 0 else 'more'}"


def body(answer: AutoscalingResult) -> list[Block]:
    rows = answer.rows()
    columns = COLUMNS if "requests_rejected" in rows[0] else COLUMNS[:-1]
    dim = [Line(text, dim=True) for text in _explained(answer)]
    return [table_of(columns, rows), Line(), *_tenants(answer), *_by_hour(answer), *_events(answer), *dim]


def _tenants(answer: AutoscalingResult) -> list[Block]:
    """How each fleet served each tenant."""
    rows = [(fleet.name, *cells(TENANTS, tenant)) for fleet in answer.fleets for tenant in fleet.shown.tenants]
    return [Table(columns=("fleet", *titles(TENANTS)), rows=rows), Line()] if rows else []


def _by_hour(answer: AutoscalingResult) -> list[Block]:
    fleet = answer.fleets[answer.best_scaled or 0]
    shown = fleet.shown
    if shown.until_s < 2 * HOUR_S:
        return []
    hours = np.arange(int(shown.until_s // HOUR_S))
    held = [sum(_held(shown.history, hour * HOUR_S, (hour + 1) * HOUR_S)) for hour in hours]
    text = " ".join(f"{value:.1f}" for value in held)
    return [Line(f"replicas by hour, {fleet.name}: {text}"), Line()]


def _events(answer: AutoscalingResult) -> list[Block]:
    return [
        Line(
            f"{each.event}, {fleet.name}: in the worst minute {percent(round(each.lowest, 3))} of requests meet "
            f"the SLO, and the target {_recovered(each.recovered_s)}"
        )
        for fleet in answer.fleets
        for each in fleet.shown.recoveries
    ]


def _recovered(after_s: float | None) -> str:
    if after_s is None:
        return "is not met again within the run"
    return "stays met" if after_s == 0 else f"is met again after {after_s / 60:,.0f} min"


def _explained(answer: AutoscalingResult) -> list[str]:
    (first, later), plan, asked = answer.question.stages(), answer.question.plan, answer.question
    named = [(name.removesuffix("_s"), value) for name, value in first.to_json().items() if name != "total_s"]
    parts = ", ".join(f"{name} {value:.0f} s" for name, value in named if value)
    again = "are retried from the start" if asked.sends_again else "are lost"
    return [
        settings_text(plan),
        *_goals_said(answer),
        *_other_targets(answer),
        *([] if asked.flow_control is None else [f"flow control: {asked.flow_control}"]),
        f"start-up of a replica: {first.total_s:,.0f} s on a new node ({parts}), {later.total_s:,.0f} s on a node that "
        "has started one before; its GPUs are billed from the scale-up request",
        f"requests of a failed replica, or unfinished after {asked.grace_period_s:g} s of draining, {again}",
    ]


def _goals_said(answer: AutoscalingResult) -> list[str]:
    """What each autoscaler aims at, and its headroom below what a replica of the fixed fleet carries."""
    fixed, peak = answer.fleets[-1].name, answer.in_flight_at_peak
    lines = []
    for fleet, goal in zip(answer.fleets, answer.goals, strict=True):
        if goal is None:
            continue
        room = "" if goal.in_flight is None else _headroom(goal.in_flight, peak, fixed)
        lines.append(f"{fleet.name} aims at {goal.text}{room}")
    return lines


def _other_targets(answer: AutoscalingResult) -> list[str]:
    """That one autoscaler alone was tried with another target."""
    asked = [fleet.name for fleet in answer.fleets if fleet.autoscaler and fleet.name != answer.suggested]
    if answer.suggested is None or len(asked) < 2:
        return []
    return [f"{joined(asked)} ran as they were asked for: only the best of them was tried with another target"]


def _headroom(target: float, peak: float, fixed: str) -> str:
    carried = f"the {peak:,.3g} that each replica of {fixed} has in its busiest hour"
    if target >= peak:
        return f": no headroom below {carried}"
    return f": {1 - target / peak:.0%} headroom below {carried}"


def summary(answer: AutoscalingResult) -> Summary:
    plan = answer.question.plan
    row = answer.rows()[answer.best]
    return Summary(
        question=f"How does {plan.architecture.name} on {plan.gpu.name} serve {answer.load.words}?",
        answer=sentence(f"{_said(answer)}."),
        figures=(
            ("GPU-hours", f"{row['gpu_hours']:,.1f}"),
            *((("cost", f"${row['usd_per_day']:,.0f} a day"),) if row["usd_per_day"] is not None else ()),
            ("replicas", f"{row['replicas_mean']:.2f} on average, at most {row['replicas_max']}"),
            ("requests lost", f"{row['requests_lost']:,}"),
        ),
        sure=sentence(f"{step_time_error(plan.latency)}."),
        risk=risk_of(answer.diagnostics, "This is one run of one load. Other arrivals give other figures."),
    )


def details(answer: AutoscalingResult) -> Json:
    """Of the fleets over time."""
    plan, storage = answer.question.plan, answer.question.startup.weights_from
    return {
        "deployment": deployment_json(plan, answer.question.max_replicas),
        "memory": memory_json(plan.budget),
        "fleet": f"{answer.question.max_replicas * plan.gpus} × {plan.gpu.name}",
        "fleets_over_time": [_lines(fleet) for fleet in answer.fleets],
        "target_attainment": answer.question.slo.attainment,
        "events_s": [event.time_s for event in answer.question.events],
        "loads": [],
        "slo": {},
        "assumptions": [
            *of_terms("GPU", gpu_rows(plan.gpu)),
            *of_terms("memory and step times", plan.assumptions),
            *of_terms("a replica's start", [("weights are read from", storage, STORAGES[storage].source)]),
        ],
    }


def _held(history: Sequence[Any], start_s: float, end_s: float) -> list[float]:
    """Shares of a span by how many replicas were held, each times their number."""
    ends = [*(later.time_s for _, later in pairwise(history)), end_s]
    spans = [
        max(min(until_s, end_s) - max(count.time_s, start_s), 0.0) for count, until_s in zip(history, ends, strict=True)
    ]
    return [count.held * span_s / (end_s - start_s) for count, span_s in zip(history, spans, strict=True)]


def _lines(fleet: FleetOverTime) -> Json:
    """What a report draws of one fleet."""
    shown = fleet.shown
    every = max(len(shown.window_s) // MOST_TIMES, 1)
    held = [sum(_held(shown.history, start_s, start_s + 1.0)) for start_s in shown.window_s]
    return {
        "name": fleet.name,
        "time_s": shown.window_s[::every].tolist(),
        "attained": shown.attained[::every].tolist(),
        "held": held[::every],
        "in_flight": shown.in_flight[::every].T.tolist(),
        "history": [(count.time_s, count.ready, count.held) for count in shown.history[:2000]],
    }
