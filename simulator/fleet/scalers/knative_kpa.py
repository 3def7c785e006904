"""Knative's pod autoscaler: concurrency averaged over a stable and a panic window.

Source: knative/serving, pkg/autoscaler/scaling/autoscaler.go; defaults of the ConfigMap config-autoscaler. Requests
wait in front of the fleet where there is none; the activator's buffering beyond that is not modelled.
"""

import math
from collections import deque

from files.schema import NotNegative, Positive, Strict
from simulator.fleet.scaler import Goal, Observed, goal_of_target


class Settings(Strict, frozen=True, kw_only=True):
    container_concurrency_target_default: Positive = 100.0
    container_concurrency_target_percentage: Positive = 70.0
    stable_window_s: Positive = 60.0
    panic_window_percentage: Positive = 10.0
    panic_threshold_percentage: Positive = 200.0
    max_scale_up_rate: Positive = 1000.0
    max_scale_down_rate: Positive = 2.0
    scale_to_zero_grace_period_s: NotNegative = 30.0
    scale_down_delay_s: NotNegative = 0.0

    @property
    def target(self) -> float:
        return self.container_concurrency_target_default * self.container_concurrency_target_percentage / 100

    @property
    def goal(self) -> Goal:
        setting = "container_concurrency_target_default"
        return goal_of_target("requests in flight", self.target, setting, "in_flight")


class Scaler:
    period_s = 2.0

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._decider: Decider | None = None
        self._seen: deque[tuple[float, float]] = deque()
        self._idle_since_s = math.inf

    def desired_replicas(self, seen: Observed) -> int:
        given = self.settings
        if self._decider is None:
            self._decider = Decider(given, ready=len(seen.ready), now_s=seen.time_s)
        self._seen.append((seen.time_s, seen.in_flight_mean))
        while self._seen[0][0] <= seen.time_s - given.stable_window_s:
            self._seen.popleft()
        stable = self._mean(-math.inf)
        panic = self._mean(seen.time_s - given.stable_window_s * given.panic_window_percentage / 100)
        desired_replicas = self._decider.desired(stable, panic, ready=len(seen.ready), now_s=seen.time_s)
        if desired_replicas > 0:
            self._idle_since_s = math.inf
            return desired_replicas
        self._idle_since_s = min(self._idle_since_s, seen.time_s)
        return 0 if seen.time_s - self._idle_since_s >= given.scale_to_zero_grace_period_s else min(seen.replicas, 1)

    def _mean(self, after_s: float) -> float:
        values = [value for time_s, value in self._seen if time_s > after_s]
        return sum(values) / len(values)


class Decider:
    """What the original decides of the two averages; it panics at first where several pods are there."""

    def __init__(self, settings: Settings, *, ready: int, now_s: float) -> None:
        self._settings = settings
        self.panic_s = now_s if ready > 1 else math.inf  # infinity: no panic
        self._most = ready
        self._delayed: deque[tuple[float, int]] = deque()

    def desired(self, stable: float, panic: float, *, ready: int, now_s: float) -> int:
        given, ready = self._settings, max(ready, 1)
        most, least = math.ceil(given.max_scale_up_rate * ready), math.floor(ready / given.max_scale_down_rate)
        by_panic = math.ceil(panic / given.target)
        desired_replicas = min(max(math.ceil(stable / given.target), least), most)
        if by_panic / ready >= given.panic_threshold_percentage / 100:
            self.panic_s = now_s
        elif now_s - self.panic_s > given.stable_window_s:
            self.panic_s, self._most = math.inf, 0
        if self.panic_s < math.inf:
            self._most = desired_replicas = max(desired_replicas, min(max(by_panic, least), most), self._most)
        if given.scale_down_delay_s == 0:
            return desired_replicas
        self._delayed.append((now_s, desired_replicas))
        while self._delayed[0][0] <= now_s - given.scale_down_delay_s:
            self._delayed.popleft()
        return max(count for _, count in self._delayed)
