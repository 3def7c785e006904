"""One replication of a load on a fleet, judged by an SLO."""

import math
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from files.errors import HeadcountError
from simulator.cancellations import Cancellations, is_cancelled
from simulator.core import layout
from simulator.fleet.fleet import Fleet
from simulator.results import (
    RequestTimes,
    SimulationResult,
    Snapshot,
    at_api_servers,
    request_times,
    result_since,
    snapshot,
    ttft_share,
)
from simulator.simulation import Simulation
from simulator.study.loads import WARMUP_SHARE, Load, replication_seed
from simulator.study.slo import SLO
from simulator.study.statistics import slope
from simulator.tenants import TenantFigures, tenant_figures

MAX_PATIENCE = 9


@dataclass(frozen=True, kw_only=True, eq=False)
class Timeline:
    """The fleet's state over time, at evenly spaced times."""

    time_s: NDArray[np.float64]
    running: NDArray[np.float64]
    waiting: NDArray[np.float64]
    kv_usage: NDArray[np.float64]
    kv_cached: NDArray[np.float64]  # share of blocks that are free, and kept for prefix reuse
    preemptions: NDArray[np.float64]  # since time 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Waits:
    """How long each judged request took, so that any SLO can be asked of it afterwards; [n] each.

    Infinite where it was cancelled, and so missed whatever is allowed.
    """

    ttft_s: NDArray[np.float64]  # to the first token, or so far
    tpot_s: NDArray[np.float64]  # from it to the last token, or so far, over the gaps; NaN where there is no gap
    is_finished: NDArray[np.bool_]
    new_tokens: NDArray[np.int32]  # of prompts that no cache had when they began

    def missed(self, slo: SLO) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
        """Who missed the TTFT limit, who the TPOT limit, whose fate is known.

        A request that has not finished counts once it can no longer meet the SLO.
        """
        ttft_missed = slo.misses_ttft(self.ttft_s, self.new_tokens) | np.isinf(self.ttft_s)
        tpot_missed = slo.misses_tpot(self.tpot_s) | np.isinf(self.tpot_s)
        return ttft_missed, tpot_missed, self.is_finished | ttft_missed | tpot_missed


@dataclass(frozen=True, kw_only=True, eq=False)
class Replication:
    """What one replication showed after its warm-up, over all replicas together."""

    number: int
    surplus: tuple[float, ...]  # as in `loads.Drawn`
    attainment: float
    ttft_misses: float  # share of requests
    tpot_misses: float
    queue_slope_per_s: float
    is_stuck: bool  # most users wait, and no limit on TTFT says how long they may
    warmup_s: float
    horizon_s: float
    num_requests: int
    requests_per_s: float
    output_tokens_per_s: float
    in_flight: float
    running: float
    waiting: float
    kv_usage: float
    prefix_hit_rate: float
    preemptions_per_request: float
    times: RequestTimes
    waits: Waits
    timeline: Timeline
    totals: NDArray[np.void]  # [1], sums over replicas, as in `layout.TOTALS`
    blocked_shares: tuple[float, ...]  # of replica time, by reason
    cancelled: Cancellations | None = None  # None: all clients wait for ever
    host_hit_rate: float | None = None  # in host memory; None where no engine keeps KV there
    tenants: tuple[TenantFigures, ...] = ()
    held: float = 0.0  # of the waiting requests, those in the gateway's queue
    api_server_share: float = 0.0  # of the TTFT of requests that missed its limit, or of all: at API servers
    loading_share: float = 0.0  # of the TTFT of requests that missed its limit: loads of KV from outside of the GPUs

    def under(self, slo: SLO) -> "Replication":
        """The same requests judged by another SLO; what tells of single tenants stays as it was."""
        return replace(self, **_judged(self.waits, slo))


