"""The largest load a deployment serves within its SLO."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simulator.fleet.fleet import Fleet
from simulator.latency.model import AverageStep, average_step
from simulator.study.loads import Load
from simulator.study.replication import Replication
from simulator.study.running.simulations import Simulations
from simulator.study.running.task import Task
from simulator.study.slo import SLO
from simulator.study.statistics import Interval, t_interval

Bound = Literal["mean", "low", "high"]
MIN_REPLICATIONS = 10
SCREENING_REPLICATIONS = 2
SCREENING_RATIO = 1.06  # a screened capacity is known to this factor
ESTIMATE_REPLICATIONS = 4
ESTIMATE_RATIO = 1.03  # an estimated capacity is known to this factor
FIRST_STEP = 1.04  # of the final search, which starts from a screened capacity
RESOLUTION = 0.02  # of the capacity found; its interval is wider than that
MAX_GROWTH = 4.0  # from one size tried to the next: a load far beyond capacity costs much, and tells nothing
MATERIAL_GROWTH = 0.05
BOUNDS: tuple[Bound, ...] = ("mean", "low", "high")
MAX_SIZE = 2.0**22


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """One load size, simulated in several replications with random numbers common to all sizes."""

    size: float
    replications: tuple[Replication, ...]

    @property
    def attainment(self) -> Interval:
        return t_interval([replication.attainment for replication in self.replications])

    @property
    def queue_slope_per_s(self) -> Interval:
        return t_interval([replication.queue_slope_per_s for replication in self.replications])

    @property
    def queue_grows(self) -> bool:
        """Whether the waiting queue's slope lies above 0 with 95 % confidence, and amounts to something.

        A search looks at a dozen points, so that chance alone shows a slope now and then: one that adds less than
        MATERIAL_GROWTH of the requests in flight over the measured time does not count.
        """
        interval = self.queue_slope_per_s
        measured_s = self.mean("horizon_s") - self.mean("warmup_s")
        return interval.low > 0 and interval.mean * measured_s > MATERIAL_GROWTH * self.mean("in_flight")

    def meets(self, slo: SLO, bound: Bound) -> bool:
        """Whether attainment's mean, or an end of its 95 % interval, reaches the target without a growing queue."""
        return float(getattr(self.attainment, bound)) >= slo.attainment and not self.queue_grows

    def mean(self, name: str) -> float:
        values = [float(getattr(replication, name)) for replication in self.replications]
        return sum(values) / len(values)

    def times(self, name: str) -> NDArray[np.float64]:
        """One latency of all replications' requests."""
        return np.concatenate([getattr(replication.times, name) for replication in self.replications])

    @property
    def mean_step(self) -> AverageStep | None:
        """Over all engines and replications; None where nothing ran."""
        totals = np.concatenate([replication.totals for replication in self.replications])
        return average_step(totals) if totals["steps"].sum() else None

    def blocked_share(self, reason: int) -> float:
        return sum(r.blocked_shares[reason] for r in self.replications) / len(self.replications)


Watcher = Callable[[Point, str], None]
"""Is told each point as it is simulated, with the unit of its size."""


@dataclass(kw_only=True)
class Evaluator:
    """Simulates points of one deployment, each once; replications run side by side."""

    fleet: Fleet
    load: Load
    slo: SLO
    watcher: Watcher | None = None
    simulations: Simulations = field(default_factory=Simulations)
    _known: dict[float, tuple[Replication, ...]] = field(default_factory=dict)

    def point(self, size: float, num_replications: int) -> Point:
        """The point with at least that many replications; earlier ones are kept."""
        known = self._known.get(size, ())
        if len(known) < num_replications:
            known += self._replicate(size, range(len(known), num_replications))
            self._known[size] = known
            if self.watcher is not None:
                self.watcher(Point(size=size, replications=known), self.load.unit)
        return Point(size=size, replications=known)

    def points(self) -> list[Point]:
        """Every point simulated so far, by size."""
        return [Point(size=size, replications=known) for size, known in sorted(self._known.items())]

    def _replicate(self, size: float, numbers: range) -> tuple[Replication, ...]:
        task = Task(fleet=self.fleet, load=self.load, size=size, slo=self.slo, replication=0)
        return tuple(self.simulations.run([replace(task, replication=number) for number in numbers]))


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """The largest sizes at which attainment's mean, lower end or upper end still meets the SLO; 0 if none does."""

    low: float
    mean: float
    high: float


