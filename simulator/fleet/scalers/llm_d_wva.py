"""llm-d's workload variant autoscaler: spare KV cache and queue of the replicas that are not saturated.

Source: llm-d/llm-d-workload-variant-autoscaler, the saturation analyzer of percentages, for one variant; behind it a
horizontal pod autoscaler as its chart sets it.
"""

from collections import deque

from files.schema import NotNegative, Positive, Share, Strict
from simulator.fleet.scaler import Goal, Observed
from simulator.fleet.scalers import hpa

Sample = tuple[float, dict[int, tuple[float, float]]]  # when, and KV usage and queue by replica


class Settings(Strict, frozen=True, kw_only=True):
    kv_cache_threshold: Share = 0.80
    queue_length_threshold: NotNegative = 5.0
    kv_spare_trigger: Share = 0.10
    queue_spare_trigger: NotNegative = 3.0
    interval_s: Positive = 60.0  # of its decisions, which see the largest value since the one before
    scrape_s: Positive = 15.0
    stabilization_s: NotNegative = 240.0  # of the HPA behind it, up and down

    @property
    def goal(self) -> Goal:
        kv = f"{self.kv_spare_trigger:.0%} of the KV cache spare below {self.kv_cache_threshold:.0%} (kv_spare_trigger)"
        queue = f"{self.queue_spare_trigger:g} requests of queue spare below {self.queue_length_threshold:g}"
        return Goal(
            text=f"{kv} and {queue} (queue_spare_trigger)",
            for_more="a higher kv_spare_trigger or queue_spare_trigger",
            for_fewer="a lower kv_spare_trigger or queue_spare_trigger",
        )


class Scaler:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.period_s = settings.scrape_s
        self._samples: deque[Sample] = deque()
        self._decided_s = 0.0
        self._wish: int | None = None
        self._behavior = hpa.Behavior(
            hpa.Settings(
                scale_up_stabilization_s=settings.stabilization_s,
                scale_down_stabilization_s=settings.stabilization_s,
                scale_up_pods=10,
                scale_up_percent=0.0,
                scale_up_period_s=150.0,
            )
        )

    def desired_replicas(self, seen: Observed) -> int:
        given = self.settings
        values = zip(seen.kv_usage, map(float, seen.waiting), strict=True)
        self._samples.append((seen.time_s, dict(zip(seen.ready, values, strict=True))))
        while self._samples[0][0] <= seen.time_s - given.interval_s:
            self._samples.popleft()
        if seen.time_s - self._decided_s >= given.interval_s:
            self._decided_s = seen.time_s
            is_settled = len(seen.ready) == seen.replicas  # no decision while replicas are pending
            self._wish = seen.replicas + (step(self._largest(seen.ready), given) if is_settled else 0)
        wish = seen.replicas if self._wish is None else self._wish
        return self._behavior.limited(hpa.replicas_for_total(wish, 1.0, seen.replicas, hpa.Settings().tolerance), seen)

    def _largest(self, ready: tuple[int, ...]) -> list[tuple[float, float]]:
        found = [[of[name] for _, of in self._samples if name in of] for name in ready]
        return [(max(kv for kv, _ in values), max(queue for _, queue in values)) for values in found if values]


def step(replicas: list[tuple[float, float]], given: Settings) -> int:
    """1, 0 or -1 replicas more, of KV usage and queue length of each."""
    fit = [each for each in replicas if each[0] < given.kv_cache_threshold and each[1] < given.queue_length_threshold]
    if not replicas:
        return 0
    if not fit:
        return 1
    kv, queue = (sum(values) for values in zip(*fit, strict=True))
    if _is_short(kv / len(fit), queue / len(fit), given):
        return 1
    return -1 if len(fit) > 1 and not _is_short(kv / (len(fit) - 1), queue / (len(fit) - 1), given) else 0


def _is_short(kv: float, queue: float, given: Settings) -> bool:
    """Whether replicas with these means have too little to spare."""
    spare_kv, spare_queue = given.kv_cache_threshold - kv, given.queue_length_threshold - queue
    return spare_kv < given.kv_spare_trigger or spare_queue < given.queue_spare_trigger
