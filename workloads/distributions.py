"""Distributions, given by their quantiles so that what-ifs can share their random numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv, ndtr, ndtri

from boundary.names import nearest_hint
from workloads.errors import WorkloadError

FloatArray = npt.NDArray[np.float64]


class Distribution(Protocol):
    """A distribution of a non-negative quantity."""

    def quantile(self, u: FloatArray) -> FloatArray:
        """The values below which a share u in [0, 1) of all draws lies; same shape as u."""

    def mean(self) -> float: ...


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """Always the same value."""

    value: float

    def __post_init__(self) -> None:
        _require(self, "value", self.value >= 0)

    def quantile(self, u: FloatArray) -> FloatArray:
        return np.full(np.shape(u), float(self.value))

    def mean(self) -> float:
        return float(self.value)


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """Equally likely anywhere in [low, high)."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _require(self, "low", 0 <= self.low <= self.high)

    def quantile(self, u: FloatArray) -> FloatArray:
        return self.low + (self.high - self.low) * np.asarray(u)

    def mean(self) -> float:
        return (self.low + self.high) / 2


@dataclass(frozen=True, kw_only=True)
class Lognormal:
    """exp of a normal variable with mean ln(median) and standard deviation sigma."""

    median: float
    sigma: float

    def __post_init__(self) -> None:
        _require(self, "median", self.median > 0)
        _require(self, "sigma", self.sigma >= 0)

    def quantile(self, u: FloatArray) -> FloatArray:
        return np.asarray(self.median * np.exp(self.sigma * ndtri(u)), dtype=np.float64)

    def mean(self) -> float:
        return self.median * math.exp(self.sigma**2 / 2)


def lognormal_from_moments(mean: float, standard_deviation: float) -> Lognormal:
    """The lognormal that has this mean and standard deviation."""
    if not (mean > 0 and standard_deviation >= 0):
        raise WorkloadError(f"lognormal: mean {mean} and standard deviation {standard_deviation} must be positive")
    variance_of_log = math.log1p((standard_deviation / mean) ** 2)
    return Lognormal(median=mean * math.exp(-variance_of_log / 2), sigma=math.sqrt(variance_of_log))


