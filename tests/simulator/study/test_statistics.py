"""How sure a simulated figure is."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter
from scipy.stats import binom

from simulator.core import layout
from simulator.study.statistics import PERCENTILES, histogram_summary, percentile_error, slope, summary, t_interval

SAMPLES = 4000


@pytest.mark.parametrize("size", [2, 5, 10, 20])
def test_the_t_interval_covers_the_true_mean_at_its_nominal_rate(size: int) -> None:
    rng = np.random.default_rng(size)
    intervals = [t_interval(rng.normal(7.0, 3.0, size)) for _ in range(SAMPLES)]
    covered = sum(interval.low <= 7.0 <= interval.high for interval in intervals)
    low, high = binom.interval(0.9999, SAMPLES, 0.95)
    assert low <= covered <= high


def test_one_replication_bounds_nothing() -> None:
    interval = t_interval([0.3])
    assert (interval.low, interval.mean, interval.high) == (-math.inf, 0.3, math.inf)


def test_equal_replications_leave_no_doubt() -> None:
    interval = t_interval([0.25] * 10)
    assert interval.low == interval.mean == interval.high == 0.25


@pytest.mark.slow
@pytest.mark.parametrize("memory", [0.0, 0.9], ids=["independent", "alike in turn"])
def test_the_interval_of_a_percentile_holds_the_truth_nine_times_in_ten(memory: float) -> None:
    """Of exp of a normal AR(1) with unit variance, whose p99 is exp(2.326)."""
    held, runs, size = 0, 400, 6000
    rng = np.random.default_rng(1)
    for _ in range(runs):
        noise = rng.normal(size=size) * math.sqrt(1 - memory**2)
        noise[0] /= math.sqrt(1 - memory**2)
        values = np.exp(lfilter([1.0], [1.0, -memory], noise))
        error = percentile_error(values, 99)
        assert error is not None
        held += abs(np.percentile(values, 99) / math.exp(2.3263) - 1) <= error
    assert 0.84 <= held / runs <= 0.96


def test_few_values_have_no_tail_to_judge() -> None:
    assert percentile_error(np.linspace(1, 2, 1999), 99) is None
    assert percentile_error(np.full(2000, 3.0), 99) == 0


@given(st.floats(-100, 100), st.floats(-100, 100), st.integers(2, 50))
def test_the_slope_of_a_line_is_the_lines(rise: float, start: float, count: int) -> None:
    times_s = np.linspace(5.0, 9.0, count)
    assert slope(times_s, start + rise * times_s) == pytest.approx(rise, abs=1e-9)


@pytest.mark.parametrize("times_s", [[], [1.0], [2.0, 2.0, 2.0]])
def test_where_time_does_not_pass_nothing_grows(times_s: list[float]) -> None:
    assert slope(np.array(times_s), np.arange(len(times_s), dtype=float)) == 0.0


@given(st.integers(0, 2**32 - 1), st.integers(1, 3000))
def test_histogram_quantiles_lie_in_the_bin_of_the_exact_ones(seed: int, count: int) -> None:
    values = np.random.default_rng(seed).lognormal(-4.0, 1.0, count)
    bins = np.floor(np.log(values / layout.ITL_MIN_S) / math.log(layout.ITL_GROWTH)).astype(int)
    counts = np.bincount(np.clip(bins, 0, layout.ITL_BINS - 1), minlength=layout.ITL_BINS).astype(float)
    found = histogram_summary(counts, minimum=layout.ITL_MIN_S, growth=layout.ITL_GROWTH, mean=float(values.mean()))
    for q in PERCENTILES:
        exact = float(np.percentile(values, q, method="inverted_cdf"))
        assert found[f"p{q}"] == pytest.approx(exact, rel=math.sqrt(layout.ITL_GROWTH) - 1 + 1e-9)
    assert found["mean"] == values.mean()


def test_an_empty_histogram_has_no_figures() -> None:
    found = histogram_summary(np.zeros(4), minimum=1.0, growth=2.0, mean=math.nan)
    assert found == dict.fromkeys(("mean", "p50", "p90", "p95", "p99"))


def test_a_summary_leaves_out_what_is_not_known_yet() -> None:
    values = np.array([3.0, math.nan, 1.0, 2.0, math.inf])
    assert summary(values) == {"mean": 2.0, "p50": 2.0, "p90": 2.8, "p95": 2.9, "p99": 2.98}
    assert summary(np.array([math.nan])) == dict.fromkeys(("mean", "p50", "p90", "p95", "p99"))