def replicate(fleet: Fleet, load: Load, size: float, slo: SLO, replication: int) -> Replication:
    """Simulate to the horizon, drop the warm-up, judge every request after it.

    How long the warm-up is must not depend on what happened in it: a rule that looks (MSER-5 was one) cuts away a
    run's worst hours where they come early, and then a tenth of all misses is never seen.
    """
    simulation, before, surplus = _to_horizon(fleet, load, size, replication)
    users = size if load.unit == "users" else None
    return _judge(simulation, before, load.horizon_s(size), slo, number=replication, surplus=surplus, users=users)


def simulate_users(
    fleet: Fleet, load: Load, users: float, *, log_steps: bool = False
) -> tuple[Simulation, SimulationResult]:
    """One replication of a stationary load, its warm-up removed."""
    simulation, before, _ = _to_horizon(fleet, load, users, 0, log_steps=log_steps)
    return simulation, result_since(simulation, before, users=users)


def _to_horizon(
    fleet: Fleet, load: Load, size: float, replication: int, *, log_steps: bool = False
) -> tuple[Simulation, Snapshot, tuple[float, ...]]:
    """Run to the horizon with a snapshot after the warm-up; where the load ends before it, draw a longer one anew.

    The last value is the surplus that was drawn.
    """
    horizon_s = load.horizon_s(size)
    for patience in range(MAX_PATIENCE):
        drawn = load.draw(size, replication, patience=patience)
        seed = replication_seed(load.seed, replication)
        simulation = Simulation(fleet, drawn.table, log_steps=log_steps, seed=seed)
        simulation.run(horizon_s * WARMUP_SHARE)
        before = snapshot(simulation)
        simulation.run(horizon_s)
        if not load.ran_dry(simulation):
            return simulation, before, drawn.surplus
    raise HeadcountError(
        f"{size:g} {load.unit} end before {horizon_s:g} s however many requests are drawn; give users a think time"
    )


def _judge(
    simulation: Simulation,
    before: Snapshot,
    horizon_s: float,
    slo: SLO,
    *,
    number: int,
    surplus: tuple[float, ...],
    users: float | None,
) -> Replication:
    samples = simulation.samples
    warmup_s = horizon_s * WARMUP_SHARE
    requests = simulation.requests
    is_counted = (requests["status"] != layout.NOT_ARRIVED) & (requests["arrival_s"] >= warmup_s)
    counted = requests[is_counted]
    waits = waits_of(counted, horizon_s)
    if simulation.waits_for_ever:  # its blocks are lost for good: in the long run all miss
        waits.ttft_s[:] = math.inf
    ttft_missed, tpot_missed, decided = waits.missed(slo)
    finished = requests["output"][(requests["status"] == layout.FINISHED) & (requests["finish_s"] >= warmup_s)]
    window_s = horizon_s - warmup_s
    after = samples[samples["time_s"] > warmup_s]
    blocks = simulation.fleet.num_usable_blocks
    means = {name: float(after[name].mean()) if len(after) else 0.0 for name in ("running", "waiting", "used_blocks")}
    queued = max(means["waiting"], at_api_servers(counted, horizon_s) / window_s)
    totals = _steady_totals(before.totals, simulation.totals)
    queried, blocked_s = float(totals["queried_tokens"][0]), totals["blocked_s"][0]
    return Replication(
        number=number,
        surplus=surplus,
        **_judged(waits, slo),
        queue_slope_per_s=slope(after["time_s"], after["waiting"].astype(float)),
        is_stuck=slo.ttft_s is None and users is not None and queued > users / 2,
        warmup_s=warmup_s,
        horizon_s=horizon_s,
        requests_per_s=len(finished) / window_s,
        output_tokens_per_s=float(finished.sum()) / window_s,
        in_flight=float(after["not_finished"].mean()) if len(after) else 0.0,
        running=means["running"],
        waiting=means["waiting"],
        kv_usage=means["used_blocks"] / blocks,
        prefix_hit_rate=float(totals["hit_tokens"][0]) / queried if queried else 0.0,
        preemptions_per_request=float(counted["preemptions"].sum()) / max(len(counted), 1),
        times=request_times(counted),
        waits=waits,
        timeline=_timeline(samples, blocks),
        totals=totals,
        blocked_shares=tuple((blocked_s / (blocked_s.sum() or 1.0)).tolist()),
        cancelled=simulation.cancellations(float(totals["tokens"][0]), since_s=warmup_s),
        host_hit_rate=float(totals["host_hit_tokens"][0]) / (queried or 1.0)
        if simulation.fleet.has_host_tier
        else None,
        held=((simulation.held_s or 0.0) - before.held_s) / window_s,
        api_server_share=ttft_share(counted[ttft_missed] if ttft_missed.any() else counted, horizon_s, "api_server_s"),
        loading_share=_loading_share(simulation, np.flatnonzero(is_counted)[ttft_missed], horizon_s),
        tenants=tenant_figures(simulation.table, requests, is_counted, ttft_missed | tpot_missed, decided),
    )


