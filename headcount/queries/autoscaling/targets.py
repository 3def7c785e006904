"""Which target an autoscaler needs: those below what a replica of the smallest fixed fleet carries, highest first."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from headcount.queries.result import Progress, Watch
from simulator.fleet.scaler import IN_FLIGHT, REQUESTS_PER_S, Observed, goal_of, with_target
from simulator.study.over_time import OverTime

if TYPE_CHECKING:
    from headcount.queries.autoscaling.over_time import FleetOverTime, LoadOverTime, Question

SHARES: Final = (0.9, 0.75, 0.6)
"""Targets tried, as shares of what a replica of the smallest fixed fleet has in its busiest hour: by judgement, the
first that meets the SLO counts."""
_LOOK_S: Final = 60.0
_LOOKS_AN_HOUR: Final = 60
_METRICS: Final = ("running", "waiting", "kv_usage", REQUESTS_PER_S)


@dataclass(frozen=True, kw_only=True)
class Tuner:
    """Finds the target of each autoscaler that is asked for, in the same way."""

    asked: "Question"
    load: "LoadOverTime"
    smallest: OverTime
    """The smallest fixed fleet that meets the SLO."""
    progress: Watch

    def with_tuned(self, fleets: "list[FleetOverTime]") -> "list[FleetOverTime]":
        """Each autoscaled fleet and, after it, the same with the highest target tried that meets the SLO.

        Without it where the target asked for meets it with as few GPU-hours, and where fewer replicas than the smallest
        fixed fleet has are not allowed.
        """
        found: list[FleetOverTime] = []
        names = {fleet.name for fleet in fleets}
        for fleet in fleets:
            found.append(fleet)
            tuned = self.next_target(fleet) if self._has_room else None
            if tuned is None or tuned.name in names:
                continue
            if not self._meets(fleet) or tuned.shown.held_s < fleet.shown.held_s:
                names.add(tuned.name)
                found.append(tuned)
        return found

    def next_target(self, fleet: "FleetOverTime") -> "FleetOverTime | None":
        """The highest target that meets the SLO, below that of a fleet which was tuned already; None without any."""
        if not isinstance(fleet.scaler, str):
            return None
        given = fleet.tuned_from or fleet.scaler
        goal = goal_of(given)
        target = None if goal is None else goal.target
        carried = 0.0 if target is None else self._carried(target.metric)
        if target is None or not carried > 0:
            return None
        names = [with_target(given, target, share * carried) for share in SHARES]
        for name in names[names.index(fleet.name) + 1 :] if fleet.tuned_from else names:
            if name == fleet.name:
                if self._meets(fleet):
                    return None
                continue
            self.progress(Progress(done=0, total=1, note=name))
            found = replace(self.asked, autoscalers=(name,)).fleet(0, self.load)
            if self._meets(found):
                return replace(found, tuned_from=given)
        return None

    @property
    def _has_room(self) -> bool:
        return self.smallest.most_replicas > self.asked.min_replicas

    def _meets(self, fleet: "FleetOverTime") -> bool:
        return fleet.shown.attainment >= self.asked.slo.attainment

    def _carried(self, metric: str) -> float:
        """The mean of a metric of one replica of the smallest fixed fleet, over its busiest hour."""
        return self.smallest.in_flight_at_peak if metric in IN_FLIGHT else self._at_peak[metric]

    @cached_property
    def _at_peak(self) -> dict[str, float]:
        """Of what an autoscaler can see beside the requests in flight; the load is served once more for it."""
        seen: list[Observed] = []

        class Watcher:
            period_s = _LOOK_S

            def desired_replicas(self, observed: Observed) -> int:
                seen.append(observed)
                return observed.replicas

        replicas = self.smallest.most_replicas
        fixed = self.asked.fixed_at(replicas)
        self.progress(Progress(done=0, total=1, note=f"metrics of {fixed.names[-1]}"))
        replace(fixed, autoscalers=(Watcher,), min_replicas=replicas).fleet(0, self.load)
        means = {name: [float(np.mean(one.values(name) or (0.0,))) for one in seen] for name in _METRICS}
        looks = min(_LOOKS_AN_HOUR, len(seen))
        hour = np.full(looks, 1 / looks) if looks else np.ones(1)
        return {name: float(np.convolve(values or [0.0], hour, "valid").max()) for name, values in means.items()}
