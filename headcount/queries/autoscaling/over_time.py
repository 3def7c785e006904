"""How does a fleet that changes serve a load, and what does it cost beside a fixed one?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from files.documents import Json
from files.errors import HeadcountError
from headcount.diagnostics import facts_about, find_diagnostics
from headcount.inputs.autoscaling import AutoscalingInput
from headcount.inputs.engine import EngineInput
from headcount.inputs.load import AskedLoad, LoadInput
from headcount.inputs.prices import GPUPriceInput
from headcount.inputs.question import question
from headcount.inputs.routing import ReplicasInput
from headcount.inputs.run import SeedInput
from headcount.inputs.slo import SLOInput
from headcount.inputs.traffic import TrafficInput
from headcount.queries.autoscaling.answer_times import answer_times
from headcount.queries.autoscaling.confidence import SureFleet
from headcount.queries.autoscaling.fleets import fleets_tried
from headcount.queries.autoscaling.headroom import Headroom, headroom_of
from headcount.queries.autoscaling.rows import DAY_S, HOUR_S, figures_of
from headcount.queries.result import Result
from simulator.deployment import Deployment, resolve
from simulator.fleet.events import Event, read_event
from simulator.fleet.flow_control import read_flow_control
from simulator.fleet.operation import Operation, Operations
from simulator.fleet.router import RouterFactory
from simulator.fleet.scaler import Goal, ScalerFactory, find_scaler, goal_of, scaler_name
from simulator.fleet.startup import GPUS_PER_NODE, Stages, Startup, read_startup
from simulator.simulation import Simulation
from simulator.study.over_time import OverTime, over_time
from simulator.study.slo import SLO
from workloads.daily_profile import Profile
from workloads.effects import TrafficEffects, traffic_effects
from workloads.populations.presence import users_over_time
from workloads.requests import RequestTable

LONGEST_S: Final = 1e6  # of a run: eleven days
AFTERWARDS_S: Final = 3600.0  # for what arrived last to be answered

Autoscaler = str | ScalerFactory


@dataclass(frozen=True, kw_only=True)
class FleetOverTime:
    """What one fleet showed; `autoscaler` is None for a fixed one."""

    name: str
    scaler: Autoscaler | None
    shown: OverTime
    tuned_from: str | None = None
    """The autoscaler that was asked for, where this one has another target."""
    is_sure: bool | None = None
    """Whether it meets the SLO at 95 % confidence, too; None where it was not judged."""
    held_if_slow_s: float | None = None
    """Replica-seconds with steps as long as 95 % of servers have at most; None where no autoscaler was judged sure."""

    @property
    def autoscaler(self) -> str | None:
        return None if self.scaler is None else scaler_name(self.scaler)


@dataclass(frozen=True, kw_only=True)
class LoadOverTime:
    """Requests and for how long they come."""

    table: RequestTable
    duration_s: float
    words: str
    traffic: TrafficEffects


@dataclass(frozen=True, kw_only=True)
class Question:
    """One load on fleets of one deployment, which differ in who scales them. Raises HeadcountError for wrong limits."""

    plan: Deployment
    router: str | RouterFactory | None
    slo: SLO
    autoscalers: Sequence[Autoscaler]
    min_replicas: int
    max_replicas: int
    initial_replicas: int | None
    events: tuple[Event, ...]
    startup: Startup
    grace_period_s: float
    sends_again: bool
    seed: int
    flow_control: str | None = None
    """The gateway's queue, as `read_flow_control` reads it."""

    def __post_init__(self) -> None:
        for scaler in self.autoscalers:
            find_scaler(scaler)()
        read_flow_control(self.flow_control)
        self._operations(None)

    @property
    def names(self) -> list[str]:
        """Of the fleets, in the order of `fleets`."""
        return [*map(scaler_name, self.autoscalers), f"fixed at {self.max_replicas}"]

    def fleet(self, number: int, load: LoadOverTime) -> FleetOverTime:
        """Serve the load with one of the fleets; the last one is fixed."""
        scaler = self.autoscalers[number] if number < len(self.autoscalers) else None
        fleet = replace(
            self.plan.fleet(self.max_replicas, self.router), flow_control=read_flow_control(self.flow_control)
        )
        operation = Operation(Simulation(fleet, load.table, seed=self.seed), self._operations(scaler))
        operation.run(min(load.duration_s + AFTERWARDS_S, LONGEST_S))
        until_s = load.duration_s if load.duration_s < LONGEST_S else operation.simulation.now_s
        return FleetOverTime(
            name=self.names[number],
            scaler=scaler,
            shown=over_time(operation, self.slo, until_s),
        )

    def fixed_at(self, replicas: int) -> "Question":
        """The same load on a fixed fleet of so many replicas."""
        return replace(
            self,
            autoscalers=(),
            min_replicas=min(self.min_replicas, replicas),
            max_replicas=replicas,
            initial_replicas=None,
        )

    def stages(self) -> tuple[Stages, Stages]:
        """Of a start on a new node, and of a later one there."""
        return self.startup.stages(self.plan, is_new_node=True), self.startup.stages(self.plan, is_new_node=False)

    @property
    def operations(self) -> Operations:
        """Of the fixed fleet."""
        return self._operations(None)

    def _operations(self, scaler: Autoscaler | None) -> Operations:
        on_new, later = (stages.total_s for stages in self.stages())
        given = Operations(
            min_replicas=self.min_replicas,
            max_replicas=self.max_replicas,
            initial_replicas=self.initial_replicas,
            scaler=scaler,
            events=self.events,
            start_s=lambda is_new_node: on_new if is_new_node else later,
            replicas_per_node=max(GPUS_PER_NODE // self.plan.gpus, 1),
            grace_s=self.grace_period_s,
            retries=self.sends_again,
        )
        return given if scaler is not None else replace(given, initial_replicas=self.max_replicas)


def load_over_time(
    asked: AskedLoad, *, plan: Deployment, replicas: int, profile: Profile | None, duration_s: float | None
) -> LoadOverTime:
    """Users who come and go by a profile, or a load as it is. Raises HeadcountError where they do not go together.

    Users wait for their answers as long as so many replicas should take for them.
    """
    engine = plan.engine
    if asked.users is None:
        if profile is not None:
            raise HeadcountError("--daily-profile needs --users: the users of the busiest hour")
        table, words, _ = asked.table()
        table, traffic = asked.served(table, [engine])
        last_s = float(np.nanmax(table.arrival_s, initial=0.0))
        ends_s = math.inf if np.isnan(table.arrival_s).any() else last_s
        return LoadOverTime(
            table=table,
            duration_s=min(ends_s if duration_s is None else duration_s, LONGEST_S),
            words=words,
            traffic=traffic,
        )
    max_model_len = engine.max_model_len
    population = asked.population(max_model_len)
    days = 1 if profile is None else len(profile.hours) // 24
    duration_s = duration_s or (HOUR_S if profile is None else DAY_S * days)
    table = users_over_time(
        population,
        asked.users,
        duration_s=duration_s,
        profile=profile,
        seed=asked.seed,
        max_model_len=max_model_len,
        answers=answer_times(population, asked.users, plan, replicas, asked.seed),
    )
    most = "" if profile is None else " at the peak"
    span = f"{duration_s / 60:,.3g} min" if duration_s < 2 * HOUR_S else f"{duration_s / HOUR_S:,.3g} h"
    return LoadOverTime(
        table=table,
        duration_s=duration_s,
        words=f"{asked.users:,} users{most} over {span}, {table.num_requests:,} requests",
        traffic=traffic_effects(population, max_model_len),
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AutoscalingResult(Result):
    """One load on autoscaled fleets, then on fixed ones: attainment, replicas over time, GPU-hours, cost.

    The last one is the smallest fixed fleet that meets the SLO by mean step times, or the largest allowed where none
    does; before it is the smallest that does at 95 % confidence.
    """

    kind = "autoscaling"
    view = "autoscaling"
    question: Question
    load: LoadOverTime
    fleets: tuple[FleetOverTime, ...]
    sure: SureFleet | None = None  # beside autoscalers

    def figures(self) -> Json:
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
            "fixed_at_95_percent_confidence": None if self.sure is None else self.sure.to_json(),
            "suggested": self.suggested,
            "headroom": None if self.headroom is None else vars(self.headroom),
            "fleets": self.rows(),
        }

    def rows(self) -> list[Json]:
        plan, target = self.question.plan, self.question.slo.attainment
        price = plan.gpu.usd_per_hour
        return [
            figures_of(fleet, gpus=plan.gpus, usd_per_gpu_hour=price, goal=goal, target=target)
            for fleet, goal in zip(self.fleets, self.goals, strict=True)
        ]

    @property
    def goals(self) -> list[Goal | None]:
        """What each fleet's autoscaler aims at; None for a fixed one, or where it does not say."""
        goals = [goal_of(scaler) for scaler in self.question.autoscalers]
        return [*goals, *[None] * (len(self.fleets) - len(goals))]

    @property
    def suggested(self) -> str | None:
        """Of `fleets`, the cheapest that meets the SLO, if its autoscaler has a target that was not asked for."""
        best = self.fleets[self.best]
        return best.name if best.tuned_from is not None else None

    @cached_property
    def headroom(self) -> Headroom | None:
        """What the load grows by while a replica starts; None without autoscalers."""
        if not self.question.autoscalers or not self.meets(len(self.fleets) - 1):
            return None
        largest = self.fleets[len(self.question.autoscalers)].shown
        return headroom_of(self.question, largest, self.fleets[-1].shown)

    @property
    def fixed_as_sure(self) -> int | None:
        """The number of the smallest fixed fleet that meets the SLO at 95 % confidence, or by mean times if given."""
        if self.sure is None:
            return len(self.fleets) - 1
        fixed = range(len(self.question.autoscalers), len(self.fleets))
        sure = [number for number in fixed if self.fleets[number].is_sure]
        return min(sure, key=lambda number: self.fleets[number].shown.held_s) if sure else None

    @property
    def best(self) -> int:
        """The number of the cheapest fleet that meets the SLO at 95 % confidence, if one does.

        Else of the cheapest that meets it by mean step times; where none does, of the one that comes closest.
        """
        return self._best(range(len(self.fleets)))

    @property
    def best_scaled(self) -> int | None:
        """The same of the autoscaled fleets alone; None where all are fixed."""
        scaled = range(len(self.question.autoscalers))
        return self._best(scaled) if scaled else None

    def meets(self, number: int) -> bool:
        return self.fleets[number].shown.attainment >= self.question.slo.attainment

    def _best(self, numbers: Sequence[int]) -> int:
        met = [number for number in numbers if self.meets(number)]
        met = [number for number in met if self.fleets[number].is_sure] or met
        if met:
            return min(met, key=lambda number: self.fleets[number].shown.held_s)
        return max(numbers, key=lambda number: self.fleets[number].shown.attainment)

    @property
    def in_flight_at_peak(self) -> float:
        return self.fleets[-1].shown.in_flight_at_peak


@question
def simulate_autoscaling(
    model: str,
    gpu: str,
    *,
    load: LoadInput = LoadInput(),
    traffic: TrafficInput = TrafficInput(),
    slo: SLOInput = SLOInput(),
    engine: EngineInput = EngineInput(),
    deployed: ReplicasInput = ReplicasInput(),
    scaling: AutoscalingInput = AutoscalingInput(),
    prices: GPUPriceInput = GPUPriceInput(),
    run: SeedInput = SeedInput(),
) -> AutoscalingResult:
    """Serve one load with a fleet that changes, and with fixed ones: of its most replicas, and of the fewest that do.

    `autoscaler` is a name, with parameters as in `hpa:target_average_value=30`, or several to compare. With a
    `daily_profile` (`day`, `week`, or requests by hour) `users` are those of the busiest hour. `events` befall every
    fleet: `crash@10min`, `node@10min`, `zone@10min:replicas=2`, `update@2h`. `startup` gives stages of a replica's
    start, such as `weights-from=nfs,node=0s`. With `loses_requests` those of a replica that fails are not sent again. A
    load is as of `simulate`, but for users: they come for `duration_s`, one hour without a profile. `flow_control` and
    `tenants` are as of `simulate`; with a queue, requests wait in it while no replica is ready.
    Raises HeadcountError for a bad argument, RefusedError where `strict` refuses a diagnostic.
    """
    if load.runs != 1:
        raise HeadcountError("--runs goes with one load on a fleet that does not change")
    asked, strict = prices.on(engine.on(model, gpu)), run.strict
    known = facts_about(asked)
    find_diagnostics(known, strict=strict)
    plan = resolve(asked.architecture, asked.gpu, asked.args)
    profile, autoscaler = scaling.profile, scaling.autoscaler
    scalers = () if autoscaler is None else autoscaler if isinstance(autoscaler, list | tuple) else (autoscaler,)
    fewest, replicas = scaling.min_replicas, deployed.replicas
    most = scaling.max_replicas or max(replicas, fewest or 1)
    initial = scaling.initial_replicas
    whole = Question(
        plan=plan,
        router=deployed.router,
        slo=slo.found(load.workload),
        autoscalers=tuple(scalers),
        min_replicas=min(replicas, most) if fewest is None else fewest,
        max_replicas=most,
        initial_replicas=most if initial is None and profile is not None else initial,
        events=tuple(map(read_event, scaling.events)),
        startup=read_startup(scaling.startup),
        grace_period_s=scaling.grace_period_s,
        sends_again=not scaling.loses_requests,
        seed=run.seed,
        flow_control=deployed.flow_control,
    )
    given = AskedLoad(load=load, traffic=traffic, tenants=deployed.tenants, seed=run.seed, model=asked.architecture)
    served = load_over_time(given, plan=plan, replicas=most, profile=profile, duration_s=scaling.duration_s)
    _check_events(whole.events, served.duration_s)
    tried = fleets_tried(whole, served, run.progress)
    known = replace(known, plans=[plan], traffic=served.traffic, cancelled=tried.fleets[0].shown.result.cancelled)
    return AutoscalingResult(
        diagnostics=find_diagnostics(known, strict=strict),
        question=tried.asked,
        load=served,
        fleets=tried.fleets,
        sure=tried.sure,
    )


def _check_events(events: tuple[Event, ...], duration_s: float) -> None:
    late = next((event for event in events if event.time_s >= duration_s), None)
    if late is not None:
        raise HeadcountError(
            f"{late} is after the load's end at {duration_s:,.0f} s; give an earlier time, or --duration"
        )