def _loading_share(simulation: Simulation, rows: NDArray[np.intp], now_s: float) -> float:
    """Of the TTFT of these requests, so far where it is not over."""
    requests, offloads = simulation.requests[rows], simulation.arrays.offloads
    if not len(offloads) or not len(rows):
        return 0.0
    first_s = np.where(np.isnan(requests["first_token_s"]), now_s, requests["first_token_s"])
    ttft_s = first_s - requests["arrival_s"]
    return float(np.minimum(offloads["loading_s"][rows], ttft_s).sum() / ttft_s.sum())


def waits_of(requests: NDArray[np.void], now_s: float) -> Waits:
    """How long each request took at `now_s`.

    One that was cancelled has missed the SLO: on TTFT where the first token had not come, else on TPOT.
    """
    first_s = np.where(np.isnan(requests["first_token_s"]), now_s, requests["first_token_s"])
    last_s = np.where(np.isnan(requests["finish_s"]), now_s, requests["finish_s"])
    gaps = requests["max_tokens"] - 1
    tpot_s = np.full(len(requests), math.nan)
    np.divide(last_s - first_s, gaps, out=tpot_s, where=gaps > 0)
    cancelled, has_begun = is_cancelled(requests), ~np.isnan(requests["first_token_s"])
    return Waits(
        ttft_s=np.where(cancelled & ~has_begun, math.inf, first_s - requests["arrival_s"]),
        tpot_s=np.where(cancelled & has_begun, math.inf, tpot_s),
        is_finished=requests["status"] == layout.FINISHED,
        new_tokens=requests["prompt"] - np.maximum(requests["cached_tokens"], 0),
    )


class _Judged(TypedDict):
    """The figures of a replication that the SLO decides."""

    attainment: float
    ttft_misses: float
    tpot_misses: float
    num_requests: int


def _judged(waits: Waits, slo: SLO) -> _Judged:
    ttft_missed, tpot_missed, decided = waits.missed(slo)
    count = max(int(decided.sum()), 1)
    return {
        "attainment": 1.0 - float((ttft_missed | tpot_missed)[decided].sum()) / count if decided.any() else 0.0,
        "ttft_misses": float(ttft_missed[decided].sum()) / count,
        "tpot_misses": float(tpot_missed[decided].sum()) / count,
        "num_requests": int(decided.sum()),
    }


def _steady_totals(before: NDArray[np.void], after: NDArray[np.void]) -> NDArray[np.void]:
    totals = np.zeros(1, layout.TOTALS)
    for name in layout.TOTALS.names or ():
        totals[name] = (after[name] - before[name]).sum(axis=0)
    return totals


def _timeline(samples: NDArray[np.void], blocks: int) -> Timeline:
    return Timeline(
        time_s=samples["time_s"].copy(),
        running=samples["running"].astype(float),
        waiting=samples["waiting"].astype(float),
        kv_usage=samples["used_blocks"] / blocks,
        kv_cached=samples["cached_blocks"] / blocks,
        preemptions=samples["preemptions"].astype(float),
    )
