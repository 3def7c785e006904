"""Whether fitted models answer as their traces do: `python -m validation.fitted_traces [--case NAME …]`.

Each case is a trace and a model fitted to it, or to its first half and asked beside the second. Both are asked for
their capacity, as `headcount capacity` asks, and for the TTFT of one replay at 80 % of the trace's capacity. How well
the trace itself tells its capacity is found from traces resampled from it (`--own-error` measures that alone).
`python -m validation.pages` then writes the table. The traces are those of `../shared/data`.
"""

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from headcount.inputs.reading.deployments import resolve_model_and_gpu
from simulator.deployment import layouts
from simulator.fleet.fleet import Fleet
from simulator.results import whole_run
from simulator.simulation import Simulation
from simulator.study.capacity import find_capacity
from simulator.study.loads import TraceLoad
from simulator.study.points import Evaluator
from simulator.study.slo import SLO
from validation.markdown import DOCS, table
from workloads.arrivals import POISSON, arrival_times
from workloads.fitted.fitting import fit_trace
from workloads.load import drawn_trace, load_workload
from workloads.requests import independent_requests
from workloads.traces.resampled import Resampling
from workloads.traces.times import spread_in_ticks
from workloads.traces.trace import Trace

STORED = DOCS / "measurements" / "results" / "fitted-traces.json"
TRACES = Path("../shared/data/traces")
THINK_TIME_S = 84.0
AT = 0.8  # of the trace's capacity
DRAWS = 5  # of each model, the first one being what `--workload` takes
RESAMPLED = 20  # draws of a trace for its own error
USUAL, LONG = SLO(), SLO(ttft_s=10.0, tpot_s=0.1)
_BY_ROW = ("arrival_s", "follows", "think_s", "prompt_tokens", "output_tokens", "priority", "span_start", "span_count")


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is asked of which trace, and what the model is fitted to."""

    title: str
    asked: Callable[[], Trace]
    fitted_to: Callable[[], Trace] | None = None
    """None: the trace itself."""
    gpus: int = 1
    slo: SLO = USUAL
    guess: float


def recorded(name: str) -> Trace:
    found = load_workload(TRACES / f"{name}.parquet")
    assert isinstance(found, Trace)
    return found


def spread(name: str) -> Trace:
    """At times that are spread evenly over the ticks to which the recorded ones are rounded."""
    return spread_in_ticks(recorded(name))


def half(name: str, which: int) -> Trace:
    """The first or the second half of the requests, in order of arrival, from time 0."""
    found = recorded(name)
    order = np.argsort(found.table.arrival_s, kind="stable")
    rows = np.array_split(order, 2)[which]
    part = {name: getattr(found.table, name)[rows] for name in _BY_ROW}
    part["arrival_s"] = part["arrival_s"] - part["arrival_s"].min()
    return replace(found, name=f"{name}, half {which + 1}", table=replace(found.table, **part))


def lengths_alone(name: str) -> Trace:
    """Recorded lengths at Poisson times, one request per second."""
    rows = pd.read_parquet(TRACES / f"{name}.parquet")
    times = independent_requests(
        arrival_s=arrival_times(POISSON, 1.0, len(rows), 0),
        prompt_tokens=rows.input_tokens.to_numpy(),
        output_tokens=rows.output_tokens.to_numpy(),
    )
    return Trace(name=name, format="lengths", table=times, source=name)


CASES: dict[str, Case] = {
    "azure": Case(title="Azure 2023, conversation", asked=partial(recorded, "azure_llm_2023_conv"), guess=15.0),
    "sharegpt": Case(
        title="ShareGPT, single prompts", asked=partial(lengths_alone, "sharegpt_val10k_lengths_llama2"), guess=25.0
    ),
    "sharegpt-8k": Case(
        title="ShareGPT, whole contexts", asked=partial(lengths_alone, "sharegpt_lengths_llama2_8k"), guess=10.0
    ),
    "mooncake": Case(
        title="Mooncake, conversation", asked=partial(recorded, "mooncake_conversation"), gpus=2, slo=LONG, guess=2.5
    ),
    "mooncake-spread": Case(
        title="Mooncake, conversation, `--spread-ticks`", asked=partial(spread, "mooncake_conversation"), gpus=2,
        slo=LONG, guess=2.5,
    ),
    "mooncake-1000": Case(
        title="Mooncake, older trace's first 1,000, `--spread-ticks`",
        asked=partial(spread, "mooncake_arxiv_first1000"), gpus=2, slo=LONG, guess=3.0,
    ),
    "arxiv": Case(
        title="arXiv summarization", asked=partial(lengths_alone, "arxiv_summarization_lengths_llama2"), guess=8.0
    ),
    "azure-halves": Case(
        title="Azure 2023: model of the first half, asked beside the second",
        asked=partial(half, "azure_llm_2023_conv", 1), fitted_to=partial(half, "azure_llm_2023_conv", 0), guess=15.0,
    ),
    "mooncake-halves": Case(
        title="Mooncake: model of the first half, asked beside the second",
        asked=partial(half, "mooncake_conversation", 1), fitted_to=partial(half, "mooncake_conversation", 0),
        gpus=2, slo=LONG, guess=2.5,
    ),
}  # fmt: skip


def fleet_of(case: Case) -> Fleet:
    """Llama-3.1-8B, one on each H100."""
    asked = resolve_model_and_gpu("llama-3.1-8b", "h100-sxm", {"tensor_parallel_size": 1})
    (plan,) = layouts(asked.architecture, asked.gpu, asked.args, num_gpus=case.gpus).values()
    assert plan is not None and not isinstance(plan, str), plan
    return plan.fleet(case.gpus, "least-outstanding")


def capacity(case: Case, trace: Trace, fleet: Fleet) -> dict[str, float]:
    """Requests per second at the SLO, with their sampling interval."""
    load = TraceLoad(trace=trace, think_time_s=THINK_TIME_S, seed=0)
    found = find_capacity(Evaluator(fleet=fleet, load=load, slo=case.slo), case.guess)
    assert found.knee is not None, f"{case.title}: nobody is served"
    interval = found.knee.interval()
    return {"rate": interval.mean, "low": interval.low, "high": interval.high}


def own_error(case: Case, fleet: Fleet) -> dict[str, float]:
    """The 90 % interval of the trace's rate as another recording of the same users might have given it.

    The spread is that of the logarithm of the rates of resampled traces. Their mean is kept, not used: resampling loses
    some sharing of prefixes.
    """
    asked = case.asked()
    rate = capacity(case, asked, fleet)["rate"]
    resampling = Resampling(asked)
    logs = np.log([capacity(case, resampling.drawn(seed), fleet)["rate"] for seed in range(RESAMPLED)])
    deviation = float(logs.std(ddof=1))
    reach = float(stdtrit(RESAMPLED - 1, 0.95)) * deviation
    return {
        "deviation": deviation, "resampled_mean": float(np.exp(logs.mean())),
        "low": rate * math.exp(-reach), "high": rate * math.exp(reach),
    }  # fmt: skip


def ttft_s(trace: Trace, fleet: Fleet, rate_per_s: float) -> dict[str, float]:
    """Percentiles of one replay of the whole trace at that rate."""
    simulation = Simulation(fleet, trace.table.scaled_arrivals(rate_per_s / trace.requests_per_s), seed=0)
    simulation.run()
    times = whole_run(simulation).times.ttft_s
    return {"ttft_p50_s": float(np.nanpercentile(times, 50)), "ttft_p95_s": float(np.nanpercentile(times, 95))}


def measured(case: Case) -> dict[str, Any]:
    """The trace's and the model's figures; of halves also those of the first half itself."""
    fleet, asked = fleet_of(case), case.asked()
    fitted_to = asked if case.fitted_to is None else case.fitted_to()
    model = fit_trace(fitted_to)
    traces = {"trace": asked, "model": drawn_trace(model)}
    if case.fitted_to is not None:
        traces["first half"] = fitted_to
    found = {name: capacity(case, trace, fleet) for name, trace in traces.items()}
    others = [capacity(case, drawn_trace(model, seed=seed), fleet)["rate"] for seed in range(1, DRAWS)]
    rates = (found["model"]["rate"], *others)
    found["model"] |= {"lowest": min(rates), "highest": max(rates)}
    rate = AT * found["trace"]["rate"]
    return {name: found[name] | ttft_s(trace, fleet, rate) for name, trace in traces.items()}


def stored() -> dict[str, Any]:
    return json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}


def keep(name: str, found: dict[str, Any]) -> None:
    """Beside the other cases, each a line."""
    rounded = {of: {key: float(f"{value:.5g}") for key, value in each.items()} for of, each in found.items()}
    rounded = stored().get(name, {"found": {}})["found"] | rounded
    kept = stored() | {name: {"title": CASES[name].title, "found": rounded}}
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(kept[key])}" for key in CASES if key in kept)
    STORED.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def rows_of(case: dict[str, Any]) -> list[tuple[str, ...]]:
    """The model's row; of halves also that of the first half, replayed as it is."""
    found = case["found"]
    return [_row(case["title"], found, name) for name in ("model", "first half") if name in found]


