"""How fast is one load served?"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from files.documents import Json
from files.errors import HeadcountError
from headcount.diagnostics import Facts, facts_about, find_diagnostics
from headcount.inputs.disaggregation import LinkInput, asked_disaggregated
from headcount.inputs.engine import EngineInput
from headcount.inputs.load import AskedLoad, LoadInput
from headcount.inputs.prices import GPUPriceInput
from headcount.inputs.question import question
from headcount.inputs.reading.deployments import engine_json
from headcount.inputs.routing import DeployedInput
from headcount.inputs.run import SeedInput
from headcount.inputs.run_files import OutputsInput
from headcount.inputs.slo import SLOInput
from headcount.inputs.traffic import TrafficInput
from headcount.queries.front_end import api_server_facts_of_load
from headcount.queries.queueing import OtherEnd, other_end_of, queue_facts
from headcount.queries.report_data.percentiles import (
    known_or_none,
    mean_of_runs,
    p99_interval,
    p99_of_runs,
    trust_text,
)
from headcount.queries.result import Progress, Result
from headcount.queries.serving import LATENCIES, TAILS, Latencies, Served, serve
from headcount.text.units import assumptions_json
from simulator.deployment import Deployment, resolve
from simulator.disaggregation import DisaggregatedDeployment
from simulator.latency.model import LogError
from simulator.results import SimulationResult
from simulator.study.statistics import summary


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SimulateResult(Result):
    """One load on one fleet: latency percentiles, rates, KV use."""

    kind = "simulation"
    view = "simulate"
    plan: Deployment
    replicas: int
    served: Served
    in_step: bool = False  # clients without think time, who start together: their TTFT is less sure
    disaggregated: DisaggregatedDeployment | None = (
        None  # where prompts are computed elsewhere: `plan` and `replicas` are those that decode
    )
    runs: tuple[Latencies, ...] = ()  # of every run where there are several; the first is `served`
    other_end: OtherEnd | None = None  # where the load may or may not queue

    @property
    def p99s(self) -> tuple[Mapping[str, float], ...]:
        """Of TAILS, of every run where there are several."""
        return tuple({name: run[name]["p99"] for name in TAILS} for run in self.runs)

    @property
    def gpus(self) -> int:
        return self.replicas * self.plan.gpus if self.disaggregated is None else self.disaggregated.gpus

    @property
    def result(self) -> SimulationResult:
        return self.served.result

    def figures(self) -> Json:
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
            **self.served.disaggregated,
        }
        if self.served.flow_control is not None:
            found["flow_control"] = self.served.flow_control
        if self.served.slo is not None:
            found |= {"slo": vars(self.served.slo), "attainment": self.served.attainment}
        if self.served.tenants:
            found["tenants"] = [tenant.to_json() for tenant in self.served.tenants]
        if self.served.stages:
            found["stages"] = [stage.to_json() for stage in self.served.stages]
        for name in ("ttft_s", "tpot_s"):
            low, high = self.mean_interval(name) or (None, None)
            found[name] |= {"mean_low": low, "mean_high": high}  # 90 % interval; null where the times were given
        found["may_queue"] = None if self.other_end is None else self.other_end.to_json()
        for name in TAILS:
            low, high = self.p99_interval(name) or (None, None)
            found[name] |= {"p99_low": low, "p99_high": high}
            found[name] |= {"p99_of_runs": known_or_none([each[name] for each in self.p99s]) or None}
        return found

    def _log_error(self, name: str) -> LogError:
        """Of the mean of one of TAILS."""
        latency = self.plan.latency
        return latency.ttft_log_error_of(in_step=self.in_step) if name == "ttft_s" else latency.tpot_log_error

    def mean_interval(self, name: str) -> tuple[float, float] | None:
        """A real server's mean of TTFT or TPOT, nine times in ten; None where step times were given."""
        if self.plan.latency.is_given:
            return None
        mean_s = float(self.result.to_json()[name]["mean"] or math.nan)
        return self._with_other_end(name, "mean", self._log_error(name).interval(mean_s, self.served.step.sequences))

    def _with_other_end(
        self, name: str, statistic: str, interval: tuple[float, float] | None
    ) -> tuple[float, float] | None:
        """An interval that holds what servers have that queue, and what those have that do not."""
        if interval is None or self.other_end is None:
            return interval
        other = summary(getattr(self.other_end.result.times, name))[statistic]
        return interval if other is None else (min(interval[0], other), max(interval[1], other))

    def p99_interval(self, name: str) -> tuple[float, float] | None:
        """A real server's p99 of one of TAILS, as far as this run tells, or all runs."""
        times, error = self.result.times, self._log_error(name)
        if self.p99s:
            log_ends = error.log_ends_at(self.served.step.sequences)
            return self._with_other_end(name, "p99", p99_of_runs([each[name] for each in self.p99s], log_ends))
        by_arrival = getattr(times, name)[np.argsort(times.arrival_s, kind="stable")]
        found = p99_interval(by_arrival, error.log_ends_at(self.served.step.sequences))
        return self._with_other_end(name, "p99", found)

    def trust(self, name: str) -> str:
        """How well its p99 is known from several runs, and how many more would say it better."""
        log_ends = self._log_error(name).log_ends_at(self.served.step.sequences)
        return trust_text(name.removesuffix("_s").upper(), [each[name] for each in self.p99s], log_ends)

    def rows(self) -> list[Json]:
        found = self.result.to_json()
        for name in LATENCIES if self.runs else ():
            values = {key: [run[name][key] for run in self.runs] for key in found[name]}
            found[name] = {key: known_or_none([mean_of_runs(each)])[0] for key, each in values.items()}
        return [{"latency": name, **found[name]} for name in LATENCIES]

    def spread(self, name: str, statistic: str) -> tuple[float, float] | None:
        """The least and the most of the runs; None where a run has no such figure."""
        values = [run[name][statistic] for run in self.runs]
        return (min(values), max(values)) if all(map(math.isfinite, values)) else None


