"""Kubernetes' horizontal pod autoscaler, on one metric of the replicas.

Source: kubernetes/kubernetes, pkg/controller/podautoscaler (replica_calculator.go, horizontal.go); defaults of
autoscaling/v2 and of kube-controller-manager.
"""

import math
from collections import deque
from collections.abc import Mapping
from typing import Final, Literal

from files.schema import AtLeastOne, NotNegative, Positive, Share, Strict
from simulator.fleet.scaler import Goal, Observed, goal_of_target

Metric = Literal["in_flight", "running", "waiting", "kv_usage"]
METRICS: Final[Mapping[Metric, str]] = {
    "in_flight": "requests in flight",
    "running": "running requests",
    "waiting": "waiting requests",
    "kv_usage": "of the KV cache in use",
}


class Settings(Strict, frozen=True, kw_only=True):
    metric: Metric = "in_flight"
    target_average_value: Positive = 16.0  # llm-d's guide to workload autoscaling: running requests per replica
    tolerance: Share = 0.1
    sync_period_s: Positive = 15.0
    scale_up_stabilization_s: NotNegative = 0.0
    scale_down_stabilization_s: NotNegative = 300.0
    scale_up_pods: AtLeastOne = 4
    scale_up_percent: NotNegative = 100.0
    scale_up_period_s: Positive = 15.0

    @property
    def goal(self) -> Goal:
        return goal_of_target(METRICS[self.metric], self.target_average_value, "target_average_value", self.metric)


class Scaler:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.period_s = settings.sync_period_s
        self._behavior = Behavior(settings)

    def desired_replicas(self, seen: Observed) -> int:
        given = self.settings
        proposed = replicas_for(seen.values(given.metric), given.target_average_value, seen.replicas, given.tolerance)
        return self._behavior.limited(proposed, seen)


def replicas_for(values: tuple[float, ...], target: float, replicas: int, tolerance: float) -> int:
    """Of a metric's average over replicas; those that start count as idle on the way up, as on target on the way down.

    No value, no action.
    """
    if not values or not replicas:
        return replicas
    ratio = sum(values) / len(values) / target
    missing = max(replicas - len(values), 0)
    if not missing:
        return replicas if abs(1 - ratio) <= tolerance else math.ceil(ratio * len(values))
    filled = (*values, *[target if ratio < 1 else 0.0] * missing)
    with_all = sum(filled) / len(filled) / target
    if abs(1 - with_all) <= tolerance or (ratio - 1) * (with_all - 1) < 0:
        return replicas
    desired_replicas = math.ceil(with_all * len(filled))
    turns = (with_all < 1 and desired_replicas > replicas) or (with_all > 1 and desired_replicas < replicas)
    return replicas if turns else desired_replicas


def replicas_for_total(total: float, target: float, replicas: int, tolerance: float) -> int:
    """Of a metric of the whole fleet: so many of `target` each."""
    if replicas and abs(1 - total / (target * replicas)) <= tolerance:
        return replicas
    return math.ceil(total / target)


class Behavior:
    """How fast wishes are followed: after windows of stabilization, and upwards by so many a period at most."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._proposals = Proposals()
        self._added: deque[tuple[float, int]] = deque()

    def limited(self, proposed: int, seen: Observed) -> int:
        given, now_s = self._settings, seen.time_s
        desired_replicas = self._stabilized(proposed, seen.replicas, now_s)
        while self._added and self._added[0][0] <= now_s - given.scale_up_period_s:
            self._added.popleft()
        before = seen.replicas - sum(count for _, count in self._added)
        most = max(before + given.scale_up_pods, math.ceil(before * (1 + given.scale_up_percent / 100)))
        desired_replicas = seen.bounded(min(desired_replicas, max(most, seen.replicas)))
        if desired_replicas > seen.replicas:
            self._added.append((now_s, desired_replicas - seen.replicas))
        return desired_replicas

    def _stabilized(self, proposed: int, replicas: int, now_s: float) -> int:
        """Up to the least, down to the most of what was proposed within each window."""
        up_s, down_s = self._settings.scale_up_stabilization_s, self._settings.scale_down_stabilization_s
        self._proposals.add(now_s, proposed, keep_s=max(up_s, down_s))
        least, most = min(self._proposals.since(now_s - up_s)), max(self._proposals.since(now_s - down_s))
        return min(max(replicas, least), most)


class Proposals:
    """How many replicas were proposed, and when."""

    def __init__(self) -> None:
        self._found: deque[tuple[float, int]] = deque()

    def add(self, now_s: float, proposed: int, *, keep_s: float) -> None:
        """Enter one; what is older than `keep_s` is forgotten."""
        self._found.append((now_s, proposed))
        while self._found[0][0] < now_s - keep_s:
            self._found.popleft()

    def since(self, time_s: float) -> list[int]:
        return [count for at_s, count in self._found if at_s >= time_s]
