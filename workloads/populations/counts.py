"""Whole numbers of tokens and turns: of many draws, most are looked up."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np

from workloads.distributions import LAST_BELOW_1, Distribution, FloatArray, RoundedUp, size_biased_quantile
from workloads.randomness import keys_of_rows, uniform_rows
from workloads.requests import Int32Array, IntArray

_CELLS, _DOUBTFUL = 2**16, -1
LONGEST_MET: Final = 1 - 1e-6
"""Longer than all but one in a million users are in at the start, no conversation is met: its turns are drawn."""
_TABLE_FROM: Final = 2**10  # numbers; fewer are computed sooner than a table is made


def whole_turns(turns: Distribution, u: FloatArray) -> IntArray:
    """Quantiles rounded up to whole turns."""
    return RoundedUp(inner=turns).quantile(u).astype(np.int64)


def met_turns(turns: Distribution, u: FloatArray) -> IntArray:
    """Whole turns of the conversation that a random moment falls into, but for one in a million, which are shorter."""
    return size_biased_quantile(RoundedUp(inner=turns), np.minimum(u, LONGEST_MET)).astype(np.int64)


Counts = Callable[..., IntArray]
"""Of a distribution and u."""


def counts_by_row(
    counts: Counts, distribution: Distribution, streams: tuple[Any, ...], how_many: Int32Array
) -> Int32Array:
    """[rows, users] `counts` of the numbers of streams (arguments as of `keys_of_rows`), one for each user.

    `counts` must never fall as u rises: of many, most are looked up in a table. Users need those of the first rows
    alone, `how_many` of them; the others are any.
    """
    from workloads.populations.kernels import take_known  # noqa: PLC0415  the compiler, where users are drawn

    users, keys = len(how_many), keys_of_rows(*streams)
    if len(keys) * users < _TABLE_FROM:
        return counts(distribution, uniform_rows(users, *streams)).astype(np.int32)
    found = np.empty((len(keys), users), np.int32)
    doubtful, u = np.empty(found.size, np.int64), np.empty(found.size)
    num_doubtful = take_known(keys, how_many, _table(counts, distribution), found, doubtful, u)
    found.ravel()[doubtful[:num_doubtful]] = counts(distribution, u[:num_doubtful])
    return found


@lru_cache(maxsize=64)  # 16 MiB
def _table(counts: Counts, distribution: Distribution) -> Int32Array:
    """By cells of u of equal width: the count of all u in it, or _DOUBTFUL where they differ."""
    edges = counts(distribution, np.minimum(np.arange(_CELLS + 1) / _CELLS, LAST_BELOW_1))
    return np.where(edges[1:] == edges[:-1], edges[1:], _DOUBTFUL).astype(np.int32)
