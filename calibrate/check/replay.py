"""A measured run, served again by the simulator under the same load."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from calibrate.check.client_load import described_load, sent_s, waits_for_answers
from calibrate.check.run_figures import latency_figures
from calibrate.check.sent_content import requests_of_workload, with_cached_prefixes, with_hit_rate
from calibrate.measured_run import COUNTED, MeasuredRun
from files.errors import HeadcountError
from simulator.deployment import Deployment, resolve
from simulator.engines.argument import Settings
from simulator.engines.engines import argument_names, engine_args, own_arguments
from simulator.latency.forms.physical import latency_model
from simulator.latency.gpu_constants import Constants
from simulator.results import SimulationResult, result_since, snapshot, whole_run
from simulator.simulation import Simulation
from workloads.load import load_workload
from workloads.requests import NEXT_FREE, NO_PREDECESSOR, RequestTable, independent_requests
from workloads.traces.trace import Trace

# What a benchmark client adds to latencies. On a CPU, vLLM 0.32's server with its own client, steps held at 16 ms:
# from 4 to 32 and 64 clients the mean time that a request spent before and after the engine grew by 0.26 and
# 0.43 ms per client, its median by 0.20 and 0.31 ms.
# Public closed loops took 0.3 ms per client longer than simulated: 0.24 – 0.44 ms by model, 0.25 – 0.33 ms by GPU.
STREAM_S = 0.3e-3
ONE_PROCESS = ("vllm bench serve",)


@dataclass(frozen=True, kw_only=True, eq=False)
class Replay:
    """A run with the deployment and the requests that a simulation of it takes."""

    run: MeasuredRun
    deployment: Deployment
    table: RequestTable
    warmup_s: float = 0.0
    until_s: float = math.inf
    """All requests are served; those sent in [warmup_s, until_s) are compared."""

    @property
    def counted(self) -> MeasuredRun:
        """The run's requests that are compared."""
        return self.run.sent_within(self.warmup_s, self.until_s)

    def simulate(self, constants: Constants | None = None) -> SimulationResult:
        """The run as its client sees it, start burst too, with step times of these constants or the deployment's."""
        simulation = self._start(constants)
        if not self.warmup_s:
            simulation.run()
            return self._seen_by_client(whole_run(simulation))
        simulation.run(self.warmup_s)
        before = snapshot(simulation)
        simulation.run()
        return self._seen_by_client(result_since(simulation, before))

    def _seen_by_client(self, result: SimulationResult) -> SimulationResult:
        waits = self.table.follows == NEXT_FREE
        lag_s = client_lag_s(self.run.tool, int((~waits).sum())) if waits.any() else 0.0
        times = result.times.where(result.times.arrival_s < self.until_s)
        return replace(result, times=replace(times, ttft_s=times.ttft_s + lag_s, e2e_s=times.e2e_s + lag_s))

    def simulation(self, constants: Constants | None = None) -> Simulation:
        """The whole run, with the sums over its batches."""
        simulation = self._start(constants)
        simulation.run()
        return simulation

    def _start(self, constants: Constants | None) -> Simulation:
        own = self.deployment.latency
        model = own if constants is None else latency_model(self.deployment.served, constants=constants)
        cold = own.step_times
        times = model.step_times.with_cold_start(cold.cold_start_s, cold.cold_stalls, cold.cold_apart_s)
        fleet = self.deployment.fleet(1, None).with_pools(lambda pool: replace(pool, step_times=times))
        return Simulation(fleet, self.table)


def replay(run: MeasuredRun, values: Settings | None = None) -> Replay:
    """The run ready to be simulated; `values` are options that win over what the run says of itself.

    Raises HeadcountError where the run lacks a model, a GPU or a load.
    """
    options = given(run.options, values or {})
    own_arguments({**_of_engine(values or {}), "engine": options.get("engine")})  # what the user gives is the engine's
    deployment = deployment_of(str(run.source), options)
    if (share := options.get("prefix_hit_rate")) is not None:
        run = replace(run, aggregates={**run.aggregates, "prefix_hit_rate": share})
    return Replay(
        run=run,
        deployment=deployment,
        table=_sent(run, options),
        warmup_s=options.get("warmup_s", 0.0),
        until_s=options.get("until_s", math.inf),
    )


