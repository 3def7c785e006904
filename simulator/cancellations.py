"""What became of requests without a whole answer: clients did not wait for it, or the gateway rejected them."""

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.core import layout


@dataclass(frozen=True, kw_only=True)
class Cancellations:
    """Shares from 0 to 1. Every attempt is a request of its own, so that a turn may count several times."""

    abandoned: float = 0.0
    """Of the requests that arrived: the client gave up before the first token."""
    timed_out: float = 0.0
    """Of the requests that arrived: the whole answer was not there in time."""
    rejected: float = 0.0
    """Of the requests that arrived: over a quota, or the gateway's queue was full or too slow."""
    retries: float = 0.0
    """Of the requests that arrived: attempts that follow a time-out or a rejection."""
    wasted_tokens: float = 0.0
    """Of the computed tokens: prompt and answer of requests that were cancelled."""

    @property
    def cancelled(self) -> float:
        """Of the requests that arrived."""
        return self.abandoned + self.timed_out + self.rejected

    def to_json(self) -> dict[str, float]:
        """Without `rejected` where nothing was."""
        return {name: value for name, value in asdict(self).items() if name != "rejected" or value}


def is_cancelled(requests: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which requests ended before their answer did."""
    return np.isin(requests["status"], (layout.ABANDONED, layout.TIMED_OUT, layout.LOST, layout.REJECTED))


def cancellations(
    attempts: NDArray[np.void], num_requests: int, computed_tokens: float, *, since_s: float = 0.0
) -> Cancellations:
    """Of requests that arrived from `since_s` on; work counts where the request was cancelled since.

    `attempts` has the first attempts of `num_requests` requests, then the second ones, and so on.
    """
    has_arrived = (attempts["status"] != layout.NOT_ARRIVED) & (attempts["arrival_s"] >= since_s)
    status, count = attempts["status"][has_arrived], max(int(has_arrived.sum()), 1)
    lost = attempts[is_cancelled(attempts) & (attempts["finish_s"] >= since_s)]
    wasted = float(np.maximum(lost["computed"] - np.maximum(lost["cached_tokens"], 0), 0).sum())
    return Cancellations(
        abandoned=float((status == layout.ABANDONED).sum()) / count,
        timed_out=float((status == layout.TIMED_OUT).sum()) / count,
        rejected=float((status == layout.REJECTED).sum()) / count,
        retries=float(has_arrived[num_requests:].sum()) / count,
        wasted_tokens=wasted / computed_tokens if computed_tokens else 0.0,
    )
