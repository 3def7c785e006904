"""Distributions made of others: every value scaled, one value put in, whole turns stretched."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from files.reading import InputError
from workloads.distributions import (
    LAST_BELOW_1,
    Distribution,
    Empirical,
    FloatArray,
    RoundedUp,
    midpoints,
    tail_refined_edges,
)


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """A distribution whose every value is multiplied by a factor."""

    inner: Distribution
    factor: float

    def quantile(self, u: FloatArray) -> FloatArray:
        return self.factor * self.inner.quantile(u)

    def mean(self) -> float:
        return self.factor * self.inner.mean()


def scaled(distribution: Distribution, factor: float) -> Distribution:
    """Every value times a factor above 0; what was scaled before is scaled once, and by 1 not at all."""
    inner = distribution
    if isinstance(distribution, Scaled):
        inner, factor = distribution.inner, distribution.factor * factor
    return inner if factor == 1 else Scaled(inner=inner, factor=factor)


@dataclass(frozen=True, kw_only=True)
class WithValue:
    """A share of draws, above 0 and below 1, has one value; the others are of a distribution."""

    inner: Distribution
    value: float
    share: float

    @cached_property
    def _ends(self) -> tuple[float, float]:
        """Up to where the other draws are below the value, and from where they are not, by bisection."""
        low, high = 0.0, 1.0
        for _ in range(53):
            middle = (low + high) / 2
            low, high = (middle, high) if self.inner.quantile(np.array([middle]))[0] < self.value else (low, middle)
        return low, high

    def quantile(self, u: FloatArray) -> FloatArray:
        rest, u = 1 - self.share, np.asarray(u)
        last, first = self._ends
        below = last * rest
        of_inner = np.where(u < below, u / rest, np.maximum((u - self.share) / rest, first))
        others = self.inner.quantile(np.minimum(of_inner, LAST_BELOW_1))
        return np.where((u >= below) & (u < below + self.share), float(self.value), others)

    def mean(self) -> float:
        return (1 - self.share) * self.inner.mean() + self.share * self.value


def stretched_turns(turns: Distribution, factor: float) -> Empirical:
    """Whole turns, at least 1, whose mean is exactly `factor` times that of the given turns, rounded up.

    What lies between two whole numbers is either of them, so that the mean holds. Fewer turns are taken off those
    beyond the first. Raises InputError where the mean would fall below 1.
    """
    edges = tail_refined_edges()
    whole, place = np.unique(RoundedUp(inner=turns).quantile(midpoints(edges)), return_inverse=True)
    weight = np.bincount(place, np.diff(edges))
    mean = float(whole @ weight)
    if factor * mean < 1:
        raise InputError(f"turns: a mean of {factor * mean:.3g}; a conversation has at least 1 turn")
    wanted = factor * whole if factor >= 1 else 1 + (whole - 1) * (factor * mean - 1) / max(mean - 1, 1e-300)
    low = np.floor(wanted)
    upper = wanted - low
    values, place = np.unique(np.concatenate([low, low + 1]), return_inverse=True)
    weights = np.bincount(place, np.concatenate([weight * (1 - upper), weight * upper]))
    kept = weights > 0
    return Empirical(values=tuple(values[kept].tolist()), probabilities=tuple(weights[kept].tolist()))