def _sent(run: MeasuredRun, options: Settings) -> RequestTable:
    """The requests, with what the user says of their content."""
    share, path, spread = (options.get(name) for name in ("prefix_hit_rate", "workload", "length_spread"))
    if share is None and run.tool in COUNTED:
        share = run.aggregates.get("prefix_hit_rate")
    if path is None:
        table = request_table(run, length_spread=spread)
        return table if share is None else with_hit_rate(table, share)
    trace = load_workload(path, trace_block_size=options.get("trace_block_size"))
    if not isinstance(trace, Trace):
        raise HeadcountError(f"--workload {path}: is a population of users; give the trace that was sent")
    has_own = run.requests is not None and len(run.requests) > 0
    return requests_of_workload(run, request_table(run, length_spread=spread) if has_own else None, trace, path)


def given(said: Settings, values: Settings) -> dict[str, Any]:
    """What the source says of its server, with the user's options, which win; without what neither tells."""
    return {name: value for known in (said, values) for name, value in known.items() if value is not None}


def deployment_of(source: str, options: Settings) -> Deployment:
    """The replica of these options, among which a load's may stand. Raises HeadcountError without a model or a GPU."""
    for name in ("model", "gpu"):
        if not options.get(name):
            raise HeadcountError(f"{source} does not name its {name}; give --{name}")
    args = engine_args(_of_engine(options), is_shared=True)
    return resolve(options["model"], options["gpu"], args)


def _of_engine(options: Settings) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in argument_names()}


def request_table(run: MeasuredRun, *, length_spread: float | None = None) -> RequestTable:
    """What the run sent: its own requests where they are known, else the load it describes.

    A client with a concurrency sends the next request when one finishes; any other keeps the measured arrivals, or
    sends at its rate as `client_load` says. With
    `length_spread` lengths are drawn uniformly about the measured means. Raises ValueError where neither requests nor
    a load are known.
    """
    if run.requests is not None and len(run.requests):
        return _measured_requests(run, run.requests)
    return described_load(run, length_spread)


def _measured_requests(run: MeasuredRun, requests: pd.DataFrame) -> RequestTable:
    prompt, output = (requests[name].to_numpy(np.float64) for name in ("prompt_tokens", "output_tokens"))
    if not (np.isfinite(prompt).all() and np.isfinite(output).all()):
        raise HeadcountError(f"{run.source}: some requests have no prompt or output tokens; it cannot be replayed")
    lengths = {"prompt_tokens": np.maximum(prompt, 1), "output_tokens": np.maximum(output, 1)}
    arrival_s = requests["arrival_s"].to_numpy(np.float64)
    if math.isinf(run.load.get("rate", math.inf)) and waits_for_answers(run):
        waits = np.arange(len(requests)) >= int(run.load["concurrency"])
        table = independent_requests(
            arrival_s=np.where(waits, np.nan, 0.0), follows=np.where(waits, NEXT_FREE, NO_PREDECESSOR), **lengths
        )
    elif np.isfinite(arrival_s).all():
        table = independent_requests(arrival_s=arrival_s - arrival_s.min(), **lengths)
    elif "rate" in run.load and not math.isnan(run.load["rate"]):
        table = independent_requests(arrival_s=sent_s(run, run.load["rate"], len(requests)), **lengths)
    else:
        raise HeadcountError(
            f"{run.source}: requests have no arrival times, the load neither a concurrency nor a rate; give "
            "--rate, --concurrency or --duration"
        )
    return with_cached_prefixes(table, requests)


def measured_figures(run: MeasuredRun) -> dict[str, float]:
    """The run's figures under the names of `headcount simulate --json`; from its requests where they are known."""
    found = {name: float(value) for name, value in run.aggregates.items() if math.isfinite(value)}
    if run.requests is None or run.requests.empty:
        return found
    found |= latency_figures(run)
    arrival_s, e2e_s, output = (run.requests[name].to_numpy(float) for name in ("arrival_s", "e2e_s", "output_tokens"))
    ends_s = arrival_s + e2e_s
    if np.isfinite(ends_s).any() and (span_s := float(np.nanmax(ends_s) - np.nanmin(arrival_s))) > 0:
        found |= {"output_tokens_per_s": float(np.nansum(output)) / span_s, "requests_per_s": len(output) / span_s}
    return found


def simulated_figures(result: SimulationResult) -> dict[str, float]:
    """A result's figures under the same names."""
    found: dict[str, float] = {}
    for name, value in result.to_json().items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{key}": float(number) for key, number in value.items() if number is not None}
        elif value is not None:
            found[name] = float(value)
    return found


def client_lag_s(tool: str, concurrency: float) -> float:
    """Seconds by which TTFT and E2E of a closed loop are longer for its client than at the engine.

    A client of one process, and the API server, take the tokens of all streams one after the other: a first token waits
    for those of its step. 0 for other clients, which were not measured, or showed nothing of the kind at a rate.
    """
    return STREAM_S * concurrency if tool in ONE_PROCESS else 0.0
