"""What is asked of a fleet over time: a load with an end, and fleets that serve it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from files.documents import Json
from files.errors import HeadcountError
from headcount.inputs.load import AskedLoad
from simulator.deployment import Deployment
from simulator.fleet.events import Event
from simulator.fleet.flow_control import read_flow_control
from simulator.fleet.operation import Operation, Operations
from simulator.fleet.router import RouterFactory
from simulator.fleet.scaler import ScalerFactory, find_scaler, scaler_name
from simulator.fleet.startup import GPUS_PER_NODE, Stages, Startup
from simulator.simulation import Simulation
from simulator.study.over_time import OverTime, over_time
from simulator.study.slo import SLO
from workloads.daily_profile import Profile
from workloads.effects import TrafficEffects, traffic_effects
from workloads.populations.presence import users_over_time
from workloads.requests import RequestTable

DAY_S: Final = 86_400.0
HOUR_S: Final = 3600.0
LONGEST_S: Final = 1e6  # of a run: eleven days
AFTERWARDS_S: Final = 3600.0  # for what arrived last to be answered

Autoscaler = str | ScalerFactory


@dataclass(frozen=True, kw_only=True)
class FleetOverTime:
    """What one fleet showed; `autoscaler` is None for a fixed one."""

    name: str
    autoscaler: str | None
    shown: OverTime


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
            autoscaler=None if scaler is None else scaler_name(scaler),
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
    asked: AskedLoad, *, max_model_len: int, profile: Profile | None, duration_s: float | None
) -> LoadOverTime:
    """Users who come and go by a profile, or a load as it is. Raises HeadcountError where they do not go together."""
    if asked.users is None:
        if profile is not None:
            raise HeadcountError("--daily-profile needs --users: the users of the busiest hour")
        table, words, _ = asked.table()
        last_s = float(np.nanmax(table.arrival_s, initial=0.0))
        ends_s = math.inf if np.isnan(table.arrival_s).any() else last_s
        return LoadOverTime(
            table=table,
            duration_s=min(ends_s if duration_s is None else duration_s, LONGEST_S),
            words=words,
            traffic=traffic_effects(table, max_model_len),
        )
    population = asked.population(max_model_len)
    days = 1 if profile is None else len(profile.hours) // 24
    duration_s = duration_s or (HOUR_S if profile is None else DAY_S * days)
    table = users_over_time(
        population, asked.users, duration_s=duration_s, profile=profile, seed=asked.seed, max_model_len=max_model_len
    )
    most = "" if profile is None else " at the peak"
    return LoadOverTime(
        table=table,
        duration_s=duration_s,
        words=f"{asked.users:,} users{most} over {_span(duration_s)}, {table.num_requests:,} requests",
        traffic=traffic_effects(population, max_model_len),
    )


def _span(seconds: float) -> str:
    return f"{seconds / 60:,.3g} min" if seconds < 2 * HOUR_S else f"{seconds / HOUR_S:,.3g} h"


def figures_of(fleet: FleetOverTime, *, gpus: int, usd_per_gpu_hour: float | None) -> Json:
    """One fleet's figures, as JSON has them; `gpus` are those of a replica."""
    shown, found = fleet.shown, fleet.shown.result.to_json()
    gpu_hours = shown.held_s * gpus / HOUR_S
    usd = None if usd_per_gpu_hour is None else gpu_hours * usd_per_gpu_hour
    return {
        "fleet": fleet.name,
        "autoscaler": fleet.autoscaler,
        "attainment": shown.attainment,
        "replicas_mean": shown.mean_replicas,
        "replicas_max": shown.most_replicas,
        "replicas_ready_min": shown.least_ready,
        "gpu_hours": gpu_hours,
        "usd": usd,
        "usd_per_day": None if usd is None else usd * DAY_S / shown.until_s,
        **{name: found[name] for name in ("num_requests", "ttft_s", "tpot_s")},
        "requests_interrupted": shown.num_taken,
        "requests_lost": shown.num_lost,
        "requests_unanswered": shown.num_unanswered,
        **({} if shown.result.cancelled is None else {"requests_rejected": shown.num_rejected}),
        **({} if shown.held_mean is None else {"held_mean": shown.held_mean}),
        **({"tenants": [tenant.to_json() for tenant in shown.tenants]} if shown.tenants else {}),
        "events": [
            {
                "event": each.event.kind,
                "time_s": each.event.time_s,
                "attainment_lowest_minute": each.lowest,
                "recovered_after_s": each.recovered_s,
            }
            for each in shown.recoveries
        ],
        "replicas_over_time": [
            {"time_s": count.time_s, "ready": count.ready, "starting": count.starting, "draining": count.draining}
            for count in shown.history
        ],
    }
