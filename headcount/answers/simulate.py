"""How fast is one load served?"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.answers.answer import Answer, Progress, Watch, question, unwatched
from headcount.answers.details.apart import apart_blocks, apart_json, apart_parts, apart_text
from headcount.answers.details.assumptions import gpu_rows, of_terms
from headcount.answers.details.deployment import deployment_json
from headcount.answers.details.first_page import (
    LATENCY_WORDS,
    FirstPage,
    money_figures,
    parts_text,
    price_figures,
    rent_words,
    risk_of,
    servers_text,
)
from headcount.answers.details.loads import samples_json
from headcount.answers.details.memory import memory_json
from headcount.answers.details.percentiles import P99_COLUMN, P99_MEANING, PERCENTILES, p99_interval, percentiles_json
from headcount.answers.money import usd_per_month
from headcount.answers.notes import facts_about, find_notes
from headcount.questions.apart import ApartPools, asked_apart
from headcount.questions.deployments import engine_json, subject
from headcount.questions.loads import AskedLoad
from headcount.questions.run_files import NO_FILES, Outputs
from headcount.questions.traffic import TrafficChanges
from headcount.text.blocks import Block, Line, Table
from headcount.text.simulated import rates, tenants_table
from headcount.text.units import assumptions_json, milliseconds, seconds
from headcount.text.words import (
    host_text,
    layout_text,
    model_title,
    precision_text,
    reached_text,
    sentence,
    settings_text,
    step_time_error,
)
from simulator.apart import Apart
from simulator.core import layout
from simulator.deployment import Deployment, resolve
from simulator.engines.engines import words_of
from simulator.fleet.flow_control import read_flow_control
from simulator.fleet.router import RouterFactory, router_name
from simulator.latency.model import AverageStep, average_step
from simulator.results import Result, whole_run
from simulator.simulation import Simulation
from simulator.study.estimate import met_in_service
from simulator.study.loads import UserLoad
from simulator.study.replication import missed, simulate_users
from simulator.study.slo import SLO, find_slo
from simulator.study.statistics import fewest_for_error
from simulator.tenants import TenantFigures, tenant_figures
from workloads.arrivals import Arrivals
from workloads.effects import TrafficEffects, traffic_effects
from workloads.tenants import Given
from workloads.traces.trace_file import Source

if TYPE_CHECKING:
    from calibrate.readers.parsing.startup_log import StartupLog

LONGEST_RUN_S = 1e10  # 317 years, or a trace in Unix time: a double of that size tells 2 µs apart
STATISTICS = ("mean", "p50", "p90", "p95", "p99")
TAILS = ("ttft_s", "tpot_s", "e2e_s")


@dataclass(frozen=True, kw_only=True)
class Served:
    """A result with what was served, in words."""

    result: Result
    description: str
    counted: str  # which requests count
    step: AverageStep
    traffic: TrafficEffects
    timeline: Mapping[str, Any] = field(default_factory=dict)
    apart: Mapping[str, Any] = field(default_factory=dict)  # pools and handovers as in JSON, where there are any
    trace: tuple[str, ...] = ()  # what a trace's reader left out or took for granted
    router: str = ""
    flow_control: str | None = None
    tenants: tuple[TenantFigures, ...] = ()
    slo: SLO = field(default_factory=SLO)  # of the tenants' attainment


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SimulateAnswer(Answer):
    """One load on one fleet: latency percentiles, rates, KV use."""

    kind = "simulation"
    plan: Deployment
    replicas: int
    served: Served
    apart: Apart | None = None  # where prompts are computed elsewhere: `plan` and `replicas` are those that decode

    @property
    def gpus(self) -> int:
        return self.replicas * self.plan.gpus if self.apart is None else self.apart.gpus

    @property
    def result(self) -> Result:
        return self.served.result

    def figures(self) -> dict[str, Any]:
        plan = self.plan
        found = {
            "model": plan.architecture.name,
            "gpu": plan.gpu.name,
            "replicas": self.replicas,
            "tp": plan.tensor_parallel_size,
            "pp": plan.pipeline_parallel_size,
            "dp": plan.data_parallel_size,
            "num_gpu_blocks": plan.num_gpu_blocks,
            "settings": plan.settings,
            "architecture_assumptions": assumptions_json(plan.architecture.assumptions),
            "not_simulated": assumptions_json(plan.not_simulated),
            "traffic_effects": self.served.traffic.to_json(),
            **engine_json(plan.args),
            **self.result.to_json(),
            **self.served.apart,
        }
        if self.served.flow_control is not None:
            found["flow_control"] = self.served.flow_control
        if self.served.tenants:
            found["slo"] = vars(self.served.slo)
            found["tenants"] = [tenant.to_json() for tenant in self.served.tenants]
        for name, error in (("ttft_s", plan.latency.ttft_log_error), ("tpot_s", plan.latency.tpot_log_error)):
            is_given, mean_s = plan.latency.is_given, found[name]["mean"]
            low, high = (not is_given and error.interval(mean_s, self.served.step.sequences)) or (None, None)
            found[name] |= {"mean_low": low, "mean_high": high}  # 90 % interval; null where the times were given
        for name in TAILS:
            low, high = self.p99_interval(name) or (None, None)
            found[name] |= {"p99_low": low, "p99_high": high}
        return found

    def p99_interval(self, name: str) -> tuple[float, float] | None:
        """A real server's p99 of one of TAILS, as far as this run tells."""
        times, latency = self.result.times, self.plan.latency
        error = latency.ttft_log_error if name == "ttft_s" else latency.tpot_log_error
        by_arrival = getattr(times, name)[np.argsort(times.arrival_s, kind="stable")]
        return p99_interval(by_arrival, error.log_half_width_at(self.served.step.sequences))

    def rows(self) -> list[dict[str, Any]]:
        found = self.result.to_json()
        return [{"latency": name, **found[name]} for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s")]

    def first_page(self) -> FirstPage:
        plan, found = self.plan, self.figures()
        gpus = f"{self.gpus:,} × {plan.gpu.title}"
        price = plan.gpu.usd_per_hour
        servers = parts_text(apart_parts(self.apart)) if self.apart else servers_text(self.replicas, self.gpus)
        low, high = self.p99_interval("ttft_s") or (None, None)
        tail = "" if low is None else f" From this run alone, p99 of TTFT is {seconds(low)} to {seconds(high)}."
        return FirstPage(
            question=f"How fast does {model_title(plan.architecture.name)} on {gpus} answer this load: "
            f"{self.served.description}?",
            answer=reached_text(found["ttft_s"]["p95"], found["tpot_s"]["p95"]),
            figures=(
                ("model", precision_text(plan)),
                ("servers", servers),
                ("throughput", f"{self.result.requests_per_s:,.2f} requests/s, "
                 f"{self.result.output_tokens_per_s:,.0f} output tokens/s"),
                *money_figures(usd_per_month(self.gpus, price), None),
                *price_figures([(plan.gpu, price)]),
            ),
            sure=sentence(f"{step_time_error(plan.latency, self.served.step.sequences)}.{tail}"),
            risk=risk_of(self.notes, "One run of one load: with other arrivals, the slowest answers are slower or "
                         "faster. How many users are served within limits is another question: headcount capacity."),
            words=(*LATENCY_WORDS, *rent_words([(plan.gpu, price)])),
        )  # fmt: skip

    def details(self) -> dict[str, Any]:
        """Of this load alone."""
        plan, result = self.plan, self.result
        names = ("requests_per_s", "output_tokens_per_s", "prefix_hit_rate")
        means = {"in_flight": "in_flight_mean", "running": "running_mean", "waiting": "waiting_mean"}
        load = {
            "share": None,
            "users": result.users_mean,
            "attainment": None,
            "ttft_s": percentiles_json(result.times.ttft_s),
            "tpot_s": percentiles_json(result.times.tpot_s),
            **{name: getattr(result, name) for name in names},
            **{name: getattr(result, of) for name, of in means.items()},
            "kv_usage": result.kv_usage_mean,
            "preemptions_per_request": result.num_preemptions / max(result.num_requests, 1),
            "host_hit_rate": result.host_hit_rate,
        }
        return {
            "deployment": deployment_json(plan, self.replicas),
            "memory": memory_json(plan.budget),
            "fleet": f"{self.gpus} × {plan.gpu.name}",
            "percentiles": list(PERCENTILES),
            "loads": [load],
            "timeline": self.served.timeline,
            "slo": {},
            "assumptions": [
                *of_terms("GPU", gpu_rows(plan.gpu)),
                *of_terms("memory and step times", (self.apart or plan).assumptions),
            ],
        }

    def head(self) -> list[Block]:
        plan = self.plan
        split = layout_text(
            self.replicas, plan.tensor_parallel_size, plan.data_parallel_size, plan.pipeline_parallel_size
        )
        split = apart_text(self.apart) if self.apart else split
        return [Line(bold=f"{plan.architecture.name} on {plan.gpu.name}, {split}: {self.served.description}")]

    def body(self) -> list[Block]:
        units = {"ttft_s": seconds, "e2e_s": seconds}
        rows = [
            (row["latency"].removesuffix("_s").upper(),
             *(units.get(row["latency"], milliseconds)(row[name]) for name in STATISTICS),
             self._p99_range(row["latency"], units.get(row["latency"], milliseconds)))
            for row in self.rows()
        ]  # fmt: skip
        preempted = words_of(self.plan.args).preempted
        figures = [Line(f"  {name:<18}{value}") for name, value in rates(self.result, preempted)]
        tenants: list[Block] = [Line(), tenants_table(self.served.tenants)] if self.served.tenants else []
        router = f"router: {self.served.router}" if self.plan.data_parallel_size > 1 else ""
        held = f"flow control: {self.served.flow_control}" if self.served.flow_control else ""
        slo = f"attainment of tenants: {self.served.slo}" if tenants else ""
        tails = P99_MEANING if any(self.p99_interval(name) for name in TAILS) else ""
        said = (settings_text(self.plan), host_text(self.plan.budget), router, held, slo, self.served.counted, tails)
        dim = [Line(text, dim=True) for text in said if text]
        latencies = Table(columns=("", *STATISTICS, P99_COLUMN), rows=rows)
        return [latencies, Line(), *figures, *apart_blocks(self.served.apart), *tenants, Line(), *dim]

    def _p99_range(self, name: str, shown: Callable[[float | None], str]) -> str:
        if name not in TAILS:
            return ""
        found = self.p99_interval(name)
        return (
            f"needs {fewest_for_error(99):,} requests" if found is None else f"{shown(found[0])} to {shown(found[1])}"
        )


@question
def simulate(
    model: str,
    gpu: str,
    *,
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
    pools: ApartPools | None = None,
    kv_transfer_rate: float | None = None,
    dispatch_s: float | None = None,
    decider: str | None = None,
    router: str | RouterFactory | None = None,
    flow_control: str | None = None,
    tenants: Given | None = None,
    slo: str = "chat",
    ttft_s: float | None = None,
    tpot_s: float | None = None,
    attainment: float | None = None,
    seed: int = 0,
    strict: bool = False,
    startup_log: "StartupLog | None" = None,
    requests_out: Path | None = None,
    steps_out: Path | None = None,
    progress: Watch = unwatched,
    **engine: Any,
) -> SimulateAnswer:
    """Serve one load and report latencies, rates and KV use.

    A load is a trace (`workload`), users of a preset or with `input_len`, `output_len`, `think_time_s`, clients without
    think time (`concurrency`), or arrivals at a `rate`. `pools` compute prompts and answers apart: {"prefill": "2",
    "decode": "2xtp4"}; `kv_transfer_rate` between them is in GB/s by one GPU. `engine` are vLLM's engine arguments
    under their names. `flow_control` is the gateway's queue before the router. `tenants`, a file or a mapping by name,
    are judged by the SLO; nothing else here is. Raises ValueError for a bad argument, RefusedError where `strict`
    refuses a note.
    """
    asked = subject(model, gpu, engine, startup_log)
    outputs = Outputs(requests=requests_out, steps=steps_out)
    outputs.check(replicas * asked.args.num_engines + (pools is not None))
    known = facts_about(asked)
    find_notes(known, strict=strict)
    apart = asked_apart(asked, pools, kv_transfer_rate, dispatch_s, decider, replicas=replicas)
    plan = resolve(asked.architecture, asked.gpu, asked.args) if apart is None else apart.decode
    replicas = replicas if apart is None else apart.num_decode
    known = replace(known, plans=[plan] if apart is None else apart.plans)
    find_notes(known, strict=strict)
    load = AskedLoad(
        workload=workload, users=users, concurrency=concurrency, rate=rate, arrivals=arrivals, burstiness=burstiness,
        input_len=input_len, output_len=output_len, length_spread=length_spread, num_requests=num_requests,
        think_time=think_time_s, trace_block_size=trace_block_size, traffic=traffic, tenants=tenants, seed=seed,
    )  # fmt: skip
    is_judged = (slo, ttft_s, tpot_s, attainment) != ("chat", None, None, None)
    limits = find_slo(slo, ttft_s=ttft_s, tpot_s=tpot_s, attainment=attainment) if is_judged else None
    progress(Progress(done=0, total=1))
    served = serve(plan, replicas, router, load, outputs, apart=apart, flow_control=flow_control, slo=limits)
    known = replace(
        known,
        steps=[(plan, served.step)],
        traffic=served.traffic,
        trace=served.trace,
        cancelled=served.result.cancelled,
    )
    notes = find_notes(known, strict=strict)
    return SimulateAnswer(notes=notes, plan=plan, replicas=replicas, served=served, apart=apart)


def serve(
    plan: Deployment,
    replicas: int,
    router: str | RouterFactory | None,
    load: AskedLoad,
    outputs: Outputs = NO_FILES,
    *,
    apart: Apart | None = None,
    flow_control: str | None = None,
    slo: SLO | None = None,
) -> Served:
    """Serve a load. Raises ValueError where it does not go with the fleet, or an SLO judges nobody."""
    fleet = plan.fleet(replicas, router) if apart is None else apart.fleet(router)
    fleet = replace(fleet, flow_control=read_flow_control(flow_control))
    log_steps = outputs.steps is not None
    longest = fleet.max_model_len
    if load.users is None:
        requests, description, told = load.table()
        _check_judged(slo, has_tenants=requests.tenancy is not None)
        simulation = Simulation(fleet, requests, log_steps=log_steps, seed=load.seed)
        simulation.run()
        result, counted = whole_run(simulation), "every request counts, the start too"
        traffic = traffic_effects(requests, longest)
    else:
        told = ()
        drawn = UserLoad(population=load.population(longest), max_model_len=longest, seed=load.seed)
        _check_judged(slo, has_tenants=drawn.population.clients.tenants is not None)
        traffic = traffic_effects(drawn.population, longest)
        met = met_in_service(drawn, plan, replicas, SLO())
        simulation, result = simulate_users(fleet, met, load.users, log_steps=log_steps)
        description = f"{load.users:,} users, think time {drawn.think_time_s:.0f} s on average"
        counted = f"warm-up of {result.start_s:,.0f} s removed, {result.end_s:,.0f} s simulated"
    _check_clock(result.end_s)
    if not simulation.totals["steps"].sum():
        raise ValueError(
            "every client gave up, or was rejected, before the first step; raise --patience, "
            "--client-timeout or the tenants' quotas"
        )
    outputs.write(simulation)
    return Served(
        result=result,
        description=description,
        counted=counted,
        step=average_step(simulation.totals),
        traffic=traffic,
        timeline=samples_json(simulation.samples, simulation.fleet.num_usable_blocks, result.start_s, result.end_s),
        apart=apart_json(apart, simulation) if apart else {},
        trace=told,
        router=router_name(fleet.router),
        flow_control=flow_control,
        tenants=_tenants(simulation, slo or SLO(), result.start_s),
        slo=slo or SLO(),
    )


def _check_judged(slo: SLO | None, *, has_tenants: bool) -> None:
    """Raise ValueError where an SLO judges nobody."""
    if slo is not None and not has_tenants:
        raise ValueError(
            "an SLO judges tenants, or a fleet over time; give --tenants, or --autoscaler, --daily-profile, --duration "
            "or --event"
        )


def _tenants(simulation: Simulation, slo: SLO, start_s: float) -> tuple[TenantFigures, ...]:
    """Of requests that arrived from `start_s` on."""
    requests = simulation.requests
    counted = (requests["status"] != layout.NOT_ARRIVED) & (requests["arrival_s"] >= start_s)
    ttft, tpot, decided = missed(requests[counted], slo, simulation.now_s)
    return tenant_figures(simulation.table, requests, counted, ttft | tpot, decided)


def _check_clock(end_s: float) -> None:
    """Raise ValueError where a run took so long that its clock no longer tells steps apart."""
    if not end_s <= LONGEST_RUN_S:
        raise ValueError(
            f"the run takes {end_s:.3g} simulated seconds, beyond the {LONGEST_RUN_S:.0g} for which its clock tells "
            "steps apart; raise the rate, or shorten think times or steps"
        )
