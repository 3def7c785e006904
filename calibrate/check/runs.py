"""Measured runs beside simulations of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from calibrate.check.replay import Replay, measured_figures, simulated_figures
from calibrate.check.run_figures import LATENCIES, OF_REQUESTS, latency_samples
from calibrate.measured_run import MeasuredRun
from simulator.latency.step_time import FloatArray
from simulator.results import SimulationResult

STATISTICS = ("mean", "p50", "p90", "p99")
RATES = (
    "requests_per_s", "output_tokens_per_s", "running_mean", "waiting_mean", "num_preemptions", "kv_usage_mean",
    "kv_usage_max", "prefix_hit_rate",
)  # fmt: skip
FAILED_SHARE = 0.01  # of all requests: above, the server was overloaded
GROWTH = 3.0  # median TTFT of the last quarter over the first's: above, the queue grew
SERVED_SHARE = 0.9  # of the offered rate: below, the server did not keep up
COLD_S, SLOWEST, FEWEST_SLOW = 20.0, 0.01, 5  # a server's first seconds; of requests, by TTFT; of them, to say anything
COLD = (
    f"most of the slowest {SLOWEST:.0%} of requests came in the first {COLD_S:g} s, when a server still compiles "
    f"kernels and finds no prefix in its cache; --warmup {COLD_S:g}s leaves them out"
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure, in seconds, per second, or a share; `error_percent` None where the measured one is 0."""

    name: str
    measured: float
    simulated: float

    @property
    def error_percent(self) -> float | None:
        return 100 * (self.simulated / self.measured - 1) if self.measured else None

    def to_json(self) -> dict[str, object]:
        return {"measured": self.measured, "simulated": self.simulated, "error_percent": self.error_percent}


@dataclass(frozen=True, kw_only=True, eq=False)
class Checked:
    """A run, its figures, why it or its simulation counts as overloaded; with per-request latencies where known."""

    name: str
    load: Mapping[str, float]
    rows: tuple[Row, ...]
    measured_overload: tuple[str, ...]
    simulated_overload: tuple[str, ...]
    samples: Mapping[str, tuple[FloatArray, FloatArray]] = field(default_factory=dict)  # measured, simulated
    notes: tuple[str, ...] = ()

    @property
    def is_overloaded(self) -> bool:
        return bool(self.measured_overload)

    def row(self, name: str) -> Row | None:
        return next((row for row in self.rows if row.name == name), None)

    def to_json(self) -> dict[str, object]:
        return {
            "source": self.name,
            "load": dict(self.load),
            "overloaded": self.is_overloaded,
            "measured_overload": list(self.measured_overload),
            "simulated_overload": list(self.simulated_overload),
            "figures": {row.name: row.to_json() for row in self.rows},
            "notes": list(self.notes),
        }


def check_run(item: Replay) -> Checked:
    """The run's figures beside those of its simulation."""
    result, run = item.simulate(), item.counted
    measured, simulated = measured_figures(run), simulated_figures(result)
    names = [f"{latency}.{key}" for latency in LATENCIES for key in STATISTICS] + list(RATES)
    if run is not item.run:  # rates and gaps are simulated of all requests
        names = [f"{latency}.{key}" for latency in OF_REQUESTS for key in STATISTICS]
    return Checked(
        name=run.source.name,
        load={name: float(value) for name, value in run.load.items()},
        rows=tuple(
            Row(name=name, measured=measured[name], simulated=simulated[name])
            for name in names
            if name in measured and name in simulated
        ),
        measured_overload=measured_overload(run, measured),
        simulated_overload=() if "concurrency" in run.load else _growth(result.times.arrival_s, result.times.ttft_s),
        samples=_samples(run, result),
        notes=(
            *(f"{count:,} requests left out: {reason}" for reason, count in run.excluded.items()),
            *([COLD] if began_cold(run) else []),
        ),
    )


def measured_overload(run: MeasuredRun, figures: Mapping[str, float]) -> tuple[str, ...]:
    """Why a run says how a server fails, not how it serves; empty where it does not."""
    found = []
    failed = sum(count for reason, count in run.excluded.items() if "fail" in reason or "error" in reason)
    finished = len(run.requests) if run.requests is not None else run.load.get("num_requests", 0) - failed
    if failed > FAILED_SHARE * (failed + finished):
        found.append(f"{failed:,} of {failed + finished:,.0f} requests failed")
    offered, served = run.load.get("rate", math.inf), figures.get("requests_per_s", math.inf)
    if math.isfinite(offered) and run.requests is None and served < SERVED_SHARE * offered:
        found.append(f"{served:.3g} of {offered:.3g} requests/s were served")
    if run.requests is not None and "concurrency" not in run.load:
        found += _growth(run.requests["arrival_s"].to_numpy(float), run.requests["ttft_s"].to_numpy(float))
    return tuple(found)


def began_cold(run: MeasuredRun) -> bool:
    """Whether most of the slowest requests are among the run's first, and these are few."""
    if run.requests is None or run.requests["arrival_s"].isna().any():
        return False
    arrival_s, ttft_s = (run.requests[name].to_numpy(np.float64) for name in ("arrival_s", "ttft_s"))
    first = arrival_s - arrival_s.min() < COLD_S
    count = int(SLOWEST * len(ttft_s))
    if count < FEWEST_SLOW or first.mean() > 1 / 4:
        return False
    return bool(first[np.argsort(-np.nan_to_num(ttft_s))[:count]].mean() > 1 / 2)


def _growth(arrival_s: FloatArray, ttft_s: FloatArray) -> tuple[str, ...]:
    known = np.isfinite(arrival_s) & np.isfinite(ttft_s)
    waits = ttft_s[known][np.argsort(arrival_s[known], kind="stable")]
    if len(waits) < 20:
        return ()
    quarter = len(waits) // 4
    first, last = float(np.median(waits[:quarter])), float(np.median(waits[-quarter:]))
    if last <= GROWTH * first:
        return ()
    return (f"the queue grew: median TTFT {first:.3g} s in the first quarter, {last:.3g} s in the last",)


def _samples(run: MeasuredRun, result: SimulationResult) -> dict[str, tuple[FloatArray, FloatArray]]:
    if run.requests is None or not len(run.requests):
        return {}
    own, times = latency_samples(run), result.times
    pairs = {name: (own[name], getattr(times, name)) for name in OF_REQUESTS}
    finite = {name: tuple(side[np.isfinite(side)] for side in sides) for name, sides in pairs.items()}
    return {name: (sides[0], sides[1]) for name, sides in finite.items() if len(sides[0]) and len(sides[1])}


def summary_rows(checked: Sequence[Checked]) -> dict[str, dict[str, float]]:
    """Median and mean absolute error in percent, with the median signed one, per figure, over runs not overloaded."""
    found: dict[str, list[float]] = {}
    for item in checked:
        if not item.is_overloaded:
            for row in item.rows:
                if row.error_percent is not None:
                    found.setdefault(row.name, []).append(row.error_percent)
    return {
        name: {
            "runs": float(len(errors)),
            "median_percent": float(np.median(np.abs(errors))),
            "mean_percent": float(np.mean(np.abs(errors))),
            "bias_percent": float(np.median(errors)),
        }
        for name, errors in found.items()
    }
