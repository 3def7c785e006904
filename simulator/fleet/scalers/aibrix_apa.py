"""AIBrix's application-specific pod autoscaler: one metric, fluctuation tolerances, rates up and down.

Source: vllm-project/aibrix, pkg/controller/podautoscaler/algorithm/apa.go and context/context.go; the metric and its
target are those of its samples.
"""

import math

from files.schema import NotNegative, Positive, Share, Strict
from simulator.fleet.scaler import Goal, Observed, goal_of_target
from simulator.fleet.scalers.hpa import METRICS, Metric, Proposals


class Settings(Strict, frozen=True, kw_only=True):
    metric: Metric = "kv_usage"
    target_value: Positive = 0.5
    up_fluctuation_tolerance: Share = 0.1
    down_fluctuation_tolerance: Share = 0.1
    max_scale_up_rate: Positive = 2.0
    max_scale_down_rate: Positive = 2.0
    scale_up_cooldown_window_s: NotNegative = 0.0
    scale_down_cooldown_window_s: NotNegative = 300.0
    sync_period_s: Positive = 10.0

    @property
    def goal(self) -> Goal:
        return goal_of_target(METRICS[self.metric], self.target_value, "target_value", self.metric)


class Scaler:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.period_s = settings.sync_period_s
        self._proposals = Proposals()

    def desired_replicas(self, seen: Observed) -> int:
        given, values = self.settings, seen.values(self.settings.metric)
        if not values:
            return seen.replicas
        proposed = target_replicas(seen.replicas, sum(values) / len(values), given)
        up_s, down_s = given.scale_up_cooldown_window_s, given.scale_down_cooldown_window_s
        self._proposals.add(seen.time_s, proposed, keep_s=max(up_s, down_s))
        window_s, chosen = (up_s, min) if proposed > seen.replicas else (down_s, max)
        found = chosen(self._proposals.since(seen.time_s - window_s))
        return seen.bounded(max(found, seen.replicas) if proposed > seen.replicas else min(found, seen.replicas))


def target_replicas(replicas: int, use: float, given: Settings) -> int:
    """Of a metric's mean over replicas."""
    ratio = use / given.target_value
    if ratio > 1 + given.up_fluctuation_tolerance:
        return min(math.ceil(replicas * ratio), math.ceil(given.max_scale_up_rate * replicas))
    if ratio < 1 - given.down_fluctuation_tolerance:
        return max(math.ceil(replicas * ratio), math.floor(replicas / given.max_scale_down_rate))
    return replicas
