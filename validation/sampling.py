"""How often 95 % sampling intervals hold the truth: `python -m validation.sampling [--case NAME] [--seeds 200]`.

Each case is asked with many seeds, as `headcount capacity` asks it; what is stored is not asked again. The truth is
exact where queueing theory has it, else an estimate from TRUTH_REPLICATIONS replications, each TRUTH_TIMES as long,
with seeds of their own. `python -m validation.pages` then writes the table. The case of a trace needs `../shared/data`.
"""

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from headcount.inputs.reading.deployments import resolve_model_and_gpu
from simulator.deployment import layouts
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.fleet import Fleet, Pool
from simulator.latency.step_time import constant_step_times
from simulator.study.capacity import find_capacity
from simulator.study.estimate import stationary_load
from simulator.study.loads import WARMUP_SHARE, Drawn, Load, TraceLoad, UserLoad, replication_seed
from simulator.study.points import Evaluator
from simulator.study.slo import SLO
from simulator.study.statistics import t_interval
from validation.markdown import DOCS, table
from workloads.load import load_workload
from workloads.requests import RequestTable, independent_requests
from workloads.traces.trace import Trace

STORED = DOCS / "measurements" / "results" / "sampling.json"
TRUTH_REPLICATIONS, TRUTH_TIMES, TRUTH_SEED = 288, 8, 1_000_003
AZURE = Path("../shared/data/traces/azure_llm_2023_conv.parquet")
STEP_S, STEPS = 0.01, 100  # of a constant step, of a mean answer: 1 s
WAIT = SLO(ttft_s=1.0, tpot_s=None)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A question whose answer is known."""

    title: str
    fleet: Fleet
    load: Load
    slo: SLO
    guess: float
    exact: float | None = None


@dataclass(frozen=True, kw_only=True)
class PoissonLoad(TraceLoad):
    """Requests of one token, each replication drawn anew; how long an answer takes, chance decides."""

    answers: Callable[[np.random.Generator, int], Any]

    def draw(self, size: float, replication: int, *, patience: int = 0) -> Drawn:
        horizon_s = self.horizon_s(size)
        count = math.ceil(1.2 * size * horizon_s)
        rng = np.random.default_rng(replication_seed(self.seed, replication))
        table = _requests(np.cumsum(rng.exponential(1.0, count)) / size, self.answers(rng, count))
        judged = (table.arrival_s >= WARMUP_SHARE * horizon_s) & (table.arrival_s < horizon_s)
        return Drawn(table=table, surplus=(float(judged.sum()) / (size * (1 - WARMUP_SHARE) * horizon_s) - 1,))


def _requests(arrival_s: Any, output_tokens: Any) -> RequestTable:
    return independent_requests(arrival_s=arrival_s, prompt_tokens=np.ones(len(arrival_s)), output_tokens=output_tokens)


def poisson(
    answers: Callable[[np.random.Generator, int], Any], *, slots: int, guess: float, exact: float, seed: int
) -> Case:
    """As many slots as servers, and steps of one length."""
    engine = EngineConfig(
        num_gpu_blocks=200_000, max_model_len=10**6, max_num_seqs=slots, max_num_batched_tokens=64,
        enable_prefix_caching=False, async_scheduling=False,
    )  # fmt: skip
    times = constant_step_times(STEP_S, max_num_batched_tokens=64, max_num_seqs=slots)
    shape = Trace(name="poisson", format="drawn", table=_requests(np.arange(2.0), np.full(2, STEPS)), source="drawn")
    return Case(
        title="", fleet=Fleet(pools=(Pool(engine=engine, step_times=times),)), slo=WAIT, guess=guess, exact=exact,
        load=PoissonLoad(trace=shape, think_time_s=0.0, seed=seed, answers=answers),
    )  # fmt: skip


def m_m_c(slots: int, seed: int) -> Case:
    """P(wait > t) is Erlang's C times exp(-(c / S - λ) t)."""
    mean_s = STEPS * STEP_S
    wait_s = 1.0 - 1.5 * STEP_S  # the first token comes a step later; steps of all slots begin together

    def late(rate: float) -> float:
        load = rate * mean_s
        last = load**slots / math.factorial(slots) * slots / (slots - load)
        waits = last / (sum(load**k / math.factorial(k) for k in range(slots)) + last)
        return waits * math.exp(-(slots / mean_s - rate) * wait_s) - 0.05

    exact = brentq(late, 0.01 * slots, 0.999 * slots)
    found = poisson(lambda rng, n: rng.geometric(1 / STEPS, n), slots=slots, guess=0.8 * exact, exact=exact, seed=seed)
    return replace(found, title=f"M/M/{slots}, wait ≤ 1 s")


def m_d_1(seed: int) -> Case:
    """P(wait > t) by Erlang's series, for t of one service or less: 1 - (1 - ρ) exp(λ t)."""
    wait_s = 1.0 - STEP_S  # the first token comes a step later
    exact = brentq(lambda rate: 1 - (1 - rate) * math.exp(rate * wait_s) - 0.05, 0.01, 0.99)
    found = poisson(lambda _, n: np.full(n, STEPS), slots=1, guess=0.8 * exact, exact=exact, seed=seed)
    return replace(found, title="M/D/1, wait ≤ 1 s")


