"""How fast is one load served?"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from files.errors import HeadcountError
from headcount.diagnostics import facts_about, find_diagnostics
from headcount.inputs.deployments import engine_json, resolve_model_and_gpu
from headcount.inputs.disaggregation import ApartPools, asked_apart
from headcount.inputs.loads import AskedLoad
from headcount.inputs.run_files import NO_FILES, Outputs
from headcount.inputs.traffic import TrafficChanges
from headcount.queries.report_data.percentiles import (
    known_or_none,
    p99_between,
    p99_interval,
    p99_of_runs,
)
from headcount.queries.result import Progress, Result, Watch, question, unwatched
from headcount.queries.serving import TAILS, Served, serve
from headcount.text.units import assumptions_json
from simulator.deployment import Deployment, resolve
from simulator.disaggregation import DisaggregatedDeployment
from simulator.fleet.router import RouterFactory
from simulator.results import SimulationResult
from simulator.study.slo import find_slo
from workloads.arrivals import Arrivals
from workloads.tenants import Given
from workloads.traces.trace_file import Source

if TYPE_CHECKING:
    from calibrate.readers.parsing.startup_log import StartupLog


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SimulateResult(Result):
    """One load on one fleet: latency percentiles, rates, KV use."""

    kind = "simulation"
    view = "simulate"
    plan: Deployment
    replicas: int
    served: Served
    apart: DisaggregatedDeployment | None = (
        None  # where prompts are computed elsewhere: `plan` and `replicas` are those that decode
    )
    p99s: tuple[Mapping[str, float], ...] = ()  # of TAILS, of every run where there are several; the first is `served`

    @property
    def gpus(self) -> int:
        return self.replicas * self.plan.gpus if self.apart is None else self.apart.gpus

    @property
    def result(self) -> SimulationResult:
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
            found[name] |= {"p99_of_runs": known_or_none([each[name] for each in self.p99s]) or None}
        return found

    def p99_interval(self, name: str) -> tuple[float, float] | None:
        """A real server's p99 of one of TAILS, as far as this run tells, or all runs."""
        times, latency = self.result.times, self.plan.latency
        error = latency.ttft_log_error if name == "ttft_s" else latency.tpot_log_error
        if self.p99s:
            log_error = error.log_half_width_at(self.served.step.sequences)
            return p99_of_runs([each[name] for each in self.p99s], log_error)
        by_arrival = getattr(times, name)[np.argsort(times.arrival_s, kind="stable")]
        return p99_interval(by_arrival, error.log_half_width_at(self.served.step.sequences))

    def rows(self) -> list[dict[str, Any]]:
        found = self.result.to_json()
        for name in TAILS if self.p99s else ():
            found[name] = found[name] | {"p99": known_or_none([p99_between([each[name] for each in self.p99s])])[0]}
        return [{"latency": name, **found[name]} for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s")]


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
    kv_transfer: str | None = None,
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
    runs: int = 1,
    strict: bool = False,
    startup_log: "StartupLog | None" = None,
    requests_out: Path | None = None,
    steps_out: Path | None = None,
    progress: Watch = unwatched,
    **engine: Any,
) -> SimulateResult:
    """Serve one load and report latencies, rates and KV use.

    A load is a trace (`workload`), users of a preset or with `input_len`, `output_len`, `think_time_s`, clients without
    think time (`concurrency`), or arrivals at a `rate`. `pools` compute prompts and answers apart: {"prefill": "2",
    "decode": "2xtp4"}; `kv_transfer` is "pull" or "push", `kv_transfer_rate` in GB/s by one GPU. `engine` are vLLM's
    engine arguments under their names. `flow_control` is the gateway's queue before the router. `tenants`, a file or a
    mapping by name, are judged by the SLO; nothing else here is. With `runs` the load is drawn so often, with `seed`
    and those after it, for how sure the p99 is. Raises HeadcountError for a bad argument, RefusedError where `strict`
    refuses a note.
    """
    asked = resolve_model_and_gpu(model, gpu, engine, startup_log)
    outputs = Outputs(requests=requests_out, steps=steps_out)
    outputs.check(replicas * asked.args.num_engines + (pools is not None))
    known = facts_about(asked)
    find_diagnostics(known, strict=strict)
    apart = asked_apart(asked, pools, kv_transfer_rate, dispatch_s, decider, kv_transfer=kv_transfer, replicas=replicas)
    plan = resolve(asked.architecture, asked.gpu, asked.args) if apart is None else apart.decode
    replicas = replicas if apart is None else apart.num_decode
    known = replace(known, plans=[plan] if apart is None else apart.plans)
    find_diagnostics(known, strict=strict)
    load = AskedLoad(
        workload=workload, users=users, concurrency=concurrency, rate=rate, arrivals=arrivals, burstiness=burstiness,
        input_len=input_len, output_len=output_len, length_spread=length_spread, num_requests=num_requests,
        think_time=think_time_s, trace_block_size=trace_block_size, traffic=traffic, tenants=tenants, seed=seed,
    )  # fmt: skip
    is_judged = (slo, ttft_s, tpot_s, attainment) != ("chat", None, None, None)
    limits = find_slo(slo, ttft_s=ttft_s, tpot_s=tpot_s, attainment=attainment) if is_judged else None
    if runs < 1 or (runs > 1 and workload is not None and users is None):
        raise HeadcountError(
            f"runs is {runs}; give 1, or with --users or --rate more: a trace is the same in every run"
        )

    def of_seed(number: int, files: Outputs = NO_FILES) -> Served:
        progress(Progress(done=number, total=runs))
        own = replace(load, seed=seed + number)
        return serve(plan, replicas, router, own, files, apart=apart, flow_control=flow_control, slo=limits)

    served = of_seed(0, outputs)
    p99s = [served.p99s(), *(of_seed(number).p99s() for number in range(1, runs))] if runs > 1 else []
    known = replace(
        known,
        steps=[(plan, served.step)],
        traffic=served.traffic,
        trace=served.trace,
        cancelled=served.result.cancelled,
    )
    diagnostics = find_diagnostics(known, strict=strict)
    return SimulateResult(
        diagnostics=diagnostics, plan=plan, replicas=replicas, served=served, apart=apart, p99s=tuple(p99s)
    )
