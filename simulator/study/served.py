"""What users get under a load, such as that of the users at 95 % confidence."""

import math
from typing import Final

import numpy as np

from simulator.study.capacity import Capacity
from simulator.study.points import Evaluator, Point
from simulator.study.statistics import FloatArray, summary, t_interval

REQUESTS: Final = 50_000  # of the load: the p95 of TTFT is then known to some 15 % with `chat` on one H100
COARSE_REQUESTS: Final = 20_000  # where few replications say what users there are: to some 25 %
FEWEST: Final = 2  # replications
MOST: Final = 20  # the same
_MEANS = (
    "in_flight", "requests_per_s", "output_tokens_per_s", "kv_usage", "prefix_hit_rate", "preemptions_per_request",
)  # fmt: skip


def safe_point(
    evaluator: Evaluator, found: Capacity, *, users: int, users_low: int, requests: int = REQUESTS
) -> Point | None:
    """The load of `users_low` where `found` is that of `users`; None without users at 95 % confidence."""
    if not users_low or found.point is None:
        return None
    load = evaluator.load
    size = max(load.round(found.mean * users_low / users * (1 + 1e-9)), load.smallest)
    most = len(found.pair[0].replications)
    return evaluator.point(size, max(min(_enough(found.point, requests), most), FEWEST))


def users_point(evaluator: Evaluator, size: float, *, is_confirmed: bool, replications: int | None = None) -> Point:
    """The load of users that are asked for: less of it where the fleet is not confirmed.

    At most so many `replications`, where their number was asked for.
    """
    first = evaluator.point(max(evaluator.load.round(size), evaluator.load.smallest), FEWEST)
    count = _enough(first, REQUESTS if is_confirmed else COARSE_REQUESTS)
    return evaluator.point(first.size, min(count, replications or MOST))


def _enough(point: Point, requests: int) -> int:
    """Replications such as a point's that have so many requests."""
    return math.ceil(requests / max(point.mean("num_requests"), 1))


def served_json(point: Point | None) -> dict[str, object]:
    """What users get under a load, and what it does to the servers."""
    found: dict[str, object] = {name: point.mean(name) if point else 0.0 for name in _MEANS}
    return found | {name: latency_summary(point, name) if point else None for name in ("ttft_s", "tpot_s")}


def latency_summary(point: Point, name: str) -> dict[str, float | None]:
    """Percentiles over all replications' requests; `p95_low`, `p95_high`: the 95 % interval around that p95.

    Its half-width is that of the mean of each replication's p95.
    """
    by_number: dict[int, list[FloatArray]] = {}
    for replication in point.replications:
        by_number.setdefault(replication.number, []).append(getattr(replication.times, name))
    found = summary(point.times(name))
    tails = (summary(np.concatenate(samples))["p95"] for samples in by_number.values())
    p95, each = found["p95"] or 0.0, t_interval([value for value in tails if value is not None] or [0.0])
    return found | {"p95_low": max(p95 + each.low - each.mean, 0.0), "p95_high": p95 + each.high - each.mean}
