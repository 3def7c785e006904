"""What a run showed: the waist between simulating and printing."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.core import layout
from simulator.simulation import Simulation
from simulator.statistics import histogram_summary, summary

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class RequestTimes:
    """Latencies of requests, in seconds; NaN where a request is not so far, or has one token only (TPOT)."""

    arrival_s: FloatArray
    ttft_s: FloatArray
    tpot_s: FloatArray
    e2e_s: FloatArray
    output_tokens: NDArray[np.int32]

    def where(self, chosen: NDArray[np.bool_]) -> "RequestTimes":
        return RequestTimes(**{name: getattr(self, name)[chosen] for name in self.__dataclass_fields__})


def request_times(requests: NDArray[np.void]) -> RequestTimes:
    """TTFT from arrival at the server; TPOT = (E2E − TTFT) / (output tokens − 1)."""
    ttft_s = requests["first_token_s"] - requests["arrival_s"]
    e2e_s = requests["finish_s"] - requests["arrival_s"]
    gaps = requests["output"] - 1
    tpot_s = np.full(len(requests), math.nan)
    np.divide(e2e_s - ttft_s, gaps, out=tpot_s, where=gaps > 0)
    return RequestTimes(
        arrival_s=requests["arrival_s"], ttft_s=ttft_s, tpot_s=tpot_s, e2e_s=e2e_s, output_tokens=requests["output"]
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """One run's figures over the time from `start_s` to `end_s`; every unit is in the name."""

    start_s: float
    end_s: float
    num_requests: int
    num_finished: int
    num_preemptions: int
    times: RequestTimes
    itl_s: dict[str, float | None]
    output_tokens_per_s: float
    users_mean: float | None
    in_flight_mean: float
    running_mean: float
    waiting_mean: float
    kv_usage_mean: float
    kv_usage_max: float
    prefix_hit_rate: float

    @property
    def requests_per_s(self) -> float:
        return self.num_finished / (self.end_s - self.start_s) if self.end_s > self.start_s else 0.0

    def to_json(self) -> dict[str, Any]:
        """The keys of `headcount simulate --json`."""
        names = ("num_requests", "num_finished", "num_preemptions")
        means = ("users_mean", "in_flight_mean", "running_mean", "waiting_mean", "kv_usage_mean", "kv_usage_max")
        return {
            **{name: getattr(self, name) for name in names},
            "duration_s": self.end_s - self.start_s,
            "ttft_s": summary(self.times.ttft_s),
            "tpot_s": summary(self.times.tpot_s),
            "itl_s": self.itl_s,
            "e2e_s": summary(self.times.e2e_s),
            "requests_per_s": self.requests_per_s,
            "output_tokens_per_s": self.output_tokens_per_s,
            **{name: getattr(self, name) for name in means},
            "prefix_hit_rate": self.prefix_hit_rate,
        }


def whole_run(simulation: Simulation, *, users: float | None = None) -> Result:
    """Every request of the run, the start burst too."""
    totals, requests, end_s = simulation.totals, simulation.requests, simulation.now_s
    arrived = requests[requests["status"] != layout.NOT_ARRIVED]
    blocks = (simulation.fleet.engine.num_gpu_blocks - 1) * simulation.fleet.num_replicas
    queried = float(totals["queried_tokens"].sum())
    span_s = end_s or 1.0
    running, waiting = (float(totals[name].sum()) / span_s for name in ("running_s", "waiting_s"))
    stays_s = np.where(np.isnan(arrived["finish_s"]), end_s, arrived["finish_s"]) - arrived["arrival_s"]
    return Result(
        start_s=0.0,
        end_s=end_s,
        num_requests=len(arrived),
        num_finished=simulation.num_finished,
        num_preemptions=int(totals["preemptions"].sum()),
        times=request_times(arrived),
        itl_s=itl_summary(simulation),
        output_tokens_per_s=float(arrived["output"].sum()) / span_s,
        users_mean=users,
        in_flight_mean=float(stays_s.sum()) / span_s,
        running_mean=running,
        waiting_mean=waiting,
        kv_usage_mean=float(totals["used_blocks_s"].sum()) / span_s / blocks,
        kv_usage_max=float(totals["max_used_blocks"].sum()) / blocks,
        prefix_hit_rate=float(totals["hit_tokens"].sum()) / queried if queried else 0.0,
    )


def itl_summary(simulation: Simulation) -> dict[str, float | None]:
    return histogram_summary(
        simulation.itl_histogram,
        minimum=layout.ITL_MIN_S,
        growth=layout.ITL_GROWTH,
        mean=simulation.itl_mean_s,
    )
