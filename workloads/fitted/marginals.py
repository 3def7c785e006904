"""A quantity's distribution in at most 100 numbers, none of them a single request's."""

from typing import Final

import numpy as np
import numpy.typing as npt

from workloads.distributions import Empirical
from workloads.requests import IntArray

FEWEST: Final = 10  # requests behind every number that a fitted model holds
_BODY, _TAIL = 64, 36  # bins of equal share below the 90th percentile; ever smaller ones above it: 99 at most
_TAIL_SHARE: Final = 0.1


def binned(values: npt.ArrayLike) -> Empirical:
    """At most 100 values; each is the mean of at least FEWEST of those given, of all if there are fewer.

    The mean of all stays. Bins become finer in the tail, as far as FEWEST allows.
    """
    found = np.sort(np.asarray(values, np.float64))
    edges = _edges(len(found))
    means = [float(f"{mean:.6g}") for mean in np.add.reduceat(found, edges[:-1]) / np.diff(edges)]
    distinct, place = np.unique(means, return_inverse=True)
    shares = np.bincount(place, np.diff(edges)) / len(found)
    return Empirical(values=tuple(distinct.tolist()), probabilities=tuple(np.round(shares, 9).tolist()))


def _edges(count: int) -> IntArray:
    """Where bins begin and end among so many sorted values."""
    body = np.linspace(0, 1 - _TAIL_SHARE, _BODY + 1)
    tail = 1 - np.geomspace(_TAIL_SHARE, min(FEWEST / count, _TAIL_SHARE), _TAIL)
    places = np.rint(np.concatenate([body, tail]) * count / FEWEST).astype(np.int64) * FEWEST
    inner = np.unique(places[(places > 0) & (places <= count - FEWEST)])
    return np.concatenate([[0], inner, [count]])
