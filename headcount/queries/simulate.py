"""How fast is one load served?"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.diagnostics import facts_about, find_diagnostics
from headcount.inputs.deployments import engine_json, resolve_model_and_gpu
from headcount.inputs.disaggregation import ApartPools, asked_apart
from headcount.inputs.loads import AskedLoad
from headcount.inputs.run_files import NO_FILES, Outputs
from headcount.inputs.traffic import TrafficChanges
from headcount.queries.money import usd_per_month
from headcount.queries.report_data.assumptions import gpu_rows, of_terms
from headcount.queries.report_data.deployment import deployment_json
from headcount.queries.report_data.disaggregation import apart_blocks, apart_parts, apart_text
from headcount.queries.report_data.memory import memory_json
from headcount.queries.report_data.percentiles import (
    P99_COLUMN,
    P99_MEANING,
    PERCENTILES,
    known_or_none,
    p99_between,
    p99_interval,
    p99_of_runs,
    percentiles_json,
    runs_text,
)
from headcount.queries.result import Progress, Result, Watch, question, unwatched
from headcount.queries.serving import TAILS, Served, serve
from headcount.views.summary.summary import (
    LATENCY_WORDS,
    Summary,
    money_figures,
    parts_text,
    price_figures,
    rent_words,
    risk_of,
    servers_text,
)
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
from simulator.deployment import Deployment, resolve
from simulator.disaggregation import DisaggregatedDeployment
from simulator.engines.engines import words_of
from simulator.fleet.router import RouterFactory
from simulator.results import SimulationResult
from simulator.study.slo import find_slo
from simulator.study.statistics import fewest_for_error
from workloads.arrivals import Arrivals
from workloads.tenants import Given
from workloads.traces.trace_file import Source

if TYPE_CHECKING:
    from calibrate.readers.parsing.startup_log import StartupLog

STATISTICS = ("mean", "p50", "p90", "p95", "p99")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SimulateResult(Result):
    """One load on one fleet: latency percentiles, rates, KV use."""

    kind = "simulation"
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

    def summary(self) -> Summary:
        plan, found = self.plan, self.figures()
        gpus = f"{self.gpus:,} × {plan.gpu.title}"
        price = plan.gpu.usd_per_hour
        servers = parts_text(apart_parts(self.apart)) if self.apart else servers_text(self.replicas, self.gpus)
        low, high = self.p99_interval("ttft_s") or (None, None)
        runs = f"From {len(self.p99s)} runs" if self.p99s else "From this run alone"
        tail = "" if low is None else f" {runs}, p99 of TTFT is {seconds(low)} to {seconds(high)}."
        return Summary(
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
            risk=risk_of(self.diagnostics, "One run of one load: with other arrivals, the slowest answers are slower or "
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
        tails = runs_text(self.p99s) or (P99_MEANING if any(self.p99_interval(name) for name in TAILS) else "")
        said = (settings_text(self.plan), host_text(self.plan.budget), router, held, slo, self.served.counted, tails)
        dim = [Line(text, dim=True) for text in said if text]
        column = f"p99, of {len(self.p99s)} runs" if self.p99s else P99_COLUMN
        latencies = Table(columns=("", *STATISTICS, column), rows=rows)
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
    and those after it, for how sure the p99 is. Raises ValueError for a bad argument, RefusedError where `strict`
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
        raise ValueError(f"runs is {runs}; give 1, or with --users or --rate more: a trace is the same in every run")

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
