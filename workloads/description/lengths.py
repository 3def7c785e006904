"""How a quantity is distributed, and how two of them go together."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from workloads.requests import FloatArray

_QUANTILES = (50, 90, 95, 99)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Mean, coefficient of variation and percentiles, in the unit of the values."""

    mean: float
    cv: float
    """Standard deviation over mean; 0 where all values are 0."""
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, kw_only=True)
class Dependence:
    """How prompts and answers go together, from -1 to 1; 0 where one of them never changes."""

    correlation: float
    """Pearson's, of the lengths."""
    rank_correlation: float
    """Spearman's: Pearson's of the ranks, which a few long requests do not decide."""


def spread(values: npt.ArrayLike) -> Spread:
    """Of at least one value."""
    found = np.asarray(values, np.float64)
    mean = float(found.mean())
    p50, p90, p95, p99 = np.percentile(found, _QUANTILES).tolist()
    cv = float(found.std() / mean) if mean else 0.0
    return Spread(mean=mean, cv=cv, p50=p50, p90=p90, p95=p95, p99=p99, max=float(found.max()))


def dependence(one: npt.ArrayLike, other: npt.ArrayLike) -> Dependence:
    """Of at least one pair."""
    first, second = np.asarray(one, np.float64), np.asarray(other, np.float64)
    return Dependence(
        correlation=_correlation(first, second), rank_correlation=_correlation(ranks(first), ranks(second))
    )


def ranks(values: npt.ArrayLike, ties: Literal["average", "first"] = "average") -> FloatArray:
    """From 1 on; equal values have their mean rank, or rise in the order in which they stand."""
    import pandas as pd  # noqa: PLC0415  late; scipy.stats, which ranks too, takes a second to import

    found: FloatArray = np.asarray(pd.Series(np.asarray(values)).rank(method=ties), np.float64)
    return found


def _correlation(one: FloatArray, other: FloatArray) -> float:
    spreads = float(one.std() * other.std())
    return float(((one - one.mean()) * (other - other.mean())).mean()) / spreads if spreads else 0.0
