"""Quantities of one kind of request: a distribution for each, and how their ranks go together."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from files import special
from workloads.description.lengths import ranks
from workloads.distributions import Empirical
from workloads.fitted.marginals import binned
from workloads.requests import FloatArray


@dataclass(frozen=True, kw_only=True)
class Copula:
    """A normal copula: ranks are those of normal variables with these correlations."""

    marginals: Mapping[str, Empirical]
    correlations: tuple[tuple[float, ...], ...]

    def draw(self, count: int, rng: np.random.Generator) -> dict[str, FloatArray]:
        """So many values by name, each quantity's evenly spread over its quantiles."""
        values, vectors = np.linalg.eigh(np.asarray(self.correlations))
        root = vectors * np.sqrt(np.maximum(values, 0))
        normal = root @ rng.standard_normal((len(values), count))
        return {name: self.evenly(name, row) for name, row in zip(self.marginals, normal, strict=True)}

    def evenly(self, name: str, scores: FloatArray) -> FloatArray:
        """[n] one quantity's values in the order of the scores."""
        return self.marginals[name].quantile((ranks(scores, "first") - 0.5) / len(scores))


def fit_copula(quantities: Mapping[str, npt.ArrayLike]) -> Copula:
    """Of [n] values each."""
    scores = np.stack([normal_scores(values) for values in quantities.values()])
    return Copula(
        marginals={name: binned(values) for name, values in quantities.items()},
        correlations=tuple(map(tuple, np.atleast_2d(np.cov(scores, bias=True)).round(4).tolist())),
    )


def normal_scores(values: npt.ArrayLike) -> FloatArray:
    """[n] standard normal values of the same ranks; equal values have the same."""
    found = ranks(values)
    return np.asarray(special.ndtri((found - 0.5) / len(found)), np.float64)
