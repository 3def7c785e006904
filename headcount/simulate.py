"""Which load `headcount simulate` was asked for, served."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.cli.out_files import check_out_file, whole_file
from headcount.load_warnings import check_clock, check_room, warn_cut_answers
from simulator.fleet.fleet import Fleet
from simulator.latency.model import AverageStep, LatencyModel, average_step
from simulator.results import Result, request_times, whole_run
from simulator.simulation import Simulation
from simulator.study.loads import UserLoad
from simulator.study.replication import simulate_users
from workloads.load import load_workload
from workloads.population import Population
from workloads.requests import RequestTable
from workloads.synthetic import closed_load, open_load, single_turn_users
from workloads.trace import Trace

MAX_USERS = 1_000_000
REQUEST_COLUMNS = (
    "id", "replica", "arrival_s", "scheduled_s", "first_token_s", "finish_s", "ttft_s", "tpot_s", "e2e_s",
    "prompt_tokens", "output_tokens", "cached_tokens", "preemptions",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Served:
    """A result with what it answers, in words."""

    result: Result
    description: str
    step: AverageStep
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Files to write beside the answer; each appears whole or not at all."""

    requests: Path | None = None
    steps: Path | None = None

    def check(self, num_engines: int) -> None:
        """Raise ValueError before any work if a file cannot be written."""
        for option, path in (("--requests-out", self.requests), ("--steps-out", self.steps)):
            if path is not None:
                check_out_file(option, path)
        if self.steps is not None and self.requests is not None and self.steps.resolve() == self.requests.resolve():
            raise ValueError(f"--requests-out and --steps-out both name {self.steps}; give each its own file")
        if self.steps is not None and num_engines > 1:
            raise ValueError("--steps-out shows one engine's decisions; use it with --replicas 1 without -dp")

    def write(self, simulation: Simulation) -> None:
        if self.requests is not None:
            _write_lines(self.requests, _request_lines(simulation))
        if self.steps is not None:
            _write_lines(self.steps, (json.dumps(step.to_json()) + "\n" for step in simulation.steps))


def serve(fleet: Fleet, values: dict[str, Any], outputs: Outputs) -> Served:
    """Find the load in a command's options and serve it. Raises ValueError for a combination that is none."""
    _check_one_load(values)
    if values["users"] is not None:
        return _serve_users(fleet, values, outputs)
    table, description = _table(values)
    warn_cut_answers(table, fleet.engine.max_model_len)
    simulation = Simulation(fleet, table, log_steps=outputs.steps is not None)
    simulation.run()
    result = whole_run(simulation)
    check_clock(result.end_s)
    outputs.write(simulation)
    return Served(
        result=result,
        description=description,
        step=average_step(simulation.totals),
        notes=("every request counts, the start too",),
    )


def answer_json(served: Served, latency: LatencyModel) -> dict[str, Any]:
    """The result, with the 90 % intervals of mean TTFT and TPOT; null where the times were given."""
    found = served.result.to_json()
    for name, error in (("ttft_s", latency.ttft_log_error), ("tpot_s", latency.tpot_log_error)):
        known = None if latency.is_given else error.interval(found[name]["mean"], served.step.sequences)
        found[name] |= dict(zip(("mean_low", "mean_high"), known or (None, None), strict=True))
    return found


_LENGTHS = ("input_len", "output_len", "length_spread")
_LOADS = {  # what makes a load, what belongs to it
    "users": ("workload", "think_time", *_LENGTHS),
    "concurrency": ("num_requests", *_LENGTHS),
    "rate": ("burstiness", "num_requests", *_LENGTHS),
    "workload": ("num_requests",),
}


