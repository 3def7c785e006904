"""Distributions, given by their quantiles so that what-ifs can share their random numbers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Meta, field, structs

from files import special
from files.names import nearest_hint, shortened
from files.reading import InputError, shown
from files.schema import Share, Strict, typed

FloatArray = npt.NDArray[np.float64]

_MOST: Final = 2e9  # tokens then fit an int32; as seconds it is 63 years
_FROM_0: Final = "a number from 0 to 2,000,000,000"
Amount = Annotated[float, Meta(ge=0, le=_MOST, description=_FROM_0)]
Positive = Annotated[float, Meta(ge=1e-12, le=_MOST, description="a number from 1e-12 to 2,000,000,000")]
Sigma = Annotated[float, Meta(ge=0, le=10, description="a number from 0 to 10")]
"""At 10 nine draws in ten span 14 orders of magnitude; those of measured loads are below 3."""
Width = Annotated[float, Meta(ge=1e-3, le=10, description="a number from 0.001 to 10")]
Shape = Annotated[float, Meta(ge=0.01, le=1e6, description="a number from 0.01 to 1,000,000")]
"""Below, float64 cannot hold the Weibull's scale; above, all draws are equal to three digits."""
_FIRST_ABOVE_0, LAST_BELOW_1 = 1e-300, 1 - 2**-53  # at 0 and 1 the normal and its kin are infinite
_LISTED: Final = Meta(min_length=1, description=f"a list of one or more, each {_FROM_0}")


class Distribution(Protocol):
    """A distribution of a non-negative quantity."""

    def quantile(self, u: FloatArray) -> FloatArray:
        """The values below which a share u in [0, 1) of all draws lies; same shape as u."""

    def mean(self) -> float: ...

    def __hash__(self) -> int: ...


class Kind(Strict, frozen=True, dict=True):
    """Parameters that are in their ranges, whether a file or Python gave them. Raises InputError."""

    def __post_init__(self) -> None:
        for item in structs.fields(self):
            value = getattr(self, item.name)
            plain = value.item() if isinstance(value, np.generic) else value
            typed(plain, item.type, self._named, name=item.encode_name)
        self._check()

    def _check(self) -> None:
        """What the parameters must be beside one another."""

    @property
    def _named(self) -> str:
        return type(self).__name__.strip("_").lower()

    def _refuse(self, found: str, allowed: str) -> InputError:
        return InputError(f"{self._named}: {found}; {allowed}")


class Fixed(Kind, frozen=True, kw_only=True):
    """Always the same value."""

    value: Amount

    def quantile(self, u: FloatArray) -> FloatArray:
        return np.full(np.shape(u), float(self.value))

    def mean(self) -> float:
        return float(self.value)


class Uniform(Kind, frozen=True, kw_only=True):
    """Equally likely anywhere in [low, high)."""

    low: Amount
    high: Amount

    def _check(self) -> None:
        if self.low > self.high:
            raise self._refuse(f"low is {self.low:g}, high is {self.high:g}", "low must not be above high")

    def quantile(self, u: FloatArray) -> FloatArray:
        return self.low + (self.high - self.low) * np.asarray(u)

    def mean(self) -> float:
        return (self.low + self.high) / 2


class Lognormal(Kind, frozen=True, kw_only=True):
    """exp of a normal variable with mean ln(median) and standard deviation sigma."""

    median: Positive
    sigma: Sigma

    def quantile(self, u: FloatArray) -> FloatArray:
        return np.asarray(
            self.median * np.exp(self.sigma * special.ndtri(np.maximum(u, _FIRST_ABOVE_0))), dtype=np.float64
        )

    def mean(self) -> float:
        return self.median * math.exp(self.sigma**2 / 2)


class _Lognormal(Kind, frozen=True, kw_only=True):
    mean: Positive
    standard_deviation: Amount

    def distribution(self) -> Lognormal:
        variance_of_log = math.log1p((self.standard_deviation / self.mean) ** 2)
        return Lognormal(median=self.mean * math.exp(-variance_of_log / 2), sigma=math.sqrt(variance_of_log))


