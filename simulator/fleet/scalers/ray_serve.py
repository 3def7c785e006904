"""Ray Serve: ongoing requests per replica, and wishes that must last.

Source: ray-project/ray, python/ray/serve/autoscaling_policy.py; defaults of AutoscalingConfig. It looks whenever
handles push their metrics, not ten times a second in between.
"""

import math
from collections import deque

from files.schema import NotNegative, Positive, Strict
from simulator.fleet.scaler import Goal, Observed, goal_of_target


class Settings(Strict, frozen=True, kw_only=True):
    target_ongoing_requests: Positive = 2.0
    metrics_interval_s: Positive = 10.0
    look_back_period_s: Positive = 30.0
    upscale_delay_s: NotNegative = 30.0
    downscale_delay_s: NotNegative = 600.0
    downscale_to_zero_delay_s: NotNegative | None = None  # None: as any other step down
    upscaling_factor: Positive = 1.0
    downscaling_factor: Positive = 1.0

    @property
    def goal(self) -> Goal:
        target = self.target_ongoing_requests
        return goal_of_target("ongoing requests", target, "target_ongoing_requests", "in_flight")


class Scaler:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.period_s = settings.metrics_interval_s
        self._seen: deque[tuple[float, float, float]] = deque()
        self._policy = Policy(settings)

    def desired_replicas(self, seen: Observed) -> int:
        self._seen.append((seen.time_s, seen.elapsed_s, seen.in_flight_mean))
        while self._seen[0][0] <= seen.time_s - self.settings.look_back_period_s:
            self._seen.popleft()
        span_s = sum(elapsed_s for _, elapsed_s, _ in self._seen)
        total = sum(elapsed_s * value for _, elapsed_s, value in self._seen) / span_s if span_s else 0.0
        if not seen.ready and seen.replicas == 0:
            total = max(total, float(seen.held))
        return self._policy.decided(
            total, ready=len(seen.ready), target=seen.replicas, least=seen.min_replicas, most=seen.max_replicas,
            now_s=seen.time_s,
        )  # fmt: skip


class Policy:
    """The original's decision; `target` is what it decided last, `ready` how many of these serve."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._wish = 0  # 1: up, -1: down
        self._since_s = -math.inf

    def decided(self, total: float, *, ready: int, target: int, least: int, most: int, now_s: float) -> int:
        given = self._settings
        if ready == 0:
            return max(math.ceil(given.upscaling_factor), target) if total > 0 else target
        desired_replicas = min(max(self._scaled(total / given.target_ongoing_requests, ready), least), most)
        wish = (desired_replicas > target) - (desired_replicas < target)
        if wish != self._wish:
            self._wish, self._since_s = wish, now_s
        if wish == 0:
            return target
        delay_s = given.upscale_delay_s
        if wish < 0:
            to_zero_s = given.downscale_to_zero_delay_s
            delay_s = to_zero_s if target == 1 and to_zero_s is not None else given.downscale_delay_s
            desired_replicas = desired_replicas if target == 1 else max(desired_replicas, 1)
        if now_s - self._since_s < delay_s:
            return target
        self._wish = 0
        return desired_replicas

    def _scaled(self, desired_replicas: float, ready: int) -> int:
        difference = desired_replicas - ready
        factor = self._settings.upscaling_factor if difference > 0 else self._settings.downscaling_factor
        found = math.ceil(ready + factor * difference)
        return found - 1 if math.ceil(desired_replicas) < ready and found == ready else found
