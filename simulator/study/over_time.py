"""What a fleet that changes showed over time: attainment, replicas, load, and how it came through events."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.core import layout
from simulator.fleet.events import Event
from simulator.fleet.operation import Operation
from simulator.fleet.replicas import Count
from simulator.results import SimulationResult, whole_run
from simulator.study.loads import HOUR_S
from simulator.study.replication import waits_of
from simulator.study.slo import SLO
from simulator.tenants import TenantFigures, tenant_figures

FloatArray = NDArray[np.float64]
MOST_WINDOWS = 144  # ten minutes each over a day
LOOK_S = 60.0  # to which recovery is stated
MOST_LOOK_S = 600.0  # between looks at the requests in flight, for their mean over the busiest hour
LOOKS_A_SPAN = 20  # at the requests in flight, for their mean over a span of time
STEADY_S = 300.0  # the target is met for so long once a fleet has recovered


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """How a fleet came through an event."""

    event: Event
    lowest: float
    """The least attainment of a minute, from the event to the recovery."""
    recovered_s: float | None
    """Until attainment meets the target again for five minutes; None: not within the run."""


@dataclass(frozen=True, kw_only=True)
class Starts:
    """What the starts of replicas cost: of the requests that arrive while one starts, how many meet the SLO."""

    num_starts: int
    num_requests: int
    """That arrive while a replica starts."""
    attainment: float | None
    """Of these; None without any."""
    attainment_else: float | None
    """Of all others."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OverTime:
    """One run of a fleet that is operated, from its start to `until_s`."""

    until_s: float
    history: tuple[Count, ...]
    result: SimulationResult
    attainment: float
    """Share of all requests that meet the SLO; what was lost or never answered misses it."""
    window_s: FloatArray
    """[windows] when each begins."""
    attained: FloatArray
    """[windows] attainment of the requests that arrive in it; NaN where none do."""
    in_flight: FloatArray
    """[windows, replicas] requests in each at the window's beginning."""
    held_s: float
    """Replica-seconds that were paid for."""
    num_taken: int
    """Requests taken off replicas that failed, or went before they had answered them."""
    num_lost: int
    """Of those, never sent again."""
    num_rejected: int
    """By the gateway: over a quota, or its queue was full or too slow."""
    held_mean: float | None
    """Requests in the gateway's queue; None without one."""
    tenants: tuple[TenantFigures, ...]
    num_unanswered: int
    """Requests without an end at `until_s`."""
    recoveries: tuple[Recovery, ...]
    starts: Starts

    @property
    def mean_replicas(self) -> float:
        return self.held_s / self.until_s

    @property
    def in_flight_at_peak(self) -> float:
        """Requests in flight per replica of a fixed fleet, on average over its busiest hour."""
        in_flight, look_s = self.in_flight.sum(axis=1), self.until_s / len(self.in_flight)
        if look_s > MOST_LOOK_S:  # of more than a day: windows are too long for an hour's mean
            in_flight, look_s = self._in_flight_at(np.arange(0.0, self.until_s, MOST_LOOK_S)), MOST_LOOK_S
        windows = min(max(round(HOUR_S / look_s), 1), len(in_flight))
        return float(np.convolve(in_flight, np.full(windows, 1 / windows), "valid").max()) / self.most_replicas

    def growth_within(self, span_s: float, least: float) -> float:
        """By what the requests in flight of a span of time are multiplied in the next one, at most; 1: they never grow.

        Fewer than `least` in flight count as `least`.
        """
        num_spans = int(self.until_s // span_s)
        if num_spans < 2:
            return 1.0
        there = self._in_flight_at((np.arange(num_spans * LOOKS_A_SPAN) + 0.5) * span_s / LOOKS_A_SPAN)
        mean = np.maximum(there.reshape(num_spans, LOOKS_A_SPAN).mean(axis=1), least)
        return float(np.max(mean[1:] / np.maximum(mean[:-1], 1e-9), initial=1.0))

    def _in_flight_at(self, times_s: FloatArray) -> FloatArray:
        """[times] answered requests that have come and are not answered yet."""
        times = self.result.times
        is_answered = np.isfinite(times.e2e_s)
        arrival_s = times.arrival_s[is_answered]
        left_s = np.sort(arrival_s + times.e2e_s[is_answered])
        come = np.searchsorted(np.sort(arrival_s), times_s, side="right")
        return np.asarray(come - np.searchsorted(left_s, times_s, side="right"), dtype=np.float64)

    @property
    def most_replicas(self) -> int:
        return max(count.held for count in self.history)

    @property
    def least_ready(self) -> int:
        return min(count.ready for count in self.history)


def over_time(operation: Operation, slo: SLO, until_s: float) -> OverTime:
    """Judge every request that arrived before `until_s`."""
    requests = operation.simulation.requests
    counted = (requests["status"] != layout.NOT_ARRIVED) & (requests["arrival_s"] < until_s)
    come = requests[counted]
    now_s = max(operation.simulation.now_s, until_s)
    ttft_missed, tpot_missed, decided = waits_of(come, now_s).missed(slo)
    is_met, arrival_s = decided & ~ttft_missed & ~tpot_missed, come["arrival_s"]
    windows = np.linspace(0.0, until_s, min(MOST_WINDOWS, max(int(until_s / LOOK_S), 1)) + 1)
    replicas, result = operation.replicas, whole_run(operation.simulation)
    table, is_missed = operation.simulation.table, ttft_missed | tpot_missed
    return OverTime(
        until_s=until_s,
        history=tuple(count for count in operation.history if count.time_s < until_s),
        result=result,
        attainment=float(is_met.sum()) / max(len(come), 1),
        window_s=windows[:-1],
        attained=_by_window(arrival_s, is_met, windows),
        in_flight=_in_flight(come, windows[:-1], len(replicas.states), replicas.engines_each),
        held_s=replicas.held_s(until_s),
        num_taken=replicas.num_taken,
        num_lost=int((come["status"] == layout.LOST).sum()),
        num_rejected=int((come["status"] == layout.REJECTED).sum()),
        held_mean=result.held_mean,
        tenants=tenant_figures(table, requests, counted, is_missed, decided),
        num_unanswered=int((come["status"] < layout.FINISHED).sum()),
        recoveries=tuple(
            _recovery(event, arrival_s, is_met, slo.attainment, until_s)
            for event in operation.given.events
            if event.time_s < until_s
        ),
        starts=_starts(operation.history, arrival_s, is_met),
    )


def _starts(history: Sequence[Count], arrival_s: FloatArray, is_met: NDArray[np.bool_]) -> Starts:
    times_s = np.array([count.time_s for count in history])
    starting = np.array([count.starting for count in history])
    during = starting[np.maximum(np.searchsorted(times_s, arrival_s, side="right") - 1, 0)] > 0
    return Starts(
        num_starts=int(np.maximum(np.diff(starting, prepend=0), 0).sum()),
        num_requests=int(during.sum()),
        attainment=float(is_met[during].mean()) if during.any() else None,
        attainment_else=float(is_met[~during].mean()) if not during.all() else None,
    )


def _by_window(arrival_s: FloatArray, is_met: NDArray[np.bool_], edges: FloatArray) -> FloatArray:
    """Share that is met of what arrives between successive edges."""
    came, met = (np.histogram(arrival_s[chosen], edges)[0] for chosen in (slice(None), is_met))
    found = np.full(len(came), math.nan)
    np.divide(met, came, out=found, where=came > 0)
    return found


def _in_flight(requests: NDArray[np.void], times_s: FloatArray, num_replicas: int, engines_each: int) -> FloatArray:
    """Where requests were in the end: those that began anew count where they were answered."""
    found = np.zeros((len(times_s), num_replicas))
    for replica in range(num_replicas):
        there = requests[(requests["replica"] // engines_each == replica) & (requests["status"] >= layout.WAITING)]
        left_s = np.where(np.isnan(there["finish_s"]), math.inf, there["finish_s"])
        come = np.searchsorted(np.sort(there["arrival_s"]), times_s, side="right")
        found[:, replica] = come - np.searchsorted(np.sort(left_s), times_s, side="right")
    return found


def _recovery(
    event: Event, arrival_s: FloatArray, is_met: NDArray[np.bool_], target: float, until_s: float
) -> Recovery:
    edges = np.arange(event.time_s, until_s + LOOK_S, LOOK_S)
    if len(edges) < 2:
        return Recovery(event=event, lowest=1.0, recovered_s=None)
    came, met = (np.histogram(arrival_s[chosen], edges)[0] for chosen in (slice(None), is_met))
    steady = round(STEADY_S / LOOK_S)
    recovered = None
    for minute in range(max(len(came) - steady + 1, 1)):
        if met[minute : minute + steady].sum() >= target * came[minute : minute + steady].sum():
            recovered = minute
            break
    shares = np.divide(met, came, out=np.ones(len(came)), where=came > 0)
    through = shares[: steady if recovered is None or recovered == 0 else recovered]
    return Recovery(
        event=event,
        lowest=float(through.min()),
        recovered_s=None if recovered is None else recovered * LOOK_S,
    )