def _check_one_load(values: dict[str, Any]) -> None:
    load = next((name for name in _LOADS if values[name] is not None), None)
    if load is None:
        raise ValueError("no load; give --workload FILE, --users N, --concurrency C or --rate R (see --help)")
    belongs = ("workload", "think_time") if load == "users" and values["workload"] is not None else _LOADS[load]
    known = dict.fromkeys(name for key, others in _LOADS.items() for name in (key, *others))
    foreign = [name for name in known if values[name] is not None and name not in (load, *belongs)]
    if foreign:
        beside = " --workload" if "length_spread" not in belongs and load == "users" else ""
        given = " and ".join(map(_flag, foreign))
        raise ValueError(f"{given} cannot go with {_flag(load)}{beside}; leave out one or the other")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _serve_users(fleet: Fleet, values: dict[str, Any], outputs: Outputs) -> Served:
    if values["users"] > MAX_USERS:
        raise ValueError(f"--users {values['users']:,}: at most {MAX_USERS:,} in one run; simulate a part of the fleet")
    if values["workload"] is None and values["input_len"] and values["output_len"]:
        check_room(values["input_len"], values["output_len"], fleet.engine.max_model_len)
    load = UserLoad(population=_population(values), max_model_len=fleet.engine.max_model_len, seed=values["seed"])
    simulation, result = simulate_users(fleet, load, values["users"], log_steps=outputs.steps is not None)
    check_clock(result.end_s)
    outputs.write(simulation)
    return Served(
        result=result,
        step=average_step(simulation.totals),
        description=f"{values['users']:,} users, think time {load.think_time_s:.0f} s on average",
        notes=(f"warm-up of {result.start_s:,.0f} s removed (MSER-5), {result.end_s:,.0f} s simulated",),
    )


def _population(values: dict[str, Any]) -> Population:
    if values["workload"] is None:
        lengths = _lengths(values, "--users")
        if values["think_time"] is None:
            raise ValueError("--users needs --think-time, or a preset with its own: --workload chat")
        return single_turn_users(think_time_s=values["think_time"], **lengths)
    workload = load_workload(values["workload"], trace_block_size=values["trace_block_size"])
    if isinstance(workload, Trace):
        raise ValueError(f"--users cannot be set for a trace: '{values['workload']}' brings its own arrivals")
    return workload if values["think_time"] is None else workload.with_think_time(values["think_time"])


def _table(values: dict[str, Any]) -> tuple[RequestTable, str]:
    if values["workload"] is not None:
        return _trace_table(values)
    if values["concurrency"] is not None:
        concurrency = values["concurrency"]
        count = values["num_requests"] or 10 * concurrency
        lengths = _lengths(values, "--concurrency")
        table = closed_load(concurrency=concurrency, num_requests=count, seed=values["seed"], **lengths)
        return table, f"{concurrency:,} clients without think time, {count:,} requests"
    if values["num_requests"] is None:
        raise ValueError("--rate needs --num-requests: an open load has no end of its own")
    table = open_load(
        rate_per_s=values["rate"],
        num_requests=values["num_requests"],
        burstiness=1.0 if values["burstiness"] is None else values["burstiness"],
        seed=values["seed"],
        **_lengths(values, "--rate"),
    )
    return table, f"{values['rate']:g} requests/s, {values['num_requests']:,} requests"


def _trace_table(values: dict[str, Any]) -> tuple[RequestTable, str]:
    workload = load_workload(values["workload"], trace_block_size=values["trace_block_size"])
    if isinstance(workload, Population):
        raise ValueError(f"--workload {values['workload']} is a population; say how many with --users N")
    table = workload.table if values["num_requests"] is None else workload.table.head(values["num_requests"])
    return table, f"{workload.name}, {table.num_requests:,} requests replayed"


def _lengths(values: dict[str, Any], load: str) -> dict[str, Any]:
    if values["input_len"] is None or values["output_len"] is None:
        raise ValueError(f"{load} needs --input-len and --output-len, or a --workload")
    return {name: values[name] for name in _LENGTHS if values[name] is not None}


def _request_lines(simulation: Simulation) -> Iterable[str]:
    requests, times = simulation.requests, request_times(simulation.requests)
    columns: dict[str, Any] = {
        "id": range(len(requests)), "ttft_s": times.ttft_s, "tpot_s": times.tpot_s, "e2e_s": times.e2e_s,
        "prompt_tokens": requests["prompt"], "output_tokens": requests["output"],
    }  # fmt: skip
    yield ",".join(REQUEST_COLUMNS) + "\n"
    cells = [columns[name] if name in columns else requests[name] for name in REQUEST_COLUMNS]
    for row in zip(*(column.tolist() if hasattr(column, "tolist") else column for column in cells), strict=True):
        yield ",".join("" if math.isnan(value) else str(value) for value in row) + "\n"


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    with whole_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(lines)
