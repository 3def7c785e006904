"""Whole numbers of tokens and turns: of many draws, most are looked up."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import numpy as np

from workloads.distributions import LAST_BELOW_1, Distribution, FloatArray, RoundedUp
from workloads.requests import IntArray

_CELLS, _DOUBTFUL = 2**16, -1
_TABLE_FROM: Final = 2**14  # numbers; fewer are computed sooner than a table is made


def whole_turns(turns: Distribution, u: FloatArray) -> IntArray:
    """Quantiles rounded up to whole turns."""
    return RoundedUp(inner=turns).quantile(u).astype(np.int64)


Counts = Callable[[Distribution, FloatArray], IntArray]


def looked_up(counts: Counts, distribution: Distribution, u: FloatArray) -> IntArray:
    """`counts(distribution, u)`, which never falls as u rises: of many, most are looked up in a table."""
    if u.size < _TABLE_FROM:
        return counts(distribution, u)
    found = _table(counts, distribution).take((u * _CELLS).astype(np.int32))
    doubtful = np.flatnonzero(found == _DOUBTFUL)
    found.ravel()[doubtful] = counts(distribution, u.ravel()[doubtful])
    return found


@lru_cache(maxsize=64)  # 32 MiB
def _table(counts: Counts, distribution: Distribution) -> IntArray:
    """By cells of u of equal width: the count of all u in it, or _DOUBTFUL where they differ."""
    edges = counts(distribution, np.minimum(np.arange(_CELLS + 1) / _CELLS, LAST_BELOW_1))
    return np.where(edges[1:] == edges[:-1], edges[1:], _DOUBTFUL)