def azure() -> Trace:
    rows = pd.read_parquet(AZURE)
    table = independent_requests(
        arrival_s=rows.arrival_s.to_numpy(),
        prompt_tokens=rows.input_tokens.to_numpy(),
        output_tokens=rows.output_tokens.to_numpy(),
    )
    return Trace(name="Azure 2023", format="azure", table=table, source=str(AZURE))


def served(title: str, model: str, seed: int, *, gpus: int, tp: int, guess: float, workload: str = "chat") -> Case:
    """A deployment of H100 under a workload."""
    asked = resolve_model_and_gpu(model, "h100-sxm", {"tensor_parallel_size": tp})
    (plan,) = (each for each in layouts(asked.architecture, asked.gpu, asked.args, num_gpus=gpus).values() if each)
    assert not isinstance(plan, str), plan
    found = azure() if workload == "azure" else load_workload(workload)
    load: Load
    if isinstance(found, Trace):
        load = TraceLoad(trace=found, think_time_s=84.0, seed=seed)
    else:
        load = UserLoad(population=found, max_model_len=plan.engine.max_model_len, seed=seed)
    replicas = gpus // plan.gpus
    load = stationary_load(load, plan, replicas, SLO())
    return Case(title=title, fleet=plan.fleet(replicas, "least-outstanding"), load=load, slo=SLO(), guess=guess)


CASES: dict[str, Callable[[int], Case]] = {
    "m-m-8": partial(m_m_c, 8),
    "m-d-1": m_d_1,
    "chat-1": partial(served, "chat, Llama-3.1-8B on 1 × H100", "llama-3.1-8b", gpus=1, tp=1, guess=480.0),
    "chat-4": partial(served, "chat, Llama-3.1-8B on 4 × H100", "llama-3.1-8b", gpus=4, tp=1, guess=2000.0),
    "70b": partial(served, "chat, Llama-3.1-70B on 4 × H100, TP 4", "llama-3.1-70b", gpus=4, tp=4, guess=190.0),
    "azure": partial(
        served, "Azure 2023, Llama-3.1-8B on 1 × H100", "llama-3.1-8b", gpus=1, tp=1, guess=8.0, workload="azure"
    ),
}


@cache
def truth(name: str) -> float:
    """The exact capacity, or one from many replications at loads next to it."""
    if name in stored():
        return float(stored()[name]["truth"])
    case = CASES[name](TRUTH_SEED)
    if case.exact is not None:
        return case.exact
    length_s = TRUTH_TIMES * case.load.horizon_s(case.guess)
    longer = replace(case.load, min_horizon_s=length_s)  # type: ignore[type-var]  # both loads are dataclasses
    evaluator = evaluator_of(replace(case, load=longer))
    found = find_capacity(evaluator, case.guess, replications=TRUTH_REPLICATIONS)
    assert found.knee is not None
    return found.knee.interval().mean


def evaluator_of(case: Case) -> Evaluator:
    return Evaluator(fleet=case.fleet, load=case.load, slo=case.slo)


def answer(case: Case) -> dict[str, Any]:
    """The capacity as it is found, with its interval, and how many simulations that took."""
    evaluator = evaluator_of(case)
    found = find_capacity(evaluator, case.guess)
    assert found.knee is not None, f"{case.title}: nobody is served"
    interval = found.knee.interval()
    simulations = sum(len(point.replications) for point in evaluator.points())
    return {"mean": interval.mean, "low": interval.low, "high": interval.high, "runs": simulations}


def stored() -> dict[str, Any]:
    return json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}


def keep(name: str, found: list[dict[str, Any]]) -> None:
    """Beside the other cases, each a line, rounded: what is below a thousandth says nothing."""
    rounded = [{key: float(f"{value:.6g}") for key, value in each.items()} for each in found]
    case = {"title": CASES[name](0).title, "truth": truth(name), "answers": rounded}
    kept = stored() | {name: case}
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(each)}" for key, each in kept.items())
    STORED.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def summary_row(case: dict[str, Any]) -> tuple[str, ...]:
    truth, found = case["truth"], case["answers"]
    held = sum(each["low"] <= truth <= each["high"] for each in found) / len(found)
    above = sum(each["low"] > truth for each in found) / len(found)
    ratios = t_interval([math.log(each["mean"] / truth) for each in found])
    widths = float(np.median([each["high"] / each["mean"] - 1 for each in found]))
    runs = float(np.mean([each["runs"] for each in found]))
    return (
        case["title"], f"{truth:,.4g}", str(len(found)), f"{held:.1%}", f"{above:.1%}", f"{ratios.mean:+.1%}",
        f"±{widths:.1%}", f"{runs:.0f}",
    )  # fmt: skip


HEADS = ("case", "truth", "seeds", "interval holds it", "low end above it", "bias", "half-width", "simulations")


def page_tables() -> dict[str, Callable[[], str]]:
    """The table of docs/measurements/sampling.md."""
    return {"sampling": lambda: table(HEADS, [summary_row(case) for case in stored().values() if case["answers"]])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--seeds", type=int, default=200)
    asked = parser.parse_args()
    for name in asked.case or CASES:
        found: list[dict[str, Any]] = stored().get(name, {}).get("answers", [])
        for seed in range(len(found), asked.seeds):
            found.append({"seed": seed} | answer(CASES[name](seed)))
            if len(found) % 10 == 0 or len(found) == asked.seeds:
                keep(name, found)
                print(name, *summary_row(stored()[name]), sep="  ", flush=True)


if __name__ == "__main__":
    main()
