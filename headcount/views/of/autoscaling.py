"""How a fleet serves that changes over time, in words."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from files.documents import Json, ReadJson
from headcount.queries.autoscaling.over_time import AutoscalingResult, FleetOverTime
from headcount.queries.autoscaling.rows import HOUR_S
from headcount.queries.autoscaling.targets import SHARES
from headcount.queries.report_data.timelines import MOST_TIMES
from headcount.text.blocks import Block, Column, Line, Table, cells, table_of, titles
from headcount.text.simulated import TENANTS
from headcount.text.units import counted, dollars, milliseconds, percent, seconds
from headcount.text.words import joined, sentence, settings_text, step_time_error
from headcount.views.report_data.assumptions import gpu_rows, of_terms
from headcount.views.report_data.deployment import deployment_json
from headcount.views.report_data.memory import memory_json
from headcount.views.summary.summary import Summary, risk_of
from simulator.fleet.startup import STORAGES


def _sureness(row: ReadJson) -> str:
    sure = row["meets_slo_at_95_percent_confidence"]
    return "–" if sure is None else "met" if sure else "missed"


COLUMNS = (
    Column[ReadJson]("fleet", lambda row: str(row["fleet"]), is_text=True),
    Column[ReadJson]("replicas", lambda row: f"{row['replicas_mean']:.2f}"),
    Column[ReadJson]("most", lambda row: str(row["replicas_max"])),
    Column[ReadJson]("attainment", lambda row: percent(round(row["attainment"], 4))),
    Column[ReadJson]("SLO", lambda row: "met" if row["meets_slo"] else "missed", is_text=True),
    Column[ReadJson]("95 % conf.", _sureness, is_text=True),
    Column[ReadJson]("TTFT p95", lambda row: seconds(row["ttft_s"]["p95"])),
    Column[ReadJson]("TPOT p95", lambda row: milliseconds(row["tpot_s"]["p95"])),
    Column[ReadJson]("GPU-hours", lambda row: f"{row['gpu_hours']:,.1f}"),
    Column[ReadJson]("$/day", lambda row: dollars(row["usd_per_day"])),
    Column[ReadJson]("interrupted", lambda row: f"{row['requests_interrupted']:,}"),
    Column[ReadJson]("lost", lambda row: f"{row['requests_lost']:,}"),
    Column[ReadJson]("rejected", lambda row: f"{row['requests_rejected']:,}"),
)


HOURS_A_DAY = 24
MOST_COLUMNS = 100
MOST_GOALS = 4  # autoscalers of which each says what it aims at
WHOLE_FROM_USD = 100


def head(answer: AutoscalingResult) -> list[Block]:
    plan, asked = answer.question.plan, answer.question
    sizes = f"{asked.min_replicas} to {asked.max_replicas}" if asked.autoscalers else f"{asked.max_replicas}"
    what = f"{plan.architecture.name} on {sizes} replicas of {plan.gpus} × {plan.gpu.name}"
    return [Line(bold=f"{what}: {answer.load.words}"), Line(f"SLO: {asked.slo}"), *map(Line, _said(answer))]


def _said(answer: AutoscalingResult) -> list[str]:
    """The answer, a sentence a line, without the full stop."""
    rows, target = answer.rows(), percent(answer.question.slo.attainment)
    best, row = answer.best, rows[answer.best]
    if len(rows) == 1:
        met = f"{_attained(row)} of requests meet the SLO with {row['fleet']} replicas"
        return [met if answer.meets(best) else f"{met}, which misses the {target} asked for: raise --max-replicas"]
    if not answer.meets(best):
        return [
            f"No fleet meets the SLO for {target} of requests. {row['fleet']} comes closest with {_attained(row)}",
            "Raise --max-replicas, or relax the SLO",
        ]
    sure, usd = answer.fleets[best].is_sure, row["usd_per_day"]
    how = " at 95 % confidence" if sure else "" if answer.sure is None else " by mean step times"
    cheapest = f"The cheapest fleet that meets the SLO{how}: {row['fleet']}, "
    if row["autoscaler"] is None:
        said = [f"{cheapest}{_cost(row)}", *_scaled_said(answer)]
    else:
        slow = row["usd_per_day_if_slow"]
        slowly = f" (${_whole(slow)} where steps are slow)" if slow is not None and _whole(slow) != _whole(usd) else ""
        said = [f"{cheapest}{_replicas(row)}, {_cost(row)}{slowly}", *_beside_fixed(answer), *_aiming(row)]
    if answer.sure is not None and answer.sure.replicas is None:
        said.append(f"At 95 % confidence, fixed at {answer.question.max_replicas} misses it: raise --max-replicas")
    return said


def _replicas(row: ReadJson) -> str:
    least, most = row["replicas_ready_min"], row["replicas_max"]
    return f"{least} to {most} replicas" if least < most else counted(most, "replica")


def _beside_fixed(answer: AutoscalingResult) -> list[str]:
    """What the smallest fixed fleet that meets the SLO as surely costs."""
    rows, number = answer.rows(), answer.fixed_as_sure
    row, fixed = rows[answer.best], rows[-1 if number is None else number]
    as_safe = " as safe" if answer.fleets[answer.best].is_sure else ""
    saved = percent(round(1 - row["gpu_hours"] / fixed["gpu_hours"], 2))
    needs = f"A fixed fleet{as_safe} needs {counted(fixed['replicas_max'], 'replica')}, {_cost(fixed)}"
    return [f"{needs}: autoscaling saves {saved}"]


def _scaled_said(answer: AutoscalingResult) -> list[str]:
    """What the best autoscaler does where a fixed fleet is cheaper, and which of its settings to change."""
    rows, number = answer.rows(), answer.best_scaled
    assert number is not None, "one fixed fleet alone has a sentence of its own"
    row, goal = rows[number], answer.goals[number]
    if not answer.meets(number):
        said = f"No autoscaler meets it with these settings. {row['fleet']} comes closest with {_attained(row)}"
        more = [] if goal is None else [f"For more replicas, give {goal.for_more}"]
        return [said, *_aiming(row), *more]
    if row["gpu_hours"] < rows[answer.best]["gpu_hours"]:
        return [
            f"With {row['fleet']} it costs less ({_cost(row)}), but it meets the SLO by mean step times alone",
            *_aiming(row),
        ]
    more_hours = f"{row['gpu_hours'] / rows[answer.best]['gpu_hours'] - 1:.1%} more GPU-hours"
    said = f"With {row['fleet']} the SLO is met, too, with {more_hours} ({_attained(row)})"
    return [said, *_aiming(row), *([] if goal is None else [f"For fewer replicas, give {goal.for_fewer}"])]


def _aiming(row: ReadJson) -> list[str]:
    return [] if row["aims_at"] is None else [f"It aims at {row['aims_at']}"]


def _attained(row: ReadJson) -> str:
    return percent(round(row["attainment"], 4))


def _cost(row: ReadJson) -> str:
    """What a fleet costs; its GPU-hours where its GPU has no price."""
    usd = row["usd_per_day"]
    return f"{row['gpu_hours']:,.1f} GPU-hours" if usd is None else f"${_whole(usd)} a day"


def _whole(usd: float) -> str:
    return f"{usd:,.0f}" if usd >= WHOLE_FROM_USD else dollars(usd)


def body(answer: AutoscalingResult) -> list[Block]:
    rows = answer.rows()
    columns = [column for column in COLUMNS if column.title != "95 % conf." or answer.sure is not None]
    columns = columns if "requests_rejected" in rows[0] else columns[:-1]
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
    hours = range(int(shown.until_s // HOUR_S))
    held = [f"{sum(_held(shown.history, hour * HOUR_S, (hour + 1) * HOUR_S)):.1f}" for hour in hours]
    wide = max(map(len, held))
    a_line = HOURS_A_DAY if wide * HOURS_A_DAY + HOURS_A_DAY <= MOST_COLUMNS else HOURS_A_DAY // 2
    lines = [Line(f"replicas by hour of the {'day' if len(held) <= HOURS_A_DAY else 'run'}, {fleet.name}:")]
    for start in range(0, len(held), a_line):
        row = hours[start : start + a_line]
        if start < HOURS_A_DAY:
            lines.append(Line(" ".join(f"{hour:>{wide}}" for hour in row), dim=True))
        lines.append(Line(" ".join(f"{held[hour]:>{wide}}" for hour in row)))
    return [*lines, Line()]


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
        *_tuned_said(answer),
        *([] if asked.flow_control is None else [f"flow control: {asked.flow_control}"]),
        f"start-up of a replica: {first.total_s:,.0f} s on a new node ({parts}), {later.total_s:,.0f} s on a node that "
        "has started one before; its GPUs are billed from the scale-up request",
        *_starts_said(answer),
        f"requests of a failed replica, or unfinished after {asked.grace_period_s:g} s of draining, {again}",
    ]


def _goals_said(answer: AutoscalingResult) -> list[str]:
    """What the autoscalers aim at, and the headroom below what a fixed fleet's replica carries; of many, the best's."""
    fixed, peak = answer.fleets[-1].name, answer.in_flight_at_peak
    lines = []
    for number, (fleet, goal) in enumerate(zip(answer.fleets, answer.goals, strict=True)):
        is_shown = fleet.tuned_from is None and len(answer.question.autoscalers) <= MOST_GOALS
        if goal is None or not (is_shown or number == answer.best_scaled):
            continue
        room = "" if goal.in_flight is None else _room(goal.in_flight, peak, fixed)
        lines.append(f"{fleet.name} aims at {goal.text}{room}")
    return lines


def _room(target: float, peak: float, fixed: str) -> str:
    carried = f"the {peak:,.3g} that each replica of {fixed} has in its busiest hour"
    if target >= peak:
        return f": no headroom below {carried}"
    return f": {1 - target / peak:.0%} headroom below {carried}"


def _starts_said(answer: AutoscalingResult) -> list[str]:
    """What the load grows by within a start, the target that leaves, and what starts cost the best autoscaler."""
    room, number = answer.headroom, answer.best_scaled
    if room is None or number is None:
        return []
    grows, target = percent(round(room.growth - 1, 2)), f"{room.target_in_flight:,.3g}"
    needed = (
        f"headroom for a start: within {room.start_s:,.0f} s the load grows by at most {grows}; a target of up to "
        f"{target} requests in flight leaves room for all of it"
    )
    fleet, starts = answer.fleets[number], answer.fleets[number].shown.starts
    if starts.attainment is None or starts.attainment_else is None:
        return [f"{needed}; {fleet.name} starts {starts.num_starts or 'no'} replicas under load"]
    met, other = (percent(round(share, 3)) for share in (starts.attainment, starts.attainment_else))
    return [
        f"{needed}. {fleet.name} has {counted(starts.num_starts, 'start')}: {met} of requests that arrive within one "
        f"meet the SLO, {other} of the others"
    ]


def _tuned_said(answer: AutoscalingResult) -> list[str]:
    """With which targets each autoscaler was tried, and which have none."""
    fleets = answer.fleets[: len(answer.question.autoscalers)]
    asked = [(fleet, goal) for fleet, goal in zip(fleets, answer.goals, strict=False) if fleet.tuned_from is None]
    if answer.headroom is None or answer.fleets[-1].shown.most_replicas <= answer.question.min_replicas:
        return []
    tried = [fleet.name for fleet, goal in asked if goal is not None and goal.target is not None]
    rigid = [fleet.name for fleet, goal in asked if goal is None or goal.target is None]
    shares = joined([f"{100 * share:.0f}" for share in SHARES])
    said = (
        f"{joined(tried)} also ran with targets of {shares} % of what each replica of {answer.fleets[-1].name} has in "
    )
    said += "its busiest hour: shown is the first that meets the SLO and saves GPU-hours"
    none = f"{joined(rigid)} {'has' if len(rigid) == 1 else 'have'} no target per replica to try"
    return [*([said] if tried else []), *([none] if rigid else [])]


def summary(answer: AutoscalingResult) -> Summary:
    plan = answer.question.plan
    row = answer.rows()[answer.best]
    return Summary(
        question=f"How does {plan.architecture.name} on {plan.gpu.name} serve {answer.load.words}?",
        answer=" ".join(sentence(f"{text}.") for text in _said(answer)),
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