@dataclass(frozen=True, kw_only=True)
class LognormalMixture:
    """Lognormals with weights that sum to 1.

    The quantile is interpolated in a table of the cumulative distribution at 16,384 points of ln x, exact to 1e-3 of x.
    """

    weights: tuple[float, ...]
    medians: tuple[float, ...]
    sigmas: tuple[float, ...]

    def __post_init__(self) -> None:
        _require(self, "weights", len(self.weights) == len(self.medians) == len(self.sigmas) > 0)
        _require(self, "weights", min(self.weights) >= 0 and math.isclose(sum(self.weights), 1, abs_tol=1e-3))
        _require(self, "medians", min(self.medians) > 0)
        _require(self, "sigmas", min(self.sigmas) > 0)

    @cached_property
    def _table(self) -> tuple[FloatArray, FloatArray]:
        """Cumulative probability, and ln x at it."""
        mu, sigma = np.log(self.medians), np.asarray(self.sigmas)
        reach = 8.3  # of the normal: 1 - ndtr(8.3) is the last above the resolution of float64
        # Points where each component has its mass, so that a narrow one is resolved beside a wide one.
        per_component = np.linspace(-reach, reach, 16_384 // len(mu))
        log_x = np.unique(mu[:, None] + sigma[:, None] * per_component)
        weights = np.asarray(self.weights) / sum(self.weights)
        cdf = weights @ ndtr((log_x - mu[:, None]) / sigma[:, None])
        rising = np.concatenate([[True], np.diff(np.maximum.accumulate(cdf)) > 0])
        return cdf[rising], log_x[rising]

    def quantile(self, u: FloatArray) -> FloatArray:
        cdf, log_x = self._table
        return np.exp(np.interp(u, cdf, log_x))

    def mean(self) -> float:
        parts = zip(self.weights, self.medians, self.sigmas, strict=True)
        return sum(w * median * math.exp(sigma**2 / 2) for w, median, sigma in parts) / sum(self.weights)


class _OfMean:
    """A distribution given by its mean."""

    mean_value: float

    def mean(self) -> float:
        return self.mean_value


@dataclass(frozen=True, kw_only=True)
class Exponential(_OfMean):
    """Memoryless."""

    mean_value: float

    def __post_init__(self) -> None:
        _require(self, "mean_value", self.mean_value > 0)

    def quantile(self, u: FloatArray) -> FloatArray:
        return -self.mean_value * np.log1p(-np.asarray(u))


@dataclass(frozen=True, kw_only=True)
class Gamma(_OfMean):
    """Gamma; its coefficient of variation is 1 / sqrt(shape)."""

    shape: float
    mean_value: float

    def __post_init__(self) -> None:
        _require(self, "shape", self.shape > 0)
        _require(self, "mean_value", self.mean_value > 0)

    def quantile(self, u: FloatArray) -> FloatArray:
        return np.asarray(gammaincinv(self.shape, u) * (self.mean_value / self.shape), dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class Weibull(_OfMean):
    """Weibull; shape below 1 has a heavier tail than the exponential."""

    shape: float
    mean_value: float

    def __post_init__(self) -> None:
        _require(self, "shape", self.shape > 0)
        _require(self, "mean_value", self.mean_value > 0)

    def quantile(self, u: FloatArray) -> FloatArray:
        scale = self.mean_value / math.gamma(1 + 1 / self.shape)
        return np.asarray(scale * (-np.log1p(-np.asarray(u))) ** (1 / self.shape), dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class Geometric(_OfMean):
    """The number of trials up to the first success: 1, 2, 3, …"""

    mean_value: float

    def __post_init__(self) -> None:
        _require(self, "mean_value", self.mean_value >= 1)

    def quantile(self, u: FloatArray) -> FloatArray:
        if self.mean_value == 1:
            return np.ones(np.shape(u))
        values = np.ceil(np.log1p(-np.asarray(u)) / math.log1p(-1 / self.mean_value))
        return np.maximum(values, 1.0)


@dataclass(frozen=True, kw_only=True)
class Empirical:
    """Values with probabilities that sum to 1."""

    values: tuple[float, ...]
    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        _require(self, "values", len(self.values) == len(self.probabilities) > 0 and min(self.values) >= 0)
        _require(self, "values", all(a < b for a, b in zip(self.values, self.values[1:], strict=False)))
        total = sum(self.probabilities)
        _require(self, "probabilities", min(self.probabilities) >= 0 and math.isclose(total, 1, abs_tol=1e-6))

    @cached_property
    def _table(self) -> tuple[FloatArray, FloatArray]:
        """Cumulative probability, and the values."""
        cumulative = np.cumsum(self.probabilities)
        return cumulative / cumulative[-1], np.asarray(self.values, dtype=np.float64)

    def quantile(self, u: FloatArray) -> FloatArray:
        cumulative, values = self._table
        return values[np.minimum(np.searchsorted(cumulative, u, side="right"), len(values) - 1)]

    def mean(self) -> float:
        return float(np.dot(self.values, self.probabilities) / sum(self.probabilities))


def empirical_from_samples(samples: npt.ArrayLike) -> Empirical:
    """The distribution that draws one of the samples, each equally likely."""
    values, counts = np.unique(np.asarray(samples, dtype=np.float64), return_counts=True)
    if len(values) == 0 or not np.isfinite(values).all():
        raise WorkloadError("empirical: the samples must be at least one finite number")
    return Empirical(values=tuple(values.tolist()), probabilities=tuple((counts / counts.sum()).tolist()))


@dataclass(frozen=True, kw_only=True)
class Bounded:
    """A distribution whose values below the minimum or above the maximum are moved to it."""

    inner: Distribution
    minimum: float = 0.0
    maximum: float = math.inf

    def __post_init__(self) -> None:
        _require(self, "minimum", 0 <= self.minimum <= self.maximum)

    def quantile(self, u: FloatArray) -> FloatArray:
        return np.clip(self.inner.quantile(u), self.minimum, self.maximum)

    def mean(self) -> float:
        return _mean_of_quantiles(self)


@dataclass(frozen=True, kw_only=True)
class RoundedUp:
    """A distribution rounded up to whole numbers, at least 1."""

    inner: Distribution

    def quantile(self, u: FloatArray) -> FloatArray:
        return np.maximum(np.ceil(self.inner.quantile(u)), 1.0)

    def mean(self) -> float:
        return _mean_of_quantiles(self)


def token_counts(
    distribution: Distribution, u: FloatArray, *, minimum: int = 1, maximum: int = 2**31 - 2
) -> npt.NDArray[np.int64]:
    """Quantiles rounded to whole tokens within [minimum, maximum]."""
    return np.clip(np.rint(distribution.quantile(u)), minimum, maximum).astype(np.int64)


def size_biased_quantile(distribution: Distribution, u: FloatArray) -> FloatArray:
    """Quantiles of the length-biased distribution: of the gap that a random moment falls into, not of a random gap.

    The time left of that gap is a uniform share of it. Numerical: the Lorenz curve, inverted by interpolation.
    """
    edges = _tail_refined_edges()
    mass = np.diff(edges) * distribution.quantile(_midpoints(edges))
    if not mass.sum() > 0:
        return np.zeros(np.shape(u))
    lorenz = np.concatenate([[0.0], np.cumsum(mass)]) / mass.sum()
    rising = np.concatenate([[True], np.diff(lorenz) > 0])
    return distribution.quantile(np.interp(u, lorenz[rising], edges[rising]))


def _mean_of_quantiles(distribution: Distribution) -> float:
    """By the midpoint rule: within 1e-3 of the true mean."""
    edges = _tail_refined_edges()
    return float(np.dot(np.diff(edges), distribution.quantile(_midpoints(edges))))


def _tail_refined_edges() -> FloatArray:
    """8,193 probabilities from 0 to 1, ever closer towards 1, where heavy tails hold their mass."""
    return 1 - np.linspace(1, 0, 8193) ** 3


def _midpoints(edges: FloatArray) -> FloatArray:
    return (edges[1:] + edges[:-1]) / 2


def _require(distribution: object, name: str, condition: bool) -> None:
    if not condition:
        found = getattr(distribution, name)
        raise WorkloadError(f"{type(distribution).__name__.lower()}: {name} = {found} is out of range")


KINDS: Final[Mapping[str, Any]] = {
    "fixed": Fixed,
    "uniform": Uniform,
    "lognormal": Lognormal,
    "lognormal_mixture": LognormalMixture,
    "exponential": Exponential,
    "gamma": Gamma,
    "weibull": Weibull,
    "geometric": Geometric,
    "empirical": Empirical,
}


def parse_distribution(spec: Mapping[str, Any] | float) -> Distribution:
    """A distribution from a mapping such as {"kind": "lognormal", "median": 47.7, "sigma": 1.145}.

    A bare number is fixed. `minimum` and `maximum` bound any kind. A lognormal may give `mean` and
    `standard_deviation` instead, an exponential, gamma, weibull or geometric one its mean as `mean`, an empirical one
    `samples`. `source` is text for the reader.
    """
    if isinstance(spec, int | float):
        return Fixed(value=spec)
    if not isinstance(spec, Mapping):
        raise WorkloadError(f"{spec!r} is not a distribution; give a number or a table such as {{ kind = 'fixed', … }}")
    given = {key: value for key, value in spec.items() if key != "source"}
    kind = given.pop("kind", None)
    bounds = {name: given.pop(name) for name in ("minimum", "maximum") if name in given}
    if kind not in KINDS:
        raise WorkloadError(f"no distribution kind '{kind}'; {nearest_hint(str(kind), KINDS)}")
    try:
        inner = _build(kind, given)
        return Bounded(inner=inner, **bounds) if bounds else inner
    except TypeError:
        raise WorkloadError(f"{kind}: every parameter must be a number, not {spec}") from None


def _build(kind: str, given: Mapping[str, Any]) -> Distribution:
    if kind == "lognormal" and given.keys() == {"mean", "standard_deviation"}:
        return lognormal_from_moments(given["mean"], given["standard_deviation"])
    if kind == "empirical" and given.keys() == {"samples"}:
        return empirical_from_samples(given["samples"])
    names = [field.name for field in fields(KINDS[kind])]
    renamed = {"mean_value" if key == "mean" else key: value for key, value in given.items()}
    if renamed.keys() != set(names):
        shown = ", ".join(name.removesuffix("_value") if name == "mean_value" else name for name in names)
        raise WorkloadError(f"{kind} was given {', '.join(given) or 'nothing'}; it takes {shown}")
    arguments = {key: tuple(value) if isinstance(value, list) else value for key, value in renamed.items()}
    return KINDS[kind](**arguments)  # type: ignore[no-any-return]
