"""Tries the search on replications drawn anew from stored ones: `python -m validation.resampled_search --gpus 2`.

Replications of chat on H100s are simulated once, at loads about the capacity, and kept in the file `--kept` (.npz).
Each search then meets a sample of them, drawn with replacement, so that a thousand searches take minutes. The truth is
the capacity of all stored replications together. Between loads, each replication's misses are interpolated.
"""

import argparse
import math
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.optimize import brentq

from simulator.study.capacity import MAX_REPLICATIONS, find_capacity
from simulator.study.points import Point
from simulator.study.replication import replicate
from simulator.study.slo import SLO
from simulator.study.slo_crossing import LoadSample
from simulator.study.statistics import FloatArray
from validation.sampling import served

USERS_EACH = 540.0  # about the capacity of one of several H100s
LOADS = (0.88, 0.96, 1.04, 1.12)  # times that
SEED = 20_261_124
GUESS_ERROR = 0.05  # standard deviation of where a search begins, in logarithms


@dataclass(frozen=True, kw_only=True, eq=False)
class Stored:
    """Replications at some loads, those of one number with common random numbers."""

    log_sizes: FloatArray  # [loads]
    log_misses: FloatArray  # [loads, replications]
    requests: FloatArray
    surplus: FloatArray  # [loads, replications, quantities]
    hours: float

    def shown(self, size: float, numbers: Any) -> LoadSample:
        """What these replications would show at a load."""
        x = float(np.clip(math.log(size), self.log_sizes[0], self.log_sizes[-1]))
        beyond = self.slope * (math.log(size) - x)
        place = min(max(int(np.searchsorted(self.log_sizes, x)) - 1, 0), len(self.log_sizes) - 2)
        away = (x - self.log_sizes[place]) / (self.log_sizes[place + 1] - self.log_sizes[place])

        def between(values: FloatArray) -> FloatArray:
            return np.asarray(values[place] + away * (values[place + 1] - values[place]))[numbers]

        misses = np.minimum(np.exp(between(self.log_misses) + beyond), 1.0)
        surplus = self.surplus - self.surplus.mean(axis=1, keepdims=True)  # of all that are stored, nothing
        requests = np.maximum(between(self.requests), 1.0)
        return LoadSample(size=size, misses=misses, requests=requests, surplus=between(surplus), hours=self.hours)

    @property
    def slope(self) -> float:
        """Of the mean misses over the load, in logarithms: beyond the loads, where one replication's says little."""
        logs = np.log(np.exp(self.log_misses).mean(axis=1))
        return float(logs[-1] - logs[0]) / float(self.log_sizes[-1] - self.log_sizes[0])

    @property
    def truth(self) -> float:
        everyone = np.arange(self.requests.shape[1])
        target, (low, high) = 1 - SLO().attainment, self.log_sizes[[0, -1]]
        return math.exp(brentq(lambda x: self.shown(math.exp(x), everyone).share - target, low - 0.2, high + 0.2))


def simulated(gpus: int, count: int) -> Stored:
    """So many replications of chat at each of LOADS."""
    sizes = [float(round(USERS_EACH * gpus * factor)) for factor in LOADS]
    case = served("", "llama-3.1-8b", SEED, gpus=gpus, tp=1, guess=sizes[0])
    points = [
        Point(size=size, replications=tuple(replicate(case.fleet, case.load, size, case.slo, n) for n in range(count)))
        for size in sizes
    ]
    shown = [point.shown() for point in points]
    return Stored(
        log_sizes=np.log(sizes),
        log_misses=np.log([np.maximum(each.misses, 2e-4) for each in shown]),
        requests=np.array([each.requests for each in shown]),
        surplus=np.array([each.surplus for each in shown]),
        hours=shown[0].hours,
    )


@dataclass
class Resampled:
    """Stands in for the Evaluator of a search."""

    stored: Stored
    numbers: Any
    known: dict[float, int] = field(default_factory=dict)
    slo: SLO = field(default_factory=SLO)
    load: Any = field(
        default_factory=lambda: SimpleNamespace(unit="users", smallest=1.0, round=lambda x: float(int(x)))
    )
    hours_met: None = None

    def point(self, size: float, count: int) -> Any:
        self.known[size] = max(count, self.known.get(size, 0))
        return self._point(size)

    def points(self) -> list[Any]:
        return [self._point(size) for size in sorted(self.known)]

    def _point(self, size: float) -> Any:
        shown = self.stored.shown(size, self.numbers[: self.known[size]])
        requests = float(shown.requests.mean())
        return SimpleNamespace(
            size=size, shown=lambda: shown, mean=lambda _: requests, queue_may_grow=False,
            replications=[None] * self.known[size],
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--replications", type=int, default=120)
    parser.add_argument("--searches", type=int, default=200)
    parser.add_argument("--kept", type=Path, help="a file for the replications, read if it is there")
    asked = parser.parse_args()
    if asked.kept is not None and asked.kept.exists():
        stored = Stored(**np.load(asked.kept))
    else:
        stored = simulated(asked.gpus, asked.replications)
        if asked.kept is not None:
            np.savez(asked.kept, **vars(stored))
    truth, held, above, runs, logs = stored.truth, 0, 0, 0, []
    for seed in range(asked.searches):
        rng = np.random.default_rng(seed)
        search = Resampled(stored, rng.integers(0, stored.requests.shape[1], MAX_REPLICATIONS))
        found = find_capacity(search, truth * math.exp(GUESS_ERROR * rng.standard_normal()))  # type: ignore[arg-type]
        assert found.knee is not None, "nobody is served"
        interval = found.knee.interval()
        held += interval.low <= truth <= interval.high
        above += interval.low > truth
        runs += sum(search.known.values())
        logs.append(math.log(interval.mean / truth))
    count = asked.searches
    print(
        f"{held / count:.1%} hold {truth:,.0f} users, {above / count:.1%} of low ends above; bias {np.mean(logs):+.2%}",
        f"standard deviation {np.std(logs):.2%}; {runs / count:.0f} simulations",
        sep=", ",
    )


if __name__ == "__main__":
    main()
