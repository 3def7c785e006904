"""The largest load that a deployment carries within a limit, measured and simulated, from runs at several loads."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from calibrate.check.runs import Checked
from simulator.latency.model import LatencyModel
from simulator.study.slo import SLO

LIMITS = {"tpot_s": "tpot_log_error", "ttft_s": "ttft_log_error"}
UNITS = ("concurrency", "rate")
SAME_LOAD = ("input_len", "output_len", "length_spread")  # what runs have in common that differ in their load alone
FARTHEST = 4.0  # times the largest load, or the least: a curve is not followed beyond


@dataclass(frozen=True, kw_only=True)
class LargestLoad:
    """The load at which a mean latency reaches its limit; None where that lies outside what can be told.

    Nine in ten measured loads lie between `low` and `high`.
    """

    unit: str
    latency: str
    limit_s: float
    of: Mapping[str, float]  # what its runs have in common
    measured: float | None
    simulated: float | None
    low: float | None
    high: float | None

    @property
    def error_percent(self) -> float | None:
        if self.measured is None or self.simulated is None:
            return None
        return 100 * (self.simulated / self.measured - 1)

    def to_json(self) -> dict[str, object]:
        return asdict(self) | {"of": dict(self.of), "error_percent": self.error_percent}


def largest_loads(checked: Sequence[Checked], model: LatencyModel, slo: SLO) -> tuple[LargestLoad, ...]:
    """One for every limit and for all runs that differ in their load alone, of which there must be two loads."""
    found = []
    for unit in UNITS:
        alike: dict[tuple[tuple[str, float], ...], list[Checked]] = defaultdict(list)
        for item in checked:
            if math.isfinite(item.load.get(unit, math.inf)) and (unit == "rate" or not _has_rate(item)):
                alike[tuple((name, item.load[name]) for name in SAME_LOAD if name in item.load)].append(item)
        for runs in alike.values():
            for latency in LIMITS:
                limit_s = getattr(slo, latency)
                one = None if limit_s is None else _largest_load(runs, unit, latency, limit_s, model)
                found += [one] if one is not None else []
    return tuple(found)


def _has_rate(item: Checked) -> bool:
    return math.isfinite(item.load.get("rate", math.inf))


def _largest_load(
    runs: Sequence[Checked], unit: str, latency: str, limit_s: float, model: LatencyModel
) -> LargestLoad | None:
    rows = [(item.load[unit], row) for item in runs if (row := item.row(f"{latency}.mean")) is not None]
    loads = sorted({load for load, _ in rows})
    if len(loads) < 2:
        return None
    curves = {
        side: [float(np.median([getattr(row, side) for load, row in rows if load == here])) for here in loads]
        for side in ("measured", "simulated")
    }
    error = getattr(model, LIMITS[latency])
    sequences = [_sequences(unit, load, runs) for load in loads]
    factors = np.exp([error.log_half_width_at(number) for number in sequences])
    simulated = np.array(curves["simulated"])
    return LargestLoad(
        unit=unit,
        latency=latency,
        limit_s=limit_s,
        of={name: runs[0].load[name] for name in SAME_LOAD if name in runs[0].load},
        measured=load_at(loads, curves["measured"], limit_s, farthest=1.0),
        simulated=load_at(loads, simulated, limit_s),
        low=load_at(loads, simulated * factors, limit_s),
        high=load_at(loads, simulated / factors, limit_s),
    )


def _sequences(unit: str, load: float, runs: Sequence[Checked]) -> float:
    """How many run at once: the clients, or by Little's law what arrives while one is served."""
    if unit == "concurrency":
        return load
    rows = [row for item in runs if item.load[unit] == load and (row := item.row("e2e_s.mean")) is not None]
    return load * float(np.median([row.simulated for row in rows])) if rows else 1.0


def load_at(
    loads: Sequence[float],
    latencies: Sequence[float] | NDArray[np.generic],
    limit: float,
    *,
    farthest: float = FARTHEST,
) -> float | None:
    """Where a latency that grows with the load reaches a limit: on straight lines between the logarithms.

    Beyond the loads the outermost line goes on, to `farthest` times the largest load and as far below the least; None
    where the limit lies farther. Two loads at least, in rising order.
    """
    x, y = np.log(loads), np.maximum.accumulate(np.log(latencies))
    goal, room = math.log(limit), math.log(farthest)
    if y[0] <= goal <= y[-1]:
        return math.exp(_crossing(x, y, goal))
    edge, slope = (0, (y[1] - y[0]) / (x[1] - x[0])) if goal < y[0] else (-1, (y[-1] - y[-2]) / (x[-1] - x[-2]))
    beyond = (goal - y[edge]) / slope if slope > 0 else math.inf
    return math.exp(x[edge] + beyond) if abs(beyond) <= room else None


def _crossing(x: NDArray[np.generic], y: NDArray[np.generic], goal: float) -> float:
    """The largest x at which the rising line is not above the goal."""
    last = int(np.searchsorted(y, goal, side="right")) - 1
    if last == len(y) - 1:
        return float(x[-1])
    return float(x[last] + (x[last + 1] - x[last]) * (goal - y[last]) / (y[last + 1] - y[last]))