def screen_capacity(evaluator: Evaluator, guess: float, *, at_least: float = 0.0) -> float:
    """The capacity to within SCREENING_RATIO, from few replications; 0 if not even the smallest load is served.

    A deployment that does not serve `at_least` is of no interest and is given 0 at once.
    """
    search = _Search(evaluator, "mean", SCREENING_REPLICATIONS)
    if at_least and not search.serves(evaluator.load.round(at_least)):
        return 0.0
    return search.largest(guess, first_step=SCREENING_RATIO, ratio=SCREENING_RATIO)


def estimate_capacity(evaluator: Evaluator, guess: float) -> Point | None:
    """The largest load served in the mean of a few replications, to within ESTIMATE_RATIO; None if none is."""
    search = _Search(evaluator, "mean", ESTIMATE_REPLICATIONS)
    found = search.largest(guess, first_step=FIRST_STEP, ratio=ESTIMATE_RATIO)
    return evaluator.point(found, ESTIMATE_REPLICATIONS) if found else None


def find_capacity(evaluator: Evaluator, guess: float, num_replications: int = MIN_REPLICATIONS) -> Capacity:
    """Bracket, then bisect, for the mean and for both ends of attainment's interval."""
    found: dict[Bound, float] = {}
    for bound in BOUNDS:
        search = _Search(evaluator, bound, num_replications)
        start = found.get("mean") or guess
        found[bound] = search.largest(start, first_step=FIRST_STEP, ratio=1 + RESOLUTION)
    return Capacity(low=found["low"], mean=found["mean"], high=found["high"])


@dataclass(frozen=True)
class _Search:
    """Looks for the largest size that one criterion accepts; points known already are not simulated again."""

    evaluator: Evaluator
    bound: Bound
    num_replications: int

    def serves(self, size: float) -> bool:
        return self.evaluator.point(size, self.num_replications).meets(self.evaluator.slo, self.bound)

    def largest(self, guess: float, *, first_step: float, ratio: float) -> float:
        low, high = self._bracket(self.evaluator.load.round(guess), first_step)
        while low > 0 and high / low > ratio:
            middle = self.evaluator.load.round(math.sqrt(low * high))
            if middle == low:  # the geometric mean of 2 and 4 users is no more than 2
                middle = self.evaluator.load.round((low + high) / 2)
            if middle in (low, high):
                break
            low, high = (middle, high) if self.serves(middle) else (low, middle)
        return low

    def _bracket(self, guess: float, first_step: float) -> tuple[float, float]:
        """A size that serves (0: none does) below one that does not, from known points or by growing steps."""
        low, high = self._known()
        size, step = guess, first_step
        while low == 0.0 or high == math.inf:
            if low == 0.0 and high == math.inf:
                size = guess
            elif high == math.inf:
                size, step = self.evaluator.load.round(low * step) + (low < 1 / (step - 1)), min(step**2, MAX_GROWTH)
            elif high <= self.evaluator.load.smallest:
                return 0.0, high
            else:
                size = max(self.evaluator.load.round(high / step), self.evaluator.load.smallest)
                step = min(step**2, MAX_GROWTH)
            if size > MAX_SIZE:
                raise ValueError(
                    f"more than {MAX_SIZE:,.0f} {self.evaluator.load.unit} meet the SLO: it limits nothing here; "
                    "tighten --ttft or --tpot"
                )
            if self.serves(size):
                low = size
            else:
                high = size
        return low, high

    def _known(self) -> tuple[float, float]:
        points = [p for p in self.evaluator.points() if len(p.replications) >= self.num_replications]
        accepted = {point.size: point.meets(self.evaluator.slo, self.bound) for point in points}
        high = min((size for size, serves in accepted.items() if not serves), default=math.inf)
        return max((size for size, serves in accepted.items() if serves and size < high), default=0.0), high
