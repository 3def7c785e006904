"""Loads that were simulated, each in several replications."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from simulator.cancellations import Cancellations
from simulator.fleet.fleet import Fleet
from simulator.latency.model import AverageStep, average_step
from simulator.study.loads import HOUR_S, Load
from simulator.study.replication import Replication
from simulator.study.running.simulations import Simulations
from simulator.study.running.task import Task
from simulator.study.slo import SLO
from simulator.study.slo_crossing import LoadSample
from simulator.study.statistics import Interval, t_interval
from simulator.tenants import TenantFigures, pooled

MATERIAL_GROWTH = 0.25
SUMMED = frozenset(
    {"requests_per_s", "output_tokens_per_s", "in_flight", "running", "waiting", "held", "queue_slope_per_s"}
)  # figures that grow with the number of copies; all others are shares, times, or figures of a server


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """One load size, simulated in several replications with random numbers common to all sizes.

    A fleet of `copies` that share nothing serves as many times what one of them was simulated to serve.
    """

    size: float
    replications: tuple[Replication, ...]
    copies: int = 1

    def in_copies(self, copies: int) -> "Point":
        """The same in so many copies of what was simulated."""
        return replace(self, size=self.size * copies, copies=self.copies * copies)

    @property
    def attainment(self) -> Interval:
        return self.interval("attainment")

    def interval(self, name: str) -> Interval:
        """A figure of the replications; those of one number share their random numbers, and count once."""
        by_number: dict[int, list[float]] = {}
        for each in self.replications:
            by_number.setdefault(each.number, []).append(getattr(each, name) * self._summed(name))
        return t_interval([sum(values) / len(values) for values in by_number.values()])

    def _summed(self, name: str) -> int:
        return self.copies if name in SUMMED else 1

    @property
    def queue_grows(self) -> bool:
        """Whether the waiting queue's slope lies above 0 with 95 % confidence, and amounts to something.

        A search looks at a dozen points, so that chance alone shows a slope now and then: one that adds less than
        MATERIAL_GROWTH of the requests in flight over the measured time does not count. A queue of users ends with
        them: without a limit on TTFT, one that most of them stand in counts as growing.
        """
        if all(replication.is_stuck for replication in self.replications):
            return True
        return self.queue_may_grow and self.interval("queue_slope_per_s").low > 0

    @property
    def queue_may_grow(self) -> bool:
        """Whether the slope amounts to something, be it chance."""
        measured_s = self.mean("horizon_s") - self.mean("warmup_s")
        return self.interval("queue_slope_per_s").mean * measured_s > MATERIAL_GROWTH * self.mean("in_flight")

    def shown(self) -> LoadSample:
        """What the estimate of the capacity takes from it; where the queue grows, all requests miss in the long run."""
        missed = np.array([1 - replication.attainment for replication in self.replications])
        return LoadSample(
            size=self.size,
            misses=np.ones_like(missed) if self.queue_grows else missed,
            requests=np.maximum([float(replication.num_requests) for replication in self.replications], 1.0),
            surplus=np.array([replication.surplus for replication in self.replications]),
            hours=(self.mean("horizon_s") - self.mean("warmup_s")) / HOUR_S,
        )

    def mean(self, name: str) -> float:
        values = [float(getattr(replication, name)) for replication in self.replications]
        return sum(values) / len(values) * self._summed(name)

    @property
    def host_hit_rate(self) -> float | None:
        """Share of prompt tokens loaded from host memory; None where no KV is kept there."""
        found = [each.host_hit_rate for each in self.replications if each.host_hit_rate is not None]
        return sum(found) / len(found) if found else None

    def times(self, name: str) -> NDArray[np.float64]:
        """One latency of all replications' requests."""
        return np.concatenate([getattr(replication.times, name) for replication in self.replications])

    def ttft_over(self, slo: SLO) -> NDArray[np.float64]:
        """Each request's TTFT over its limit; NaN without a first token."""
        new_tokens = np.concatenate([each.waits.new_tokens for each in self.replications])
        return np.asarray(self.times("ttft_s") / slo.ttft_limit_s(new_tokens))

    @property
    def cancelled(self) -> Cancellations | None:
        """Means over the replications; None where all clients wait for ever."""
        found = [asdict(each.cancelled) for each in self.replications if each.cancelled is not None]
        if not found:
            return None
        return Cancellations(**{name: sum(each[name] for each in found) / len(found) for name in found[0]})

    @property
    def tenants(self) -> tuple[TenantFigures, ...]:
        """How each tenant was served, over the replications."""
        return pooled([each.tenants for each in self.replications])

    @property
    def mean_step(self) -> AverageStep | None:
        """Over all engines and replications; None where nothing ran."""
        totals = np.concatenate([replication.totals for replication in self.replications])
        return average_step(totals) if totals["steps"].sum() else None

    @property
    def busy_engines(self) -> float:
        """With steps in flight, on average over time."""
        found = [float(each.totals["busy_s"].sum()) / (each.horizon_s - each.warmup_s) for each in self.replications]
        return self.copies * sum(found) / len(found)

    def blocked_share(self, reason: int) -> float:
        return sum(r.blocked_shares[reason] for r in self.replications) / len(self.replications)


Watcher = Callable[[Point, str], None]
"""Gets each point as it is simulated, with the unit of its size."""


@dataclass(kw_only=True)
class Evaluator:
    """Simulates points of one deployment, each once; replications run side by side.

    Of a fleet of `copies` that share nothing one is simulated, under its part of the load.
    """

    fleet: Fleet
    load: Load
    slo: SLO
    copies: int = 1
    judged_by: SLO | None = None  # what the same simulations are asked for instead of `slo`
    hours_met: float | None = None  # the share of hours that have to meet the SLO; None: the long run has to
    watcher: Watcher | None = None
    simulations: Simulations = field(default_factory=Simulations)
    known: dict[float, tuple[Replication, ...]] = field(default_factory=dict)
    _judged: dict[float, tuple[Replication, ...]] = field(default_factory=dict, init=False)

    def point(self, size: float, num_replications: int) -> Point:
        """The point with at least that many replications; earlier ones are kept."""
        if self.copies > 1:
            size = max(self.load.round(size / self.copies), self.load.smallest)
        known = self.known.get(size, ())
        if len(known) < num_replications:
            known += self._replicate(size, range(len(known), num_replications))
            self.known[size] = known
            if self.watcher is not None:
                self.watcher(Point(size=size, replications=known), self.load.unit)
        return self._point(size)

    def points(self) -> list[Point]:
        """Every point simulated so far, by size."""
        return [self._point(size) for size in sorted(self.known)]

    def recall(self, point: Point) -> None:
        """Take what was simulated before."""
        self.known[point.size / point.copies] = point.replications

    def under(self, slo: SLO) -> "Evaluator":
        """The same simulations, known to both from now on, judged by another SLO."""
        return replace(self, judged_by=slo)

    def _point(self, size: float) -> Point:
        if self.judged_by is None:
            return Point(size=size, replications=self.known[size]).in_copies(self.copies)
        judged = self._judged.get(size, ())
        judged += tuple(each.under(self.judged_by) for each in self.known[size][len(judged) :])
        self._judged[size] = judged
        return Point(size=size, replications=judged).in_copies(self.copies)

    def _replicate(self, size: float, numbers: range) -> tuple[Replication, ...]:
        task = Task(fleet=self.fleet, load=self.load, size=size, slo=self.slo, replication=0)
        return tuple(self.simulations.run([replace(task, replication=number) for number in numbers]))
