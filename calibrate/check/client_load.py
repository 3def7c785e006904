"""The requests that a benchmark client sent, from the load and the figures that it wrote down.

How the clients space requests at a rate, by their sources:

* vLLM (vllm/benchmarks/serve.py, `get_request`): gamma gaps of `--burstiness`, an infinite one even gaps. Releases
  from 0.10 rescale them so that the last of n requests is sent n / rate after the start; older ones do not.
* SGLang (python/sglang/bench_serving.py, `get_request`) and aiperf (src/aiperf/timing): exponential gaps as drawn, in
  aiperf also even or gamma ones; the first request is sent at once.
* GuideLLM (src/guidellm/scheduler/strategies.py): even gaps, or exponential ones.
* inference-perf (inference_perf/loadgen/load_timer.py): exponential gaps rescaled to the stage's duration.

Gaps are random, so that a client's own sum is not known from its rate: of 200 requests it differs by 7 %. It is known
from the run: the last request was sent one response before the end.
"""

import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from calibrate.measured_run import COUNTED, MeasuredRun
from files.errors import HeadcountError
from workloads.arrivals import Bursty, arrival_times
from workloads.requests import FloatArray, RequestTable
from workloads.synthetic import closed_load, open_load

PROMPTS_PER_CLIENT = 10  # where a closed-loop source does not say how many requests it sent
SEED = 0  # of the gaps
LIKELY_SDS = 4.0  # standard deviations of a sum of gaps: a run that lasted longer was held up by the server
KEPT_UP = 0.95  # of the asked rate: a client with a concurrency that sent fewer waited for its answers

MOST_COUNTED = 20_000  # requests that stand for all that a server counted

_WAY_OUT = (
    "give the trace that was sent (--workload TRACE), or check the result file of a benchmark client, which tells its "
    "load"
)
_LOAD_UNKNOWN = (
    "its load is unknown: give --rate (requests/s), --concurrency (requests in flight) or --duration (time that they "
    "came in), or give the trace that was sent (--workload TRACE); a recording of a live server tells its load "
    "(headcount calibrate record --url)"
)


def with_load(run: MeasuredRun, load: Mapping[str, float]) -> MeasuredRun:
    """The run with a load that the user tells: `rate`, `concurrency` or `duration_s`.

    Raises HeadcountError where the run tells its own.
    """
    if not load:
        return run
    ((given, value),) = load.items()
    option = f"--{given.removesuffix('_s')}"
    own = [name for name in ("rate", "concurrency") if not math.isnan(run.load.get(name, math.nan))]
    if own:
        raise HeadcountError(f"{run.source} tells its own load ({own[0]} {run.load[own[0]]:g}); leave {option} out")
    if run.requests is not None and run.requests["arrival_s"].notna().all():
        raise HeadcountError(f"{run.source} says when each request was sent; leave {option} out")
    if given != "duration_s":
        return replace(run, load={**run.load, given: value})
    count = len(run.requests) if run.requests is not None else _count(run)
    if not count:
        raise HeadcountError(f"{run.source} does not say how many requests it holds; give --rate instead of {option}")
    return replace(run, load={**run.load, "rate": count / value})


def _count(run: MeasuredRun) -> int:
    """How many requests a run without them says that it had; 0 where it does not say."""
    return int(run.load.get("num_requests", run.aggregates.get("num_finished", 0)))


def described_load(run: MeasuredRun, length_spread: float | None) -> RequestTable:
    """What the load of a run without requests says. Raises HeadcountError where it says too little."""
    load = {name: value for name, value in run.load.items() if not math.isnan(value)}
    lengths = [load.get("input_len", math.nan), load.get("output_len", math.nan)]
    if not all(map(math.isfinite, lengths)):
        raise HeadcountError(f"{run.source}: neither requests nor input and output lengths are known; {_WAY_OUT}")
    spread = length_spread if length_spread is not None else load.get("length_spread", 1.0)
    longest = [max(round(2 * float(mean) / (1 + spread)), 1) for mean in lengths]  # a source tells mean lengths
    shared: dict[str, Any] = {"input_len": longest[0], "output_len": longest[1], "length_spread": spread}
    concurrency, rate = load.get("concurrency"), load.get("rate")
    most = MOST_COUNTED if run.tool in COUNTED else sys.maxsize
    if concurrency is not None and waits_for_answers(run):
        number = min(int(load.get("num_requests") or PROMPTS_PER_CLIENT * concurrency), most)
        return closed_load(concurrency=min(int(concurrency), number), num_requests=number, **shared)
    count = min(_count(run), most)
    if rate is None:
        raise HeadcountError(f"{run.source}: {_LOAD_UNKNOWN}")
    if not count:
        raise HeadcountError(f"{run.source}: it does not say how many requests it sent; {_WAY_OUT}")
    table = open_load(rate_per_s=math.inf, num_requests=count, **shared)
    return replace(table, arrival_s=sent_s(run, rate, count))


def waits_for_answers(run: MeasuredRun) -> bool:
    """Whether the client's concurrency decided when it sent, rather than its rate."""
    load, figures = run.load, run.aggregates
    if not math.isfinite(load.get("concurrency", math.nan)):
        return False
    rate = load.get("rate", math.inf)
    return not math.isfinite(rate) or figures.get("requests_per_s", rate) < KEPT_UP * rate


def sent_s(run: MeasuredRun, rate: float, count: int) -> FloatArray:
    """[count] when a client sends at a rate: gaps as it draws them, over the time that it sent in."""
    if math.isinf(rate):
        return np.zeros(count)
    burstiness = run.load.get("burstiness", 1.0)
    times_s: FloatArray
    if math.isinf(burstiness):
        times_s = np.arange(count) / rate
    else:
        times_s = arrival_times(Bursty(burstiness=burstiness), rate, count, SEED)
    times_s = times_s - times_s[0]
    if count == 1:
        return times_s
    times_s *= sending_s(run, rate, count, burstiness) / times_s[-1]
    return times_s


def sending_s(run: MeasuredRun, rate: float, count: int, burstiness: float = 1.0) -> float:
    """From the first request to the last: what the run's duration leaves, else what its rate asks for."""
    asked_s = (count - 1) / rate
    figures = run.aggregates
    if run.tool in COUNTED:  # a server serves on after the last snapshot
        return asked_s
    finished = figures.get("num_finished", count)
    duration_s = figures.get("duration_s", finished / figures["requests_per_s"] if figures.get("requests_per_s") else 0)
    found_s = duration_s - _response_s(figures, run.load)
    likely = LIKELY_SDS / math.sqrt(count * (1 if math.isinf(burstiness) else burstiness)) + 1 / count
    return found_s if found_s > 0 and abs(found_s - asked_s) <= likely * asked_s else asked_s


def _response_s(figures: Mapping[str, float], load: Mapping[str, float]) -> float:
    """A request's mean time, or its median's where means are not told; 0 where neither is."""
    for statistic in ("mean", "p50"):
        if (e2e_s := figures.get(f"e2e_s.{statistic}")) is not None:
            return e2e_s
        step_s = figures.get(f"tpot_s.{statistic}", figures.get(f"itl_s.{statistic}"))
        if (ttft_s := figures.get(f"ttft_s.{statistic}")) is not None and step_s is not None:
            return ttft_s + step_s * max(load.get("output_len", 1.0) - 1, 0.0)
    return 0.0
