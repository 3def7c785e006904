"""Serves one load on one fleet."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from files.documents import ReadJson
from files.errors import HeadcountError
from headcount.inputs.load import AskedLoad
from headcount.inputs.run_files import OutputsInput
from headcount.queries.report_data.disaggregation import disaggregated_json
from headcount.queries.report_data.timelines import samples_json
from simulator.core import layout
from simulator.deployment import Deployment
from simulator.disaggregation import DisaggregatedDeployment
from simulator.fleet.flow_control import read_flow_control
from simulator.fleet.router import RouterFactory, router_name
from simulator.latency.model import AverageStep, average_step
from simulator.results import SimulationResult, whole_run
from simulator.simulation import Simulation
from simulator.stages import StageFigures, stage_figures
from simulator.study.estimate import stationary_load
from simulator.study.loads import UserLoad
from simulator.study.replication import simulate_users, waits_of
from simulator.study.slo import SLO
from simulator.tenants import TenantFigures, tenant_figures
from workloads.effects import TrafficEffects, traffic_effects

LONGEST_RUN_S = 1e10  # 317 years, or a trace in Unix time: a double of that size tells 2 µs apart
TAILS = ("ttft_s", "tpot_s", "e2e_s")
LATENCIES = ("ttft_s", "tpot_s", "itl_s", "e2e_s")
Latencies = Mapping[str, Mapping[str, float]]
"""Seconds by the name of a latency, then of a statistic."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """A result with what was served, in words."""

    result: SimulationResult
    description: str
    counted: str  # which requests count
    step: AverageStep
    traffic: TrafficEffects
    timeline: ReadJson = field(default_factory=dict)
    disaggregated: ReadJson = field(default_factory=dict)  # pools and handovers as in JSON, where there are any
    trace: tuple[str, ...] = ()  # what a trace's reader left out or took for granted
    router: str = ""
    flow_control: str | None = None
    tenants: tuple[TenantFigures, ...] = ()
    stages: tuple[StageFigures, ...] = ()
    slo: SLO | None = None  # that requests are judged by; None: neither asked for, nor are there tenants
    attainment: float | None = None  # share of the requests that count; None where none is judged

    def latencies(self) -> Latencies:
        """Mean and percentiles of each of LATENCIES; not a number where no request has one."""
        found = self.result.to_json()
        return {
            name: {key: math.nan if value is None else value for key, value in found[name].items()}
            for name in LATENCIES
        }


def serve(
    plan: Deployment,
    replicas: int,
    router: str | RouterFactory | None,
    load: AskedLoad,
    outputs: OutputsInput = OutputsInput(),
    *,
    disaggregated: DisaggregatedDeployment | None = None,
    flow_control: str | None = None,
    slo: SLO | None = None,
    step_time_factor: float = 1.0,
) -> Served:
    """Serve a load, with steps so many times as long as the deployment's; tenants are judged without an SLO, too.

    Raises HeadcountError where load and fleet do not fit."""
    fleet = plan.fleet(replicas, router) if disaggregated is None else disaggregated.fleet(router)
    fleet = replace(fleet, flow_control=read_flow_control(flow_control))
    if step_time_factor != 1:
        fleet = fleet.with_pools(lambda pool: replace(pool, step_times=pool.step_times.times(step_time_factor)))
    log_steps = outputs.steps_out is not None
    longest = fleet.max_model_len
    if load.users is None:
        requests, description, told = load.table()
        requests, traffic = load.served(requests, [pool.engine for pool in fleet.pools])
        simulation = Simulation(fleet, requests, log_steps=log_steps, seed=load.seed)
        simulation.run()
        result, counted = whole_run(simulation), "every request counts, the start too"
    else:
        told = ()
        drawn = UserLoad(population=load.population(longest), max_model_len=longest, seed=load.seed)
        traffic = traffic_effects(drawn.population, longest)
        met = stationary_load(drawn, plan, replicas, SLO())
        simulation, result = simulate_users(fleet, met, load.users, log_steps=log_steps)
        description = f"{load.users:,} users, think time {drawn.think_time_s:.0f} s on average"
        counted = f"warm-up of {result.start_s:,.0f} s removed, {result.end_s:,.0f} s simulated"
    _check_clock(result.end_s)
    if not simulation.totals["steps"].sum():
        raise HeadcountError(
            "every client gave up, or was rejected, before the first step; raise --patience, "
            "--client-timeout or the tenants' quotas"
        )
    outputs.write(simulation, result.start_s)
    limits = slo or SLO()
    attainment, tenants = _judged(simulation, limits, result.start_s)
    is_judged = slo is not None or bool(tenants)
    return Served(
        result=result,
        description=description,
        counted=counted,
        step=average_step(simulation.totals),
        traffic=traffic,
        timeline=samples_json(simulation.samples, simulation.fleet.num_usable_blocks, result.start_s, result.end_s),
        disaggregated=disaggregated_json(disaggregated, simulation) if disaggregated else {},
        trace=told,
        router=router_name(fleet.router),
        flow_control=flow_control,
        tenants=tenants,
        stages=() if load.stages is None else stage_figures(simulation, load.stages, slo),
        slo=limits if is_judged else None,
        attainment=attainment if is_judged else None,
    )


def _judged(simulation: Simulation, slo: SLO, start_s: float) -> tuple[float | None, tuple[TenantFigures, ...]]:
    """Attainment of requests that arrived from `start_s` on, None where no fate is known, and each tenant's figures."""
    requests = simulation.requests
    counted = (requests["status"] != layout.NOT_ARRIVED) & (requests["arrival_s"] >= start_s)
    ttft, tpot, decided = waits_of(requests[counted], simulation.now_s).missed(slo)
    missed = ttft | tpot
    tenants = tenant_figures(simulation.table, requests, counted, missed, decided)
    return float((~missed[decided]).mean()) if decided.any() else None, tenants


def _check_clock(end_s: float) -> None:
    """Raise HeadcountError where a run took so long that its clock no longer tells steps apart."""
    if not end_s <= LONGEST_RUN_S:
        raise HeadcountError(
            f"the run takes {end_s:.3g} simulated seconds, beyond the {LONGEST_RUN_S:.0g} for which its clock tells "
            "steps apart; raise the rate, or shorten think times or steps"
        )
