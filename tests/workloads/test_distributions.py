"""The distributions against their definitions."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workloads.distributions import (
    Bounded,
    Distribution,
    Empirical,
    Exponential,
    Fixed,
    Gamma,
    Geometric,
    Lognormal,
    LognormalMixture,
    RoundedUp,
    Uniform,
    Weibull,
    empirical_from_samples,
    lognormal_from_moments,
    parse_distribution,
    size_biased_quantile,
    token_counts,
)
from workloads.errors import WorkloadError

MIXTURE = LognormalMixture(weights=(0.17, 0.74, 0.09), medians=(1160.0, 3290.0, 2880.0), sigmas=(0.15, 0.16, 0.49))
ALL: list[Distribution] = [
    Fixed(value=7),
    Uniform(low=2, high=5),
    Lognormal(median=47.7, sigma=1.145),
    MIXTURE,
    Exponential(mean_value=3),
    Gamma(shape=0.5, mean_value=4),
    Weibull(shape=0.73, mean_value=79),
    Geometric(mean_value=2.54),
    Empirical(values=(1, 2, 10), probabilities=(0.5, 0.3, 0.2)),
    Bounded(inner=Lognormal(median=40, sigma=1.2), minimum=1, maximum=3600),
    RoundedUp(inner=Exponential(mean_value=2)),
]


def ident(distribution: Distribution) -> str:
    return type(distribution).__name__


@pytest.mark.parametrize("distribution", ALL, ids=ident)
def test_the_mean_is_that_of_the_quantiles(distribution: Distribution) -> None:
    # The midpoint rule over a tail-refined grid; 1e-3 is its stated accuracy.
    edges = 1 - np.linspace(1, 0, 20_001) ** 3
    numerical = np.diff(edges) @ distribution.quantile((edges[1:] + edges[:-1]) / 2)
    assert distribution.mean() == pytest.approx(numerical, rel=1e-3)


@pytest.mark.parametrize("distribution", ALL, ids=ident)
def test_quantiles_never_fall(distribution: Distribution) -> None:
    values = distribution.quantile(np.linspace(0, 1 - 1e-12, 10_001))
    assert np.isfinite(values).all()
    assert (values >= 0).all()
    assert (np.diff(values) >= 0).all()


@pytest.mark.parametrize(
    ("distribution", "reference"),
    [
        (Lognormal(median=47.7, sigma=1.145), stats.lognorm(1.145, scale=47.7)),
        (Exponential(mean_value=3), stats.expon(scale=3)),
        (Gamma(shape=0.5, mean_value=4), stats.gamma(0.5, scale=8)),
        (Weibull(shape=0.73, mean_value=79), stats.weibull_min(0.73, scale=79 / math.gamma(1 + 1 / 0.73))),
        (Geometric(mean_value=2.54), stats.geom(1 / 2.54)),
    ],
    ids=["lognormal", "exponential", "gamma", "weibull", "geometric"],
)
def test_quantiles_are_those_of_scipy(distribution: Distribution, reference: stats.rv_continuous) -> None:
    u = np.linspace(0.001, 0.999, 997)
    np.testing.assert_allclose(distribution.quantile(u), reference.ppf(u), rtol=1e-9)


def test_mixture_quantiles_invert_the_cumulative_distribution() -> None:
    u = np.linspace(0.0001, 0.9999, 9_999)
    x = MIXTURE.quantile(u)
    parts = zip(MIXTURE.weights, MIXTURE.medians, MIXTURE.sigmas, strict=True)
    cdf = sum(w * stats.lognorm(sigma, scale=median).cdf(x) for w, median, sigma in parts)
    np.testing.assert_allclose(cdf, u, atol=1e-5)


def test_a_lognormal_fitted_to_moments_has_them() -> None:
    fitted = lognormal_from_moments(441.34, 410.91)
    reference = stats.lognorm(fitted.sigma, scale=fitted.median)
    assert fitted.mean() == pytest.approx(441.34)
    assert reference.std() == pytest.approx(410.91)


def test_empirical_draws_each_sample_equally_often() -> None:
    drawn = empirical_from_samples([3, 1, 1, 8]).quantile((np.arange(8) + 0.5) / 8)
    assert drawn.tolist() == [1, 1, 1, 1, 3, 3, 8, 8]


def test_tokens_are_whole_within_their_bounds() -> None:
    tokens = token_counts(Lognormal(median=50, sigma=2), np.linspace(0, 0.9999, 1000), minimum=4, maximum=1024)
    assert tokens.min() == 4
    assert tokens.max() == 1024
    assert tokens.dtype == np.int64


@pytest.mark.parametrize(
    ("distribution", "mean_square"),
    [
        (Fixed(value=7), 49),
        (Exponential(mean_value=3), 18),
        (Uniform(low=2, high=5), 13),
        (Geometric(mean_value=2.5), 2.5**2 * 2 - 2.5),
        (Lognormal(median=40, sigma=1.0), 1600 * math.exp(2)),
    ],
    ids=["fixed", "exponential", "uniform", "geometric", "lognormal"],
)
def test_a_random_moment_falls_into_gaps_by_their_length(distribution: Distribution, mean_square: float) -> None:
    """The mean of the length-biased distribution is E[X²] / E[X]."""
    edges = 1 - np.linspace(1, 0, 20_001) ** 3
    biased = np.diff(edges) @ size_biased_quantile(distribution, (edges[1:] + edges[:-1]) / 2)
    assert biased == pytest.approx(mean_square / distribution.mean(), rel=5e-3)


def test_specs_give_the_distributions_they_name() -> None:
    assert parse_distribution(3) == Fixed(value=3)
    spec = {"kind": "lognormal", "median": 47.7, "sigma": 1.145, "source": "somewhere"}
    assert parse_distribution(spec) == Lognormal(median=47.7, sigma=1.145)
    assert parse_distribution({"kind": "exponential", "mean": 30}) == Exponential(mean_value=30)
    moments = {"kind": "lognormal", "mean": 10.0, "standard_deviation": 5.0}
    assert parse_distribution(moments) == lognormal_from_moments(10, 5)
    assert parse_distribution({"kind": "empirical", "samples": [1, 2]}) == empirical_from_samples([1, 2])
    bounded = parse_distribution({"kind": "fixed", "value": 9, "maximum": 4})
    assert bounded.quantile(np.array([0.5])) == 4


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"kind": "lognormall", "median": 1}, "no distribution kind 'lognormall'; did you mean 'lognormal'?"),
        ({"median": 1}, "no distribution kind 'None'"),
        ({"kind": "lognormal", "median": 1}, "lognormal was given median; it takes median, sigma"),
        ({"kind": "exponential"}, "exponential was given nothing; it takes mean"),
        ({"kind": "lognormal", "median": -1, "sigma": 1}, "lognormal: median = -1 is out of range"),
        ({"kind": "lognormal", "median": math.nan, "sigma": 1}, "lognormal: median = nan is out of range"),
        ({"kind": "fixed", "value": "9"}, "fixed: every parameter must be a number"),
        ({"kind": "fixed", "value": 9, "minimum": 5, "maximum": 4}, "bounded: minimum = 5 is out of range"),
        ("lognormal", "'lognormal' is not a distribution"),
        ({"kind": "empirical", "values": [2, 1], "probabilities": [0.5, 0.5]}, "empirical: values"),
        ({"kind": "geometric", "mean": 0.5}, "geometric: mean_value = 0.5 is out of range"),
    ],
)
def test_a_wrong_spec_is_told_what_is_allowed(spec: object, message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        parse_distribution(spec)  # type: ignore[arg-type]
    assert message in str(caught.value)


@given(u=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20))
def test_a_quantile_depends_on_its_own_number_alone(u: list[float]) -> None:
    for distribution in ALL:
        together = distribution.quantile(np.array(u))
        alone = [distribution.quantile(np.array([each]))[0] for each in u]
        np.testing.assert_allclose(together, alone, rtol=1e-12)


def test_importing_workloads_loads_no_table_reader_and_no_compiler() -> None:
    program = "import sys, workloads.load, workloads.synthetic; print({'pandas', 'numba'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
