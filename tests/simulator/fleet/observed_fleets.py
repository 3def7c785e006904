"""Fleets as an autoscaler sees them."""

from typing import Any

from simulator.fleet.scaler import Observed


def observed(
    *, time_s: float = 0.0, replicas: int = 1, ready: int | None = None, waiting: int = 0, running: int = 0,
    kv_usage: float = 0.0, least: int = 0, most: int = 10_000, **more: Any,
) -> Observed:  # fmt: skip
    """A fleet whose ready replicas are alike."""
    count = replicas if ready is None else ready
    values: dict[str, Any] = {
        "elapsed_s": 15.0, "in_flight_mean": float(count * (running + waiting)), "queued_kv": (0.0,) * count
    }  # fmt: skip
    return Observed(
        time_s=time_s, replicas=replicas, min_replicas=least, max_replicas=most, ready=tuple(range(count)),
        running=(running,) * count, waiting=(waiting,) * count, kv_usage=(kv_usage,) * count, **(values | more),
    )  # fmt: skip
