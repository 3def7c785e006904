"""How does a fleet that changes serve a load, and what does it cost beside a fixed one?"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.diagnostics import facts_about, find_diagnostics
from headcount.inputs.deployments import resolve_model_and_gpu
from headcount.inputs.loads import AskedLoad
from headcount.inputs.traffic import TrafficChanges
from headcount.queries.autoscaling.question import (
    HOUR_S,
    Autoscaler,
    FleetOverTime,
    LoadOverTime,
    Question,
    figures_of,
    load_over_time,
)
from headcount.queries.report_data.assumptions import gpu_rows, of_terms
from headcount.queries.report_data.deployment import deployment_json
from headcount.queries.report_data.loads import MOST_TIMES
from headcount.queries.report_data.memory import memory_json
from headcount.queries.result import Progress, Result, Watch, question, unwatched
from headcount.views.summary.summary import Summary, risk_of
from headcount.text.blocks import Block, Line, Table
from headcount.text.simulated import TENANT_COLUMNS, tenant_row
from headcount.text.units import dollars, milliseconds, percent, seconds
from headcount.text.words import sentence, settings_text, step_time_error
from simulator.deployment import resolve
from simulator.fleet.events import Event, read_event
from simulator.fleet.router import RouterFactory
from simulator.fleet.startup import STORAGES, Startup, read_startup
from simulator.study.slo import find_slo
from workloads.arrivals import Arrivals
from workloads.daily_profile import WORKING_DAY, Profile, read_profile
from workloads.tenants import Given
from workloads.traces.trace_file import Source

if TYPE_CHECKING:
    from calibrate.readers.parsing.startup_log import StartupLog


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AutoscalingResult(Result):
    """One load on fleets that change, then on fixed ones: attainment, replicas over time, GPU-hours, cost.

    The last one is the smallest fixed fleet that meets the SLO, or the largest allowed where none does.
    """

    kind = "over time"
    question: Question
    load: LoadOverTime
    fleets: tuple[FleetOverTime, ...]

    def figures(self) -> dict[str, Any]:
        plan, first, later = self.question.plan, *self.question.stages()
        return {
            "model": plan.architecture.name,
            "gpu": plan.gpu.name,
            "gpus_per_replica": plan.gpus,
            "min_replicas": self.question.min_replicas,
            "max_replicas": self.question.max_replicas,
            "slo": str(self.question.slo),
            "load": self.load.words,
            "duration_s": self.fleets[0].shown.until_s,
            "startup_new_node": first.to_json(),
            "startup_later": later.to_json(),
            "settings": plan.settings,
            **({} if self.question.flow_control is None else {"flow_control": self.question.flow_control}),
            "fleets": self.rows(),
        }

    def rows(self) -> list[dict[str, Any]]:
        plan = self.question.plan
        return [figures_of(fleet, gpus=plan.gpus, usd_per_gpu_hour=plan.gpu.usd_per_hour) for fleet in self.fleets]

    def head(self) -> list[Block]:
        plan, asked = self.question.plan, self.question
        sizes = f"{asked.min_replicas} to {asked.max_replicas}" if asked.autoscalers else f"{asked.max_replicas}"
        what = f"{plan.architecture.name} on {sizes} replicas of {plan.gpus} × {plan.gpu.name}"
        return [Line(bold=f"{what}: {self.load.words}"), Line(f"SLO: {asked.slo}"), Line(self._said())]

    def _said(self) -> str:
        rows, target = self.rows(), self.question.slo.attainment
        first, fixed = rows[0], rows[-1]
        met = f"{percent(round(first['attainment'], 4))} of requests meet the SLO with {first['fleet']}"
        if len(self.fleets) == 1:
            return f"{met} replicas"
        saved = 1 - first["gpu_hours"] / fixed["gpu_hours"]
        is_met = fixed["attainment"] >= target
        which = "smallest fixed fleet that meets it over the whole run" if is_met else "largest allowed: it misses"
        cheaper = f"{first['fleet'] if saved > 0 else 'the fixed fleet'} is cheaper" if saved else "both cost the same"
        misses = ", but misses the SLO" if saved > 0 and first["attainment"] < target else ""
        return (
            f"{met}, in {abs(saved):.1%} {'fewer' if saved >= 0 else 'more'} GPU-hours than {fixed['fleet']} replicas "
            f"({percent(round(fixed['attainment'], 4))}; the {which}). In this one run {cheaper}{misses}"
        )

    def body(self) -> list[Block]:
        found = self.rows()
        rejects = "requests_rejected" in found[0]
        rows = [
            (
                row["fleet"], f"{row['replicas_mean']:.2f}", str(row["replicas_max"]),
                percent(round(row["attainment"], 4)),
                seconds(row["ttft_s"]["p95"]), milliseconds(row["tpot_s"]["p95"]), f"{row['gpu_hours']:,.1f}",
                dollars(row["usd_per_day"]), f"{row['requests_interrupted']:,}", f"{row['requests_lost']:,}",
                *([f"{row['requests_rejected']:,}"] if rejects else ()),
            )
            for row in found
        ]  # fmt: skip
        columns = (
            "fleet", "replicas", "most", "attainment", "TTFT p95", "TPOT p95", "GPU-hours", "$/day", "interrupted",
            "lost", *(["rejected"] if rejects else ()),
        )  # fmt: skip
        dim = [Line(text, dim=True) for text in self._explained()]
        return [
            Table(columns=columns, rows=rows), Line(), *self._tenants(), *self._by_hour(), *self._events(), *dim
        ]  # fmt: skip

    def _tenants(self) -> list[Block]:
        """How each fleet served each tenant."""
        rows = [(fleet.name, *tenant_row(tenant)) for fleet in self.fleets for tenant in fleet.shown.tenants]
        return [Table(columns=("fleet", *TENANT_COLUMNS), rows=rows), Line()] if rows else []

    def _by_hour(self) -> list[Block]:
        shown = self.fleets[0].shown
        if shown.until_s < 2 * HOUR_S:
            return []
        hours = np.arange(int(shown.until_s // HOUR_S))
        held = [sum(_held(shown.history, hour * HOUR_S, (hour + 1) * HOUR_S)) for hour in hours]
        text = " ".join(f"{value:.1f}" for value in held)
        return [Line(f"replicas by hour, {self.fleets[0].name}: {text}"), Line()]

    def _events(self) -> list[Block]:
        return [
            Line(
                f"{each.event}, {fleet.name}: in the worst minute {percent(round(each.lowest, 3))} of requests meet "
                f"the SLO, {_recovered(each.recovered_s)}"
            )
            for fleet in self.fleets
            for each in fleet.shown.recoveries
        ]

    def _explained(self) -> list[str]:
        (first, later), plan, asked = self.question.stages(), self.question.plan, self.question
        named = [(name.removesuffix("_s"), value) for name, value in first.to_json().items() if name != "total_s"]
        parts = ", ".join(f"{name} {value:.0f} s" for name, value in named if value)
        again = "are sent again from their start" if asked.sends_again else "are lost"
        return [
            settings_text(plan),
            *([] if asked.flow_control is None else [f"flow control: {asked.flow_control}"]),
            f"a replica starts in {first.total_s:,.0f} s on a new node ({parts}), in "
            f"{later.total_s:,.0f} s on one that has started one before; its GPUs are paid for from the wish on",
            f"requests of a replica that fails, or goes after {asked.grace_period_s:g} s of draining, {again}",
        ]

    def summary(self) -> Summary:
        plan = self.question.plan
        row = self.rows()[0]
        return Summary(
            question=f"How does {plan.architecture.name} on {plan.gpu.name} serve {self.load.words}?",
            answer=sentence(f"{self._said()}."),
            figures=(
                ("GPU-hours", f"{row['gpu_hours']:,.1f}"),
                *((("cost", f"${row['usd_per_day']:,.0f} a day"),) if row["usd_per_day"] is not None else ()),
                ("replicas", f"{row['replicas_mean']:.2f} on average, at most {row['replicas_max']}"),
                ("requests lost", f"{row['requests_lost']:,}"),
            ),
            sure=sentence(f"{step_time_error(plan.latency)}."),
            risk=risk_of(self.diagnostics, "One run of one load: other arrivals give other figures."),
        )

    def details(self) -> dict[str, Any]:
        """Of the fleets over time."""
        plan = self.question.plan
        return {
            "deployment": deployment_json(plan, self.question.max_replicas),
            "memory": memory_json(plan.budget),
            "fleet": f"{self.question.max_replicas * plan.gpus} × {plan.gpu.name}",
            "fleets_over_time": [_lines(fleet) for fleet in self.fleets],
            "target_attainment": self.question.slo.attainment,
            "events_s": [event.time_s for event in self.question.events],
            "loads": [],
            "slo": {},
            "assumptions": [
                *of_terms("GPU", gpu_rows(plan.gpu)),
                *of_terms("memory and step times", plan.assumptions),
                *of_terms("a replica's start", self._start_terms()),
            ],
        }

    def _start_terms(self) -> list[tuple[str, str, str]]:
        given = self.question.startup
        return [("weights are read from", given.weights_from, STORAGES[given.weights_from].source)]


def _held(history: Sequence[Any], start_s: float, end_s: float) -> list[float]:
    """Shares of a span by how many replicas were held, each times their number."""
    ends = [*(later.time_s for _, later in pairwise(history)), end_s]
    spans = [
        max(min(until_s, end_s) - max(count.time_s, start_s), 0.0) for count, until_s in zip(history, ends, strict=True)
    ]
    return [count.held * span_s / (end_s - start_s) for count, span_s in zip(history, spans, strict=True)]


def _recovered(after_s: float | None) -> str:
    if after_s is None:
        return "and the target is not met again within the run"
    return "and the target stays met" if after_s == 0 else f"and the target is met again after {after_s / 60:,.0f} min"


def _lines(fleet: FleetOverTime) -> dict[str, Any]:
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


@question
def simulate_autoscaling(
    model: str,
    gpu: str,
    *,
    autoscaler: Autoscaler | Sequence[Autoscaler] | None = None,
    min_replicas: int | None = None,
    max_replicas: int | None = None,
    initial_replicas: int | None = None,
    daily_profile: str | Profile | None = None,
    duration_s: float | None = None,
    events: Sequence[str | Event] = (),
    startup: str | Startup | None = None,
    grace_period_s: float = 30.0,
    sends_again: bool = True,
    slo: str = "chat",
    ttft_s: float | None = None,
    tpot_s: float | None = None,
    attainment: float | None = None,
    workload: Source | None = None,
    users: int | None = None,
    concurrency: int | None = None,
    rate: float | None = None,
    arrivals: str | Arrivals | None = None,
    burstiness: float | None = None,
    input_len: int | None = None,
    output_len: int | None = None,
    length_spread: float | None = None,
    num_requests: int | None = None,
    think_time_s: float | None = None,
    trace_block_size: int | None = None,
    traffic: TrafficChanges = None,
    replicas: int = 1,
    router: str | RouterFactory | None = None,
    flow_control: str | None = None,
    tenants: Given | None = None,
    seed: int = 0,
    strict: bool = False,
    startup_log: "StartupLog | None" = None,
    progress: Watch = unwatched,
    **engine: Any,
) -> AutoscalingResult:
    """Serve one load with a fleet that changes, and with fixed ones: of its most replicas, and of the fewest that do.

    `autoscaler` is a name, with parameters as in `hpa:target_average_value=30`, or several to compare. With a
    `daily_profile` (`day`, or requests by hour) `users` are those of the busiest hour. `events` befall every fleet:
    `crash@10min`, `node@10min`, `zone@10min:replicas=2`, `update@2h`. `startup` gives stages of a replica's start, such
    as `weights-from=nfs,node=0s`. Without `sends_again` the requests of a replica that fails are lost. A load is as of
    `simulate`, but for users: they come for `duration_s`, one hour without a profile. `flow_control` and `tenants` are
    as of `simulate`; with a queue, requests wait in it while no replica is ready.
    Raises ValueError for a bad argument, RefusedError where `strict` refuses a note.
    """
    asked = resolve_model_and_gpu(model, gpu, engine, startup_log)
    known = facts_about(asked)
    find_diagnostics(known, strict=strict)
    plan = resolve(asked.architecture, asked.gpu, asked.args)
    profile = _profile(daily_profile)
    scalers = () if autoscaler is None else autoscaler if isinstance(autoscaler, list | tuple) else (autoscaler,)
    most = max_replicas or max(replicas, min_replicas or 1)
    whole = Question(
        plan=plan,
        router=router,
        slo=find_slo(slo, ttft_s=ttft_s, tpot_s=tpot_s, attainment=attainment),
        autoscalers=tuple(scalers),
        min_replicas=min(replicas, most) if min_replicas is None else min_replicas,
        max_replicas=most,
        initial_replicas=most if initial_replicas is None and profile is not None else initial_replicas,
        events=tuple(map(read_event, events)),
        startup=read_startup(startup),
        grace_period_s=grace_period_s,
        sends_again=sends_again,
        seed=seed,
        flow_control=flow_control,
    )
    given = AskedLoad(
        workload=workload, users=users, concurrency=concurrency, rate=rate, arrivals=arrivals, burstiness=burstiness,
        input_len=input_len, output_len=output_len, length_spread=length_spread, num_requests=num_requests,
        think_time=think_time_s, trace_block_size=trace_block_size, traffic=traffic, tenants=tenants, seed=seed,
    )  # fmt: skip
    load = load_over_time(given, max_model_len=plan.engine.max_model_len, profile=profile, duration_s=duration_s)
    _check_events(whole.events, load.duration_s)
    fleets = _fleets(whole, load, progress)
    known = replace(known, plans=[plan], traffic=load.traffic, cancelled=fleets[0].shown.result.cancelled)
    return AutoscalingResult(
        diagnostics=find_diagnostics(known, strict=strict), question=whole, load=load, fleets=fleets
    )


def _fleets(asked: Question, load: LoadOverTime, progress: Watch) -> tuple[FleetOverTime, ...]:
    """What is asked for and, beside autoscalers, the smallest fixed fleet that meets the SLO, found by bisection."""
    names = asked.names
    total = len(names) + bool(asked.autoscalers)
    fleets = []
    for number, name in enumerate(names):
        progress(Progress(done=number, total=total, note=name))
        fleets.append(asked.fleet(number, load))
    few, many, smallest = asked.min_replicas, asked.max_replicas, fleets[-1]
    if not asked.autoscalers or smallest.shown.attainment < asked.slo.attainment:
        return tuple(fleets)
    tried = round(fleets[0].shown.mean_replicas)
    while few < many:
        tried = min(max(tried, few), many - 1)
        fixed = asked.fixed_at(tried)
        progress(Progress(done=len(names), total=total, note=fixed.names[0]))
        found = fixed.fleet(0, load)
        if found.shown.attainment >= asked.slo.attainment:
            many, smallest = tried, found
        else:
            few = tried + 1
        tried = (few + many) // 2
    return (*fleets, smallest) if smallest is not fleets[-1] else tuple(fleets)


def _profile(given: str | Profile | None) -> Profile | None:
    if given is None or isinstance(given, Profile):
        return given
    return WORKING_DAY if given.strip().lower() == "day" else read_profile(given)


def _check_events(events: tuple[Event, ...], duration_s: float) -> None:
    late = next((event for event in events if event.time_s >= duration_s), None)
    if late is not None:
        raise ValueError(f"{late} is after the load's end at {duration_s:,.0f} s; give an earlier time, or --duration")