@question
def simulate(
    model: str,
    gpu: str,
    *,
    load: LoadInput = LoadInput(),
    traffic: TrafficInput = TrafficInput(),
    slo: SLOInput = SLOInput(),
    engine: EngineInput = EngineInput(),
    deployed: DeployedInput = DeployedInput(),
    link: LinkInput = LinkInput(),
    outputs: OutputsInput = OutputsInput(),
    prices: GPUPriceInput = GPUPriceInput(),
    run: SeedInput = SeedInput(),
) -> SimulateResult:
    """Serve one load and report latencies, rates and KV use.

    A load is a trace (`workload`), users of a preset or with `input_len`, `output_len`, `think_time_s`, clients without
    think time (`concurrency`), or arrivals at a `rate` or at one after the other (`stages`). `pools` are disaggregated
    prefill/decode: {"prefill": "2", "decode": "2xtp4"}; `kv_transfer` is "pull" or "push", `kv_transfer_rate` in GB/s
    by one GPU. `flow_control` is the gateway's queue before the router. `tenants` are a file or a mapping by name. With
    an SLO, or tenants, requests are judged by it: `attainment`. With `runs` the load is drawn so often, with `seed` and
    those after it, for how sure the p99 is. Raises HeadcountError for a bad argument, RefusedError where `strict`
    refuses a diagnostic.
    """
    replicas, router, pools, runs, strict = deployed.replicas, deployed.router, deployed.pools, load.runs, run.strict
    asked = prices.on(engine.on(model, gpu))
    outputs.check(replicas * asked.args.num_engines + (pools is not None))
    known = facts_about(asked)
    find_diagnostics(known, strict=strict)
    disaggregated = asked_disaggregated(asked, pools, link, replicas=replicas)
    plan = resolve(asked.architecture, asked.gpu, asked.args) if disaggregated is None else disaggregated.decode
    replicas = replicas if disaggregated is None else disaggregated.num_decode
    known = replace(known, plans=[plan] if disaggregated is None else disaggregated.plans)
    find_diagnostics(known, strict=strict)
    whole = AskedLoad(load=load, traffic=traffic, tenants=deployed.tenants, seed=run.seed, model=asked.architecture)
    limits = None if slo == SLOInput() else slo.found(load.workload)
    if runs < 1 or (runs > 1 and load.workload is not None and load.users is None):
        raise HeadcountError(
            f"runs is {runs}; give 1, or with --users or --rate more: a trace is the same in every run"
        )

    of_load = partial(
        serve, plan, replicas, router, disaggregated=disaggregated, flow_control=deployed.flow_control, slo=limits
    )

    def of_seed(number: int, files: OutputsInput = OutputsInput()) -> Served:
        run.progress(Progress(done=number, total=runs))
        return of_load(replace(whole, seed=run.seed + number), files)

    served = of_seed(0, outputs)
    others = [of_seed(number).latencies() for number in range(1, runs)]
    answer = SimulateResult(
        diagnostics=(),
        plan=plan,
        replicas=replicas,
        served=served,
        in_step=load.concurrency is not None,
        disaggregated=disaggregated,
        runs=(served.latencies(), *others) if others else (),
    )
    interval = answer.mean_interval("ttft_s")
    other = other_end_of(plan, served, interval, lambda factor: of_load(whole, step_time_factor=factor).result)
    answer = replace(answer, other_end=other)
    return replace(answer, diagnostics=find_diagnostics(_facts_of(answer, known), strict=strict))


def _facts_of(answer: SimulateResult, known: Facts) -> Facts:
    """What is `known` before the load is served, with what it shows."""
    served = answer.served
    return replace(
        known,
        steps=[(answer.plan, served.step)],
        traffic=served.traffic,
        trace=served.trace,
        cancelled=served.result.cancelled,
        may_queue=queue_facts(served.result, answer.other_end),
        **api_server_facts_of_load(
            answer.plan,
            answer.replicas,
            answer.disaggregated,
            queue_share=served.result.api_server_queue_share,
            tokens_per_s=served.result.output_tokens_per_s,
        ),
    )