class LognormalMixture(Kind, frozen=True, kw_only=True):
    """Lognormals with weights that sum to 1.

    The quantile is interpolated in a table of the cumulative distribution at 16,384 points of ln x, exact to 1e-3 of x.
    """

    weights: Annotated[tuple[Share, ...], Meta(min_length=1, max_length=100, description="a list of 1 to 100 shares")]
    medians: tuple[Positive, ...]
    sigmas: tuple[Width, ...]

    def _check(self) -> None:
        counts = len(self.weights), len(self.medians), len(self.sigmas)
        if len(set(counts)) > 1:
            found = "weights, medians, sigmas have {}, {}, {} numbers".format(*counts)
            raise self._refuse(found, "give one of each per component")
        if not math.isclose(sum(self.weights), 1, abs_tol=1e-3):
            raise self._refuse(f"the weights sum to {sum(self.weights):g}", "they must sum to 1")

    @cached_property
    def _table(self) -> tuple[FloatArray, FloatArray]:
        """Cumulative probability, and ln x at it."""
        mu, sigma = np.log(self.medians), np.asarray(self.sigmas)
        reach = 8.3  # of the normal: 1 - ndtr(8.3) is the last above the resolution of float64
        # Points where each component has its mass, so that a narrow one is resolved beside a wide one.
        per_component = np.linspace(-reach, reach, 16_384 // len(mu))
        log_x = np.unique(mu[:, None] + sigma[:, None] * per_component)
        weights = np.asarray(self.weights) / sum(self.weights)
        cdf = weights @ special.ndtr((log_x - mu[:, None]) / sigma[:, None])
        rising = np.concatenate([[True], np.diff(np.maximum.accumulate(cdf)) > 0])
        return cdf[rising], log_x[rising]

    def quantile(self, u: FloatArray) -> FloatArray:
        cdf, log_x = self._table
        return np.exp(np.interp(u, cdf, log_x))

    def mean(self) -> float:
        parts = zip(self.weights, self.medians, self.sigmas, strict=True)
        return sum(w * median * math.exp(sigma**2 / 2) for w, median, sigma in parts) / sum(self.weights)


class _OfMean(Kind, frozen=True, kw_only=True):
    """A distribution given by its mean."""

    mean_value: Positive = field(name="mean")

    def mean(self) -> float:
        return self.mean_value


class Exponential(_OfMean, frozen=True, kw_only=True):
    """Memoryless."""

    def quantile(self, u: FloatArray) -> FloatArray:
        return -self.mean_value * np.log1p(-np.asarray(u))


class Gamma(_OfMean, frozen=True, kw_only=True):
    """Gamma; its coefficient of variation is 1 / sqrt(shape)."""

    shape: Shape

    def quantile(self, u: FloatArray) -> FloatArray:
        return np.asarray(special.gammaincinv(self.shape, u) * (self.mean_value / self.shape), dtype=np.float64)


class Weibull(_OfMean, frozen=True, kw_only=True):
    """Weibull; shape below 1 has a heavier tail than the exponential."""

    shape: Shape

    def quantile(self, u: FloatArray) -> FloatArray:
        scale = self.mean_value / math.gamma(1 + 1 / self.shape)
        return np.asarray(scale * (-np.log1p(-np.asarray(u))) ** (1 / self.shape), dtype=np.float64)


class Geometric(_OfMean, frozen=True, kw_only=True):
    """The number of trials up to the first success: 1, 2, 3, …"""

    mean_value: Annotated[float, Meta(ge=1, le=_MOST, description="a number from 1 to 2,000,000,000")] = field(
        name="mean"
    )

    def quantile(self, u: FloatArray) -> FloatArray:
        if self.mean_value == 1:
            return np.ones(np.shape(u))
        values = np.ceil(np.log1p(-np.asarray(u)) / math.log1p(-1 / self.mean_value))
        return np.maximum(values, 1.0)


class Empirical(Kind, frozen=True, kw_only=True):
    """Values with probabilities that sum to 1."""

    values: Annotated[tuple[Amount, ...], _LISTED]
    probabilities: tuple[Share, ...]

    def _check(self) -> None:
        if len(self.values) != len(self.probabilities):
            found = f"{len(self.values)} values, {len(self.probabilities)} probabilities"
            raise self._refuse(found, "give one probability per value")
        if not all(a < b for a, b in zip(self.values, self.values[1:], strict=False)):
            raise self._refuse("the values do not ascend", "each must be above the one before")
        if not math.isclose(sum(self.probabilities), 1, abs_tol=1e-6):
            raise self._refuse(f"the probabilities sum to {sum(self.probabilities):g}", "they must sum to 1")

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


class _Empirical(Kind, frozen=True, kw_only=True):
    samples: Annotated[tuple[Amount, ...], _LISTED]

    def distribution(self) -> Empirical:
        values, counts = np.unique(np.asarray(self.samples, dtype=np.float64), return_counts=True)
        return Empirical(values=tuple(values.tolist()), probabilities=tuple((counts / counts.sum()).tolist()))


class _Bounds(Kind, frozen=True, kw_only=True):
    """What any kind may have beside its own parameters."""

    source: str = ""
    minimum: Amount = 0.0
    maximum: Annotated[float, Meta(ge=0, description="a number, at least 0")] = math.inf

    def _check(self) -> None:
        if self.minimum > self.maximum:
            found = f"minimum is {self.minimum:g}, maximum is {self.maximum:g}"
            raise InputError(f"{found}; the minimum must not be above the maximum")


@dataclass(frozen=True, kw_only=True)
class Bounded:
    """A distribution whose values below the minimum or above the maximum are moved to it."""

    inner: Distribution
    minimum: float = 0.0
    maximum: float = math.inf

    def __post_init__(self) -> None:
        _Bounds(minimum=self.minimum, maximum=self.maximum)

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
    lorenz, edges = _lorenz_curve(distribution)
    if not len(lorenz):
        return np.zeros(np.shape(u))
    return distribution.quantile(np.minimum(np.interp(u, lorenz, edges), LAST_BELOW_1))


@lru_cache(maxsize=64)
def _lorenz_curve(distribution: Distribution) -> tuple[FloatArray, FloatArray]:
    """The share of the sum of all draws that those below each quantile have, where it rises; empty if all are 0."""
    edges = tail_refined_edges()
    mass = np.diff(edges) * distribution.quantile(midpoints(edges))
    if not mass.sum() > 0:
        return np.zeros(0), np.zeros(0)
    lorenz = np.concatenate([[0.0], np.cumsum(mass)]) / mass.sum()
    rising = np.concatenate([[True], np.diff(lorenz) > 0])
    return lorenz[rising], edges[rising]


@lru_cache(maxsize=64)
def _mean_of_quantiles(distribution: Distribution) -> float:
    """By the midpoint rule: within 1e-3 of the true mean."""
    edges = tail_refined_edges()
    return float(np.dot(np.diff(edges), distribution.quantile(midpoints(edges))))


def tail_refined_edges(parts: int = 8192) -> FloatArray:
    """Probabilities from 0 to 1, ever closer towards 1, where heavy tails hold their mass: [parts + 1]."""
    return 1 - np.linspace(1, 0, parts + 1) ** 3


def midpoints(edges: FloatArray) -> FloatArray:
    return (edges[1:] + edges[:-1]) / 2


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


_OTHER_PARAMETERS: Final[Mapping[tuple[str, str], Any]] = {
    ("lognormal", "mean"): _Lognormal,
    ("empirical", "samples"): _Empirical,
}
Spec = Annotated[
    Amount | dict[str, Any], Meta(description=f"{_FROM_0}, or a table such as {{ kind = 'exponential', mean = 30 }}")
]

_SPEC: Final[Any] = Spec


def parse_distribution(spec: object, *, file: Path | str = "", name: str = "distribution") -> Distribution:
    """A distribution from a mapping such as {"kind": "lognormal", "median": 47.7, "sigma": 1.145}.

    A bare number is fixed. `minimum` and `maximum` bound any kind. A lognormal may give `mean` and
    `standard_deviation` instead, an empirical one `samples`. `source` is text for the reader. Raises InputError, which
    tells where in the file the distribution stands.
    """
    given = typed(spec, _SPEC, file, name=name)
    if isinstance(given, float):
        return Fixed(value=given)
    of_all = {key: given.pop(key) for key in _Bounds.__struct_fields__ if key in given}
    common = typed(of_all, _Bounds, file, name=name)
    inner = _own_parameters(given.pop("kind", None), given, file, name)
    bounds = {key: getattr(common, key) for key in ("minimum", "maximum") if key in of_all}
    return Bounded(inner=inner, **bounds) if bounds else inner


def _own_parameters(kind: object, given: Mapping[str, object], file: Path | str, name: str) -> Distribution:
    if not isinstance(kind, str) or kind not in KINDS:
        found = "lacks its kind" if kind is None else f"has no kind {shortened(repr(kind))}"
        where = f"{shown(file)}: " * bool(file)
        raise InputError(f"{where}{name} {found}; {nearest_hint(str(kind or ''), KINDS)}")
    for (other, key), form in _OTHER_PARAMETERS.items():
        if kind == other and key in given:
            return typed(given, form, file, name=name).distribution()  # type: ignore[no-any-return]
    return typed(given, KINDS[kind], file, name=name)  # type: ignore[no-any-return]
