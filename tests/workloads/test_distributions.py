"""The distributions against their definitions."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from files.reading import InputError
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
    parse_distribution,
    size_biased_quantile,
    token_counts,
)
from workloads.populations.counts import counts_by_row, met_turns, whole_turns
from workloads.randomness import uniform_rows

FROM_0 = "a number from 0 to 2,000,000,000"
POSITIVE = "a number from 1e-12 to 2,000,000,000"
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
    fitted = parse_distribution({"kind": "lognormal", "mean": 441.34, "standard_deviation": 410.91})
    assert isinstance(fitted, Lognormal)
    reference = stats.lognorm(fitted.sigma, scale=fitted.median)
    assert fitted.mean() == pytest.approx(441.34)
    assert reference.std() == pytest.approx(410.91)


def test_empirical_draws_each_sample_equally_often() -> None:
    samples = {"kind": "empirical", "samples": [3, 1, 1, 8]}
    drawn = parse_distribution(samples).quantile((np.arange(8) + 0.5) / 8)
    assert drawn.tolist() == [1, 1, 1, 1, 3, 3, 8, 8]


@pytest.mark.slow
@pytest.mark.parametrize("distribution", ALL, ids=str)
def test_what_is_looked_up_is_what_is_computed(distribution: Distribution) -> None:
    streams, users = (1, "turns", range(3, 7)), 100_001
    for counts in (token_counts, whole_turns, met_turns):
        found = counts_by_row(counts, distribution, streams, np.full(users, 4, np.int32))
        np.testing.assert_array_equal(found, counts(distribution, uniform_rows(users, *streams)))


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
    halves = Empirical(values=(1, 2), probabilities=(0.5, 0.5))
    assert parse_distribution({"kind": "empirical", "samples": [1, 2]}) == halves
    bounded = parse_distribution({"kind": "fixed", "value": 9, "maximum": 4})
    assert bounded.quantile(np.array([0.5])) == 4


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"kind": "lognormall", "median": 1}, "turns has no kind 'lognormall'; did you mean 'lognormal'?"),
        ({"kind": ["gamma"], "shape": 1, "mean": 1}, "turns has no kind ['gamma']; did you mean 'gamma'?"),
        ({"median": 1}, "turns lacks its kind; known: empirical"),
        ({"kind": "lognormal", "median": 1}, "turns: 'sigma' is missing; give it"),
        ({"kind": "exponential"}, "turns: 'mean' is missing; give it"),
        ({"kind": "gamma", "shap": 1, "mean": 1}, "no key 'shap' in turns; did you mean 'shape'?"),
        ({"kind": "lognormal", "median": -1, "sigma": 1}, f"turns.median is -1; it must be {POSITIVE}"),
        ({"kind": "lognormal", "median": math.nan, "sigma": 1}, f"turns.median is nan; it must be {POSITIVE}"),
        ({"kind": "lognormal", "median": 1, "sigma": 1e3}, "turns.sigma is 1000.0; it must be a number from 0 to 10"),
        ({"kind": "lognormal", "mean": True, "standard_deviation": 1}, f"turns.mean is true; it must be {POSITIVE}"),
        ({"kind": "lognormal", "mean": 1, "standard_deviation": "x"}, f"_deviation is 'x'; it must be {FROM_0}"),
        ({"kind": "gamma", "shape": 1e-5, "mean": 1}, "turns.shape is 1e-05; it must be a number from 0.01 to 1,000"),
        ({"kind": "fixed", "value": "9"}, f"turns.value is '9'; it must be {FROM_0}"),
        ({"kind": "fixed", "value": 10**400}, "turns.value is 1000000"),
        ({"kind": "fixed", "value": 9, "minimum": 5, "maximum": 4}, "turns: minimum is 5, maximum is 4; the minimum"),
        ({"kind": "fixed", "value": 9, "minimum": -5}, f"turns.minimum is -5; it must be {FROM_0}"),
        ({"kind": "fixed", "value": 9, "maximum": math.nan}, "turns.maximum is nan; it must be a number"),
        ("lognormal", f"turns is 'lognormal'; it must be {FROM_0}, or a table such as"),
        (True, f"turns is true; it must be {FROM_0}"),
        (1e300, f"turns is 1e+300; it must be {FROM_0}"),
        ([1, 2], f"turns is a list of 2; it must be {FROM_0}, or a table"),
        ({"kind": "empirical", "samples": [1, "a"]}, f"turns.samples[2] is 'a'; it must be {FROM_0}"),
        ({"kind": "empirical", "samples": []}, "turns.samples is an empty list; it must be a list of one or more"),
        ({"kind": "empirical", "values": [2, 1], "probabilities": [0.5, 0.5]}, "empirical: the values do not ascend"),
        ({"kind": "empirical", "values": [2], "probabilities": [0.5, 0.5]}, "1 values, 2 probabilities; give one"),
        ({"kind": "empirical", "values": [2], "probabilities": [0.5]}, "the probabilities sum to 0.5; they must"),
        ({"kind": "lognormal_mixture", "weights": [1], "medians": [1, 2], "sigmas": [1]}, "have 1, 2, 1 numbers"),
        ({"kind": "lognormal_mixture", "weights": [1], "medians": [1], "sigmas": [0]}, "turns.sigmas[1] is 0"),
        ({"kind": "geometric", "mean": 0.5}, "turns.mean is 0.5; it must be a number from 1 to"),
    ],
)  # fmt: skip
def test_a_wrong_spec_is_told_its_place_and_what_is_allowed(spec: object, message: str) -> None:
    before = repr(spec)
    with pytest.raises(InputError) as caught:
        parse_distribution(spec, file="mine.toml", name="turns")
    assert str(caught.value).startswith("mine.toml: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert repr(spec) == before


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gamma(shape=-1, mean_value=2), "gamma: shape is -1; it must be a number from 0.01 to 1,000,000"),
        (lambda: Fixed(value=np.float64(-1)), f"fixed: value is -1.0; it must be {FROM_0}"),
        (lambda: Uniform(low=3, high=2), "uniform: low is 3, high is 2; low must not be above high"),
        (lambda: Lognormal(median=1, sigma=math.nan), "lognormal: sigma is nan"),
        (lambda: Weibull(shape=1, mean_value="x"), "weibull: mean is 'x'"),  # type: ignore[arg-type]
        (lambda: Bounded(inner=Fixed(value=1), minimum=-1), "bounds: minimum is -1"),
        (lambda: LognormalMixture(weights=(1,), medians=(math.inf,), sigmas=(1,)), "medians[1] is inf"),
    ],
)
def test_python_is_held_to_the_same_ranges(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert message in str(caught.value)


POSITIVES = st.floats(1e-12, 2e9)
SHAPES = st.floats(0.01, 1e6)
IN_RANGE = st.one_of(
    st.builds(Fixed, value=st.floats(0, 2e9)),
    st.builds(Lognormal, median=POSITIVES, sigma=st.floats(0, 10)),
    st.builds(Exponential, mean_value=POSITIVES),
    st.builds(Gamma, shape=SHAPES, mean_value=POSITIVES),
    st.builds(Weibull, shape=SHAPES, mean_value=POSITIVES),
    st.builds(Geometric, mean_value=st.floats(1, 2e9)),
    st.builds(
        lambda medians, sigmas: LognormalMixture(weights=(0.3, 0.7), medians=medians, sigmas=sigmas),
        st.tuples(POSITIVES, POSITIVES),
        st.tuples(st.floats(1e-3, 10), st.floats(1e-3, 10)),
    ),
    st.builds(
        lambda samples: parse_distribution({"kind": "empirical", "samples": samples}),
        st.lists(st.floats(0, 2e9), min_size=1, max_size=9),
    ),
)


@pytest.mark.slow
@settings(max_examples=200)
@given(distribution=IN_RANGE)
@pytest.mark.filterwarnings("error")
def test_whatever_is_in_range_draws_finite_values(distribution: Distribution) -> None:
    u = np.array([0.0, 1e-300, 1e-9, 0.3, 0.999, 1 - 2**-53])
    for values in (distribution.quantile(u), size_biased_quantile(distribution, u), token_counts(distribution, u)):
        assert np.isfinite(values).all()
        assert (values >= 0).all()
        assert (np.diff(values) >= 0).all()
    assert math.isfinite(distribution.mean())


@given(u=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20))
def test_a_quantile_depends_on_its_own_number_alone(u: list[float]) -> None:
    for distribution in ALL:
        together = distribution.quantile(np.array(u))
        alone = [distribution.quantile(np.array([each]))[0] for each in u]
        np.testing.assert_allclose(together, alone, rtol=1e-12)


@pytest.mark.slow
def test_importing_workloads_loads_no_table_reader_and_no_compiler() -> None:
    program = "import sys, workloads.load, workloads.synthetic; print({'pandas', 'numba'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