def _row(title: str, found: dict[str, dict[str, float]], name: str) -> tuple[str, ...]:
    trace, other, own = found["trace"], found[name], found.get("own error", found["trace"])
    rate, ttft = (other[key] / trace[key] - 1 for key in ("rate", "ttft_p95_s"))
    is_within = abs(rate) <= 0.05 or (other["low"] <= own["high"] and own["low"] <= other["high"])
    return (
        title if name == "model" else f"{title}: the first half replayed instead",
        f"{trace['rate']:.3g} ({trace['low']:.3g} to {trace['high']:.3g})",
        "" if own is trace else f"{own['low']:.3g} to {own['high']:.3g}",
        f"{other['rate']:.3g} ({other['low']:.3g} to {other['high']:.3g})",
        f"{rate:+.1%}",
        f"{other['lowest'] / trace['rate'] - 1:+.1%} to {other['highest'] / trace['rate'] - 1:+.1%}"
        if "lowest" in other
        else "",
        *(f"{each['ttft_p95_s']:.3g}" for each in (trace, other)),
        f"{ttft:+.1%}",
        " and ".join(
            what for what, missed in (("rate", not is_within), ("TTFT", abs(ttft) > 0.15)) if missed
        ) or "–",
    )  # fmt: skip


HEADS = (
    "case", "requests/s at the SLO: trace", "the trace's own error", "model", "off by", "five draws",
    "TTFT p95, s: trace", "model", "off by", "bar missed",
)  # fmt: skip


def fitted_tables() -> dict[str, Callable[[], str]]:
    """The table of docs/measurements/fitted-traces.md."""
    return {"fitted": lambda: table(HEADS, [row for case in stored().values() for row in rows_of(case)])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--own-error", action="store_true", help="keep the other figures as they are")
    given = parser.parse_args()
    for name in given.case or CASES:
        case = CASES[name]
        keep(name, {"own error": own_error(case, fleet_of(case))} if given.own_error else measured(case))
        for row in rows_of(stored()[name]):
            print(*row, sep="  ", flush=True)


if __name__ == "__main__":
    main()
