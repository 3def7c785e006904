"""A quantity's distribution in at most 128 numbers, none of them a single request's."""

from typing import Final

import numpy as np
import numpy.typing as npt

from workloads.distributions import Empirical
from workloads.requests import FloatArray, IntArray

FEWEST: Final = 10  # requests behind every number that a fitted model holds
_BODY, _TAIL = 64, 32  # bins of equal share between the tails; ever smaller ones in each tail
_TAIL_SHARE: Final = 0.1


def binned(values: npt.ArrayLike) -> Empirical:
    """At most 128 values; each is the mean of at least FEWEST of those given, of all if there are fewer.

    The mean of all stays. Bins become finer in both tails, as far as FEWEST allows: the shortest answers decide who
    misses a TPOT limit. Equal values stand in one bin: a value that many requests have stays what it is.
    """
    found = np.sort(np.asarray(values, np.float64))
    edges = _edges(found)
    means = [float(f"{mean:.6g}") for mean in np.add.reduceat(found, edges[:-1]) / np.diff(edges)]
    distinct, place = np.unique(means, return_inverse=True)
    shares = np.bincount(place, np.diff(edges)) / len(found)
    return Empirical(values=tuple(distinct.tolist()), probabilities=tuple(np.round(shares, 9).tolist()))


def _edges(found: FloatArray) -> IntArray:
    """Where bins begin and end among sorted values."""
    count = len(found)
    tail = np.geomspace(min(FEWEST / count, _TAIL_SHARE), _TAIL_SHARE, _TAIL)
    body = np.linspace(_TAIL_SHARE, 1 - _TAIL_SHARE, _BODY + 1)
    places = np.unique(np.rint(np.concatenate([tail, body, 1 - tail]) * count).astype(np.int64))
    places = _between_values(found, places[(places > 0) & (places < count)])
    kept = [0]
    for place in places.tolist():
        if place - kept[-1] >= FEWEST and count - place >= FEWEST:
            kept.append(place)
    return np.array([*kept, count])


def _between_values(found: FloatArray, places: IntArray) -> IntArray:
    """The places, each moved to the nearer end of the equal values among which it lies."""
    left, right = (np.searchsorted(found, found[places], side) for side in ("left", "right"))
    return np.where(places - left <= right - places, left, right)
