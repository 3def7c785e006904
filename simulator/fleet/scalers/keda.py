"""KEDA: the horizontal pod autoscaler on a metric of the whole fleet, and an activation between 0 and 1.

Source: kedacore/keda, pkg/scaling; the metric and its threshold are those of production-stack's example.
"""

import math

from files.schema import NotNegative, Positive, Strict
from simulator.fleet.scaler import Goal, Observed, goal_of_target
from simulator.fleet.scalers import hpa


class Settings(Strict, frozen=True, kw_only=True):
    metric: hpa.Metric = "waiting"
    threshold: Positive = 5.0
    activation_threshold: NotNegative = 0.0
    polling_interval_s: Positive = 30.0  # between 0 and 1 only; above, the HPA asks
    cooldown_period_s: NotNegative = 300.0
    tolerance: NotNegative = 0.1
    scale_down_stabilization_s: NotNegative = 300.0

    @property
    def goal(self) -> Goal:
        return goal_of_target(hpa.METRICS[self.metric], self.threshold, "threshold", self.metric)


class Scaler:
    period_s = 15.0  # the HPA's

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        behavior = hpa.Settings(scale_down_stabilization_s=settings.scale_down_stabilization_s)
        self._behavior = hpa.Behavior(behavior)
        self._polled_s = -math.inf
        self._active_s: float | None = None

    def desired_replicas(self, seen: Observed) -> int:
        given = self.settings
        total = sum(seen.values(given.metric)) + seen.held
        replicas = seen.replicas
        if seen.time_s - self._polled_s >= given.polling_interval_s:
            self._polled_s = seen.time_s
            is_active = total > given.activation_threshold or seen.min_replicas > 0
            if is_active or self._active_s is None:
                self._active_s = seen.time_s
            if replicas == 0:
                return max(1, seen.min_replicas) if is_active else 0
            if not is_active and seen.time_s - self._active_s > given.cooldown_period_s:
                return 0
        if replicas == 0:
            return 0
        proposed = hpa.replicas_for_total(total, given.threshold, replicas, given.tolerance)
        return max(self._behavior.limited(proposed, seen), 1)
