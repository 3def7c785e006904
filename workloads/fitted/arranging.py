"""Which request comes in which window, so that busy times have the lengths that the trace's had."""

from typing import Final

import numpy as np

from files.cache.kernel_cache import compiled
from workloads.requests import BoolArray, FloatArray, IntArray

_ROUNDS: Final = 20  # of one pair per request


def arranged(values: FloatArray, window: IntArray, targets: FloatArray, rng: np.random.Generator) -> IntArray:
    """[n] an order of requests, so that those that then stand in a window have its means.

    `values` [quantities, n] are the requests', `window` [n] is that of each place, `targets` [quantities, windows] are
    means, NaN for any. Pairs are drawn at random, and change places where that brings both windows nearer.
    """
    n, order = len(window), np.arange(len(window))
    count = np.bincount(window, minlength=targets.shape[1])
    wanted: BoolArray = np.asarray(np.isfinite(targets).all(axis=0), np.bool_)
    spread = values.std(axis=1) if n else np.zeros(len(values))
    if n < 2 or not wanted.any() or not (spread > 0).any():
        return order
    scaled = values / np.where(spread > 0, spread, np.inf)[:, None]
    goal = np.where(wanted, targets, 0) / np.where(spread > 0, spread, np.inf)[:, None] * count
    # The draw's own total is shared out: nobody gains a token.
    goal *= (scaled[:, wanted[window]].sum(axis=1) / np.maximum(goal.sum(axis=1), 1e-300))[:, None]
    excess = np.stack([np.bincount(window, row, len(count)) for row in scaled]) - goal
    excess[:, ~wanted] = 0
    for _ in range(_ROUNDS):
        _exchange(rng.integers(0, n, (n, 2)), scaled, window, wanted, excess, order)
    return order


@compiled
def _exchange(  # noqa: PLR0917  numba takes arrays one by one
    pairs: IntArray, values: FloatArray, window: IntArray, wanted: BoolArray, excess: FloatArray, order: IntArray
) -> None:
    for pair in range(len(pairs)):
        one, other = pairs[pair, 0], pairs[pair, 1]
        first, second = window[one], window[other]
        if first == second or not (wanted[first] and wanted[second]):
            continue
        gain = 0.0
        for quantity in range(len(values)):
            more = values[quantity, order[other]] - values[quantity, order[one]]
            gain -= more * (excess[quantity, first] - excess[quantity, second] + more)
        if gain <= 0:
            continue
        for quantity in range(len(values)):
            more = values[quantity, order[other]] - values[quantity, order[one]]
            excess[quantity, first] += more
            excess[quantity, second] -= more
        order[one], order[other] = order[other], order[one]
