"""Open arrivals against their rates."""

from __future__ import annotations

import math

import numpy as np
import pytest

from boundary.files import InputError
from workloads.distributions import Distribution, Gamma, Weibull
from workloads.randomness import stream
from workloads.synthetic import arrival_times, gamma_gaps

N = 40_000


@pytest.mark.parametrize(
    ("gaps", "cv"),
    [
        (gamma_gaps(5.0), 1.0),
        (gamma_gaps(5.0, 0.25), 2.0),
        (gamma_gaps(5.0, 4.0), 0.5),
        (Weibull(shape=0.7, mean_value=0.2), math.sqrt(math.gamma(1 + 2 / 0.7) / math.gamma(1 + 1 / 0.7) ** 2 - 1)),
    ],
    ids=["poisson", "bursty", "smooth", "weibull"],
)
def test_gaps_have_the_rate_and_the_burstiness_asked_for(gaps: Distribution, cv: float) -> None:
    times = arrival_times(gaps, stream(3, "arrivals"), N)
    drawn = np.diff(times, prepend=0)
    standard_error = 0.2 * cv / math.sqrt(N)
    assert abs(drawn.mean() - 0.2) < 4 * standard_error
    fourth = float(np.mean((drawn - drawn.mean()) ** 4))
    variance_error = math.sqrt((fourth - drawn.var() ** 2) / N)
    assert abs(drawn.var() - (0.2 * cv) ** 2) < 4 * variance_error


def test_burstiness_one_is_poisson() -> None:
    u = np.linspace(0.001, 0.999, 99)
    np.testing.assert_allclose(gamma_gaps(2.0, 1.0).quantile(u), Gamma(shape=1, mean_value=0.5).quantile(u))


def test_more_requests_leave_the_first_as_they_were() -> None:
    few = arrival_times(gamma_gaps(2.0), stream(1, "arrivals"), 10)
    many = arrival_times(gamma_gaps(2.0), stream(1, "arrivals"), 1000)
    np.testing.assert_array_equal(few, many[:10])


def test_streams_of_two_purposes_are_different() -> None:
    assert stream(1, "arrivals").random() != stream(1, "think_time").random()
    assert stream(1, "arrivals").random() != stream(2, "arrivals").random()
    assert stream(1, "arrivals", 0).random() != stream(1, "arrivals", 1).random()


@pytest.mark.parametrize("rate", [0, -1, math.inf, math.nan])
def test_a_rate_that_is_no_rate_is_refused(rate: float) -> None:
    with pytest.raises(InputError, match="requests/s"):
        gamma_gaps(rate)


def test_a_seed_below_0_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="seed is -1; it must be a whole number, at least 0"):
        stream(-1, "arrivals")
