"""How much more of the present load the fleet serves within its SLO, and when its trend will reach that."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from calibrate.shadow.fitted_load import requests_like
from calibrate.shadow.windows import Window
from simulator.deployment import Deployment
from simulator.study.capacity import CapacitySearch
from simulator.study.capacity_screening import LimitsNothingError
from simulator.study.loads import TraceLoad
from simulator.study.points import Evaluator
from simulator.study.slo import SLO
from workloads.traces.trace import Trace

REQUESTS: Final = 4_000  # that the load is stretched from
REPLICATIONS: Final = 4
LEAST_TREND, MOST_TREND = 10, 30  # windows that a trend is read from
CERTAIN: Final = 3.0  # times its standard error: a smaller trend is none
MOVED: Final = 0.15  # lengths, hits or steps that differ by so much are another load


@dataclass(frozen=True, kw_only=True)
class Mix:
    """What the largest rate depends on."""

    prompt_tokens: float
    output_tokens: float
    prefix_hit_rate: float
    speed: float  # times as long as simulated steps take

    def is_near(self, other: "Mix") -> bool:
        """Whether what was found for the other holds for this one."""
        pairs = [(getattr(self, name), getattr(other, name)) for name in ("prompt_tokens", "output_tokens", "speed")]
        return abs(self.prefix_hit_rate - other.prefix_hit_rate) <= MOVED and all(
            one > 0 and another > 0 and abs(math.log(one / another)) <= MOVED for one, another in pairs
        )


def mix_of(windows: Sequence[Window], speed: float) -> Mix:
    """Of the latest windows; means over their requests."""
    weights = [max(window.first_tokens, 1e-9) for window in windows]

    def mean(values: Sequence[float]) -> float:
        return float(np.average(values, weights=weights))

    return Mix(
        prompt_tokens=mean([window.prompt_tokens for window in windows]),
        output_tokens=mean([window.output_tokens for window in windows]),
        prefix_hit_rate=mean([window.figures.get("prefix_hit_rate", 0.0) for window in windows]),
        speed=speed,
    )


def most_per_server(deployment: Deployment, windows: Sequence[Window], mix: Mix, slo: SLO, *, seed: int = 0) -> float:
    """Requests per second that one server takes within the SLO, arriving at random.

    0 if it misses it when idle; infinite where no load misses it.
    """
    last, span_s = windows[-1], REQUESTS / len(windows)
    stretched = [
        replace(
            each,
            start_s=number * span_s,
            end_s=(number + 1) * span_s,
            arrivals=span_s,
            figures={**each.figures, "prefix_hit_rate": mix.prefix_hit_rate},
        )
        for number, each in enumerate(windows)
    ]
    table = requests_like(stretched, 1, deployment, np.random.default_rng([seed, REQUESTS]))
    trace = Trace(name="the measured load", format="counted", table=table, source="the servers' metrics")
    evaluator = Evaluator(
        fleet=deployment.with_step_times(mix.speed).fleet(1, None),
        load=TraceLoad(trace=trace, think_time_s=0.0, seed=seed),
        slo=slo,
    )
    guess = max(last.requests_per_s / max(last.engines // deployment.data_parallel_size, 1), 0.05)
    try:
        return CapacitySearch(evaluator, guess, replications=REPLICATIONS).located().mean
    except LimitsNothingError:
        return math.inf


def seconds_until(windows: Sequence[Window], most: float) -> float | None:
    """Until the trend of requests per second reaches so many; 0 where it has; None where there is no such trend."""
    recent = windows[-MOST_TREND:]
    if len(recent) < LEAST_TREND or not math.isfinite(most):
        return None
    times = np.array([(window.start_s + window.end_s) / 2 for window in recent])
    rates = np.array([window.requests_per_s for window in recent])
    away = times - times.mean()
    slope = float(away @ rates / (away @ away))
    left = rates - rates.mean() - slope * away
    error = math.sqrt(float(left @ left) / (len(recent) - 2) / float(away @ away))
    now = float(rates.mean() + slope * (recent[-1].end_s - times.mean()))
    if now >= most:
        return 0.0
    return (most - now) / slope if slope > max(CERTAIN * error, 0.0) else None
