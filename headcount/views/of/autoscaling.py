"""How a fleet serves that changes over time, in words."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from files.documents import Json, ReadJson
from headcount.queries.autoscaling.over_time import HOUR_S, AutoscalingResult, FleetOverTime
from headcount.queries.report_data.study import MOST_TIMES
from headcount.text.blocks import Block, Column, Line, Table, cells, table_of, titles
from headcount.text.simulated import TENANTS
from headcount.text.units import dollars, milliseconds, percent, seconds
from headcount.text.words import sentence, settings_text, step_time_error
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
    rows, target = answer.rows(), answer.question.slo.attainment
    first, fixed = rows[0], rows[-1]
    met = f"{percent(round(first['attainment'], 4))} of requests meet the SLO with {first['fleet']}"
    if len(answer.fleets) == 1:
        return f"{met} replicas"
    saved = 1 - first["gpu_hours"] / fixed["gpu_hours"]
    is_met = fixed["attainment"] >= target
    which = "smallest fixed fleet that meets it over the whole run" if is_met else "largest allowed fleet, which misses"
    cheaper = f"{first['fleet'] if saved > 0 else 'the fixed fleet'} is cheaper" if saved else "both cost the same"
    misses = ", but misses the SLO" if saved > 0 and first["attainment"] < target else ""
    return (
        f"{met}, in {abs(saved):.1%} {'fewer' if saved >= 0 else 'more'} GPU-hours than {fixed['fleet']} replicas "
        f"({percent(round(fixed['attainment'], 4))}; the {which}). In this run {cheaper}{misses}"
    )


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
    shown = answer.fleets[0].shown
    if shown.until_s < 2 * HOUR_S:
        return []
    hours = np.arange(int(shown.until_s // HOUR_S))
    held = [sum(_held(shown.history, hour * HOUR_S, (hour + 1) * HOUR_S)) for hour in hours]
    text = " ".join(f"{value:.1f}" for value in held)
    return [Line(f"replicas by hour, {answer.fleets[0].name}: {text}"), Line()]


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
        *([] if asked.flow_control is None else [f"flow control: {asked.flow_control}"]),
        f"start-up of a replica: {first.total_s:,.0f} s on a new node ({parts}), {later.total_s:,.0f} s on a node that "
        "has started one before; its GPUs are billed from the scale-up request",
        f"requests of a failed replica, or unfinished after {asked.grace_period_s:g} s of draining, {again}",
    ]


def summary(answer: AutoscalingResult) -> Summary:
    plan = answer.question.plan
    row = answer.rows()[0]
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
