"""Dynamo's planner for engines that prefill and decode: by thresholds on the KV cache, or by predicted throughput.

Source: ai-dynamo/dynamo, components/src/dynamo/planner/core (load_scaling.py, throughput_scaling.py); `mode=load` is
its scaling by static thresholds, `mode=throughput` predicts the rate as that of the last interval (its predictor
`constant`). What one engine holds within the SLO is given, as `engine_rps`.
"""

import math
from typing import Literal

from files.errors import HeadcountError
from files.schema import NotNegative, Positive, Strict
from simulator.fleet.scaler import REQUESTS_PER_S, Goal, Observed, goal_of_target

THRESHOLDS = {"throughput": (1.0, 0.6), "latency": (0.4, 0.1)}  # of held and queued KV over all: one more, one fewer


class Settings(Strict, frozen=True, kw_only=True):
    mode: Literal["load", "throughput"] = "load"
    optimization_target: Literal["throughput", "latency"] = "throughput"
    load_adjustment_interval_s: Positive = 5.0
    throughput_adjustment_interval_s: Positive = 180.0
    engine_rps: NotNegative = 0.0

    def __post_init__(self) -> None:
        if self.mode == "throughput" and not self.engine_rps:
            raise HeadcountError("mode=throughput needs engine_rps, the requests per second that one replica holds")

    @property
    def goal(self) -> Goal:
        if self.mode == "throughput":
            return goal_of_target("requests per second", self.engine_rps, "engine_rps", REQUESTS_PER_S)
        up, down = THRESHOLDS[self.optimization_target]
        return Goal(
            text=f"{down:.0%} to {up:.0%} of the KV cache held or queued for (optimization_target)",
            for_more="optimization_target=latency or mode=throughput with engine_rps",
            for_fewer="optimization_target=throughput or mode=throughput with engine_rps",
        )


class Scaler:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        is_load = settings.mode == "load"
        self.period_s = settings.load_adjustment_interval_s if is_load else settings.throughput_adjustment_interval_s

    def desired_replicas(self, seen: Observed) -> int:
        given = self.settings
        if given.mode == "throughput":
            return math.ceil(seen.arrived / seen.elapsed_s / given.engine_rps) if seen.elapsed_s else seen.replicas
        if len(seen.ready) != seen.replicas:  # a scaling is in progress
            return seen.replicas
        used = tuple(map(sum, zip(seen.kv_usage, seen.queued_kv, strict=True)))
        return seen.replicas + step(used, *THRESHOLDS[given.optimization_target])


def step(used: tuple[float, ...], up: float, down: float) -> int:
    """One more where any is above, one fewer where all are below; the last one stays."""
    if any(value > up for value in used):
        return 1
    return -1 if len(used) > 1 and all(value < down for value in used) else 0
