"""What a run showed: the waist between simulating and printing."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from files.documents import Json
from simulator.cancellations import Cancellations, is_cancelled
from simulator.core import layout
from simulator.simulation import Simulation
from simulator.study.statistics import histogram_summary, summary

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class RequestTimes:
    """Latencies of requests, in seconds; NaN where a request is not so far, was cancelled, or has one token (TPOT)."""

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
    e2e_s = np.where(is_cancelled(requests), math.nan, requests["finish_s"] - requests["arrival_s"])
    gaps = requests["output"] - 1
    tpot_s = np.full(len(requests), math.nan)
    np.divide(e2e_s - ttft_s, gaps, out=tpot_s, where=gaps > 0)
    return RequestTimes(
        arrival_s=requests["arrival_s"].copy(),
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        e2e_s=e2e_s,
        output_tokens=requests["output"].copy(),  # views would keep all other fields of every request
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulationResult:
    """One run's figures over the time from `start_s` to `end_s`; every unit is in the name."""

    start_s: float
    end_s: float
    num_requests: int  # that arrived
    num_finished: int  # of those
    requests_per_s: float  # that finished, whenever they arrived
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
    prefix_hit_rate: float  # in GPU memory
    host_hit_rate: float | None = None  # in host memory; None where no engine keeps KV there
    cancelled: Cancellations | None = None  # None: all clients wait for ever
    api_server_mean: float = 0.0  # requests in the queues of API servers, and in work there
    api_server_queue_share: float = 0.0  # of the mean TTFT: in the queues alone
    held_mean: float | None = None  # requests in the gateway's queue; None without one

    def to_json(self) -> Json:
        """The keys of `headcount simulate --json`."""
        names = ("num_requests", "num_finished", "num_preemptions")
        means = (
            "users_mean", "in_flight_mean", "running_mean", "waiting_mean", "api_server_mean", "kv_usage_mean",
            "kv_usage_max",
        )  # fmt: skip
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
            **({} if self.host_hit_rate is None else {"host_hit_rate": self.host_hit_rate}),
            **({} if self.cancelled is None else {"cancelled": self.cancelled.to_json()}),
            **({} if self.held_mean is None else {"held_mean": self.held_mean}),
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot:
    """A running simulation's sums at one time, for taking differences."""

    time_s: float
    totals: NDArray[np.void]
    itl_histogram: FloatArray
    itl_sum_s: float
    held_s: float = 0.0


def snapshot(simulation: Simulation) -> Snapshot:
    return Snapshot(
        time_s=simulation.now_s,
        totals=simulation.totals.copy(),
        itl_histogram=simulation.itl_histogram.copy(),
        itl_sum_s=simulation.itl_sum_s,
        held_s=simulation.held_s or 0.0,
    )


def whole_run(simulation: Simulation, *, users: float | None = None) -> SimulationResult:
    """Every request of the run, the start burst too."""
    start = Snapshot(
        time_s=0.0,
        totals=np.zeros_like(simulation.totals),
        itl_histogram=np.zeros(layout.ITL_BINS),
        itl_sum_s=0.0,
    )
    return result_since(simulation, start, users=users)


def result_since(simulation: Simulation, start: Snapshot, *, users: float | None = None) -> SimulationResult:
    """What happened after `start`: latencies of requests that arrived since, rates of what finished since."""
    requests, end_s = simulation.requests, simulation.now_s
    span_s = max(end_s - start.time_s, math.ulp(1.0))
    arrived = requests[(requests["status"] != layout.NOT_ARRIVED) & (requests["arrival_s"] >= start.time_s)]
    finished = requests[(requests["status"] == layout.FINISHED) & (requests["finish_s"] >= start.time_s)]
    blocks = simulation.fleet.num_usable_blocks
    since = {name: float((simulation.totals[name] - start.totals[name]).sum()) for name in _SUMMED}
    queried = since["queried_tokens"] or 1.0
    return SimulationResult(
        start_s=start.time_s,
        end_s=end_s,
        num_requests=len(arrived),
        num_finished=int((arrived["status"] == layout.FINISHED).sum()),
        requests_per_s=len(finished) / span_s,
        num_preemptions=int(since["preemptions"]),
        times=request_times(arrived),
        itl_s=_itl_summary(simulation, start),
        output_tokens_per_s=float(finished["output"].sum()) / span_s,
        users_mean=users,
        in_flight_mean=_in_flight(requests, start.time_s, end_s),
        running_mean=since["running_s"] / span_s,
        waiting_mean=since["waiting_s"] / span_s,
        kv_usage_mean=since["used_blocks_s"] / span_s / blocks,
        kv_usage_max=float(simulation.totals["max_used_blocks"].sum()) / blocks,
        prefix_hit_rate=since["hit_tokens"] / queried,
        host_hit_rate=since["host_hit_tokens"] / queried if simulation.fleet.has_host_tier else None,
        cancelled=simulation.cancellations(since["tokens"], since_s=start.time_s),
        api_server_mean=at_api_servers(arrived, end_s) / span_s,
        api_server_queue_share=ttft_share(arrived, end_s, "api_server_queue_s"),
        held_mean=None if simulation.held_s is None else (simulation.held_s - start.held_s) / span_s,
    )


def at_api_servers(requests: NDArray[np.void], now_s: float) -> float:
    """Request-seconds in the queues of API servers and in work there, up to now."""
    return float(np.minimum(requests["api_server_s"], now_s - requests["arrival_s"]).sum())


def ttft_share(requests: NDArray[np.void], now_s: float, name: str) -> float:
    """A time's share of the TTFT of these requests, so far where it is not over."""
    first_s = np.where(np.isnan(requests["first_token_s"]), now_s, requests["first_token_s"])
    ttft_s = first_s - requests["arrival_s"]
    return float(np.minimum(requests[name], ttft_s).sum() / (ttft_s.sum() or 1.0))


_SUMMED = (
    "preemptions", "running_s", "waiting_s", "used_blocks_s", "hit_tokens", "host_hit_tokens", "queried_tokens",
    "tokens",
)  # fmt: skip


def _in_flight(requests: NDArray[np.void], start_s: float, end_s: float) -> float:
    """Mean number of requests sent and not ended, from their stays: Little's law holds exactly."""
    sent = requests[(requests["status"] != layout.NOT_ARRIVED)]
    left_s = np.where(np.isnan(sent["finish_s"]), end_s, sent["finish_s"])
    stays_s = np.minimum(left_s, end_s) - np.maximum(sent["arrival_s"], start_s)
    return float(np.maximum(stays_s, 0.0).sum()) / max(end_s - start_s, math.ulp(1.0))


def _itl_summary(simulation: Simulation, start: Snapshot) -> dict[str, float | None]:
    counts = simulation.itl_histogram - start.itl_histogram
    total = float(counts.sum())
    mean = (simulation.itl_sum_s - start.itl_sum_s) / total if total else math.nan
    return histogram_summary(counts, minimum=layout.ITL_MIN_S, growth=layout.ITL_GROWTH, mean=mean)
