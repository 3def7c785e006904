"""Open arrivals against their rates, and against what theory says of each process."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from files.reading import InputError
from headcount.inputs.reading.traffic import read_arrivals, usage
from workloads.arrivals import (
    POISSON,
    PROCESSES,
    Arrivals,
    Bursty,
    Diurnal,
    FlashCrowd,
    GammaGaps,
    HeavyClients,
    MarkovModulated,
    OnOff,
    WeibullGaps,
    arrival_times,
)
from workloads.distributions import FloatArray
from workloads.randomness import stream

N = 40_000
EACH: dict[str, Arrivals] = {
    "poisson": POISSON,
    "gamma": GammaGaps(cv=2),
    "weibull": WeibullGaps(cv=2),
    "mmpp": MarkovModulated(factor=5, share=0.1, length_s=2.0),
    "on-off": OnOff(on_s=2.0, off_s=4.0),
    "diurnal": Diurnal(peak=1.8, period_s=100.0),
    "flash-crowd": FlashCrowd(at_s=50.0, factor=4, length_s=20.0),
    "clients": HeavyClients(clients=20, zipf=1.0, cv=2.0),
}
processes = st.sampled_from(list(EACH.values()))


def counts(times: FloatArray, window_s: float) -> Any:
    return np.bincount((times / window_s).astype(int))[:-1]  # the last window is not whole


@pytest.mark.parametrize(
    ("arrivals", "cv"),
    [(POISSON, 1.0), (Bursty(burstiness=0.25), 2.0), (Bursty(burstiness=4.0), 0.5), (GammaGaps(cv=2), 2.0),
     (WeibullGaps(cv=1.5), 1.5), (WeibullGaps(cv=0.5), 0.5)],
)  # fmt: skip
def test_gaps_have_the_rate_and_the_variation_asked_for(arrivals: Arrivals, cv: float) -> None:
    drawn = np.diff(arrival_times(arrivals, 5.0, N, 3), prepend=0)
    standard_error = 0.2 * cv / math.sqrt(N)
    assert abs(drawn.mean() - 0.2) < 4 * standard_error
    fourth = float(np.mean((drawn - drawn.mean()) ** 4))
    variance_error = math.sqrt((fourth - drawn.var() ** 2) / N)
    assert abs(drawn.var() - (0.2 * cv) ** 2) < 4 * variance_error


def test_every_process_has_its_case_here() -> None:
    assert EACH.keys() == PROCESSES.keys()
    assert all(isinstance(EACH[name], PROCESSES[name]) for name in PROCESSES)


@settings(max_examples=40)
@example(arrivals=HeavyClients(clients=20, zipf=1.0, cv=2.0), seed=89, few=46, more=1)
@given(arrivals=processes, seed=st.integers(0, 99), few=st.integers(1, 50), more=st.integers(0, 3000))
def test_arrivals_ascend_and_more_requests_leave_the_first_as_they_were(
    arrivals: Arrivals, seed: int, few: int, more: int
) -> None:
    many = arrival_times(arrivals, 2.0, few + more, seed)
    assert len(many) == few + more
    assert many[0] >= 0
    assert (np.diff(many) >= 0).all()
    np.testing.assert_array_equal(arrival_times(arrivals, 2.0, few, seed), many[:few])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EACH if name != "flash-crowd"])
def test_the_mean_rate_is_the_one_asked_for(name: str) -> None:
    rates = [1000 / arrival_times(EACH[name], 5.0, 1000, seed)[-1] for seed in range(200)]
    error = float(np.std(rates)) / math.sqrt(len(rates))
    assert np.mean(rates) == pytest.approx(5.0, abs=4 * error + 0.05)  # a run that ends with an arrival is a bit biased


def test_a_flash_crowd_comes_when_it_is_due() -> None:
    per_second = np.mean(
        [counts(arrival_times(EACH["flash-crowd"], 5.0, 1000, seed), 1.0)[:100] for seed in range(200)], 0
    )
    error = math.sqrt(20 / 200)
    assert per_second[:50] == pytest.approx(np.full(50, 5.0), abs=5 * error)
    assert per_second[50:70] == pytest.approx(np.full(20, 20.0), abs=5 * error)
    assert per_second[70:] == pytest.approx(np.full(30, 5.0), abs=5 * error)


def test_a_day_has_its_peak_a_quarter_in_and_its_trough_three_quarters_in() -> None:
    times = arrival_times(Diurnal(peak=1.8, period_s=100.0), 200.0, 200_000, 0)
    of_day = np.bincount((times[times < 900] % 100.0).astype(int), minlength=100) / 9
    expected = 200 * (1 + 0.8 * np.sin(2 * np.pi * (np.arange(100) + 0.5) / 100))
    assert (np.abs(of_day - expected) < 5 * np.sqrt(expected / 9)).all()


def test_counts_of_a_switched_process_vary_as_theory_says() -> None:
    """Variance over mean of counts in long windows: 1 + 2 λ s (1 - s) τ (r1 - r0)² with τ the time phases forget in."""
    on_s, off_s, rate = 2.0, 4.0, 20.0
    share, forgets_s = on_s / (on_s + off_s), 1 / (1 / on_s + 1 / off_s)
    expected = 1 + 2 * rate * share * (1 - share) * (1 / share) ** 2 * forgets_s
    found = [counts(arrival_times(OnOff(on_s=on_s, off_s=off_s), rate, N, seed), 200.0) for seed in range(40)]
    together = np.concatenate(found)
    assert together.var() / together.mean() == pytest.approx(expected, rel=0.25)


def test_one_client_of_many_may_send_half_of_all() -> None:
    alone = HeavyClients(clients=1, cv=1.0)
    assert counts(arrival_times(alone, 5.0, N, 1), 10.0).var() == pytest.approx(50, rel=0.1)  # Poisson
    uneven = counts(arrival_times(HeavyClients(clients=50, zipf=2.0, cv=4.0), 5.0, N, 1), 10.0)
    assert uneven.var() / uneven.mean() > 3


@pytest.mark.parametrize("name", PROCESSES)
def test_what_the_help_writes_can_be_read(name: str) -> None:
    assert isinstance(read_arrivals(usage(name)), PROCESSES[name])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("poison", "did you mean"),
        ("gamma", "'cv' is missing; give it"),
        ("gamma:cv=0", "from 0.1 to 10"),
        ("gamma:shape=2", "'shape=2' is no parameter of gamma; it takes cv, such as gamma:cv=2"),
        ("on-off:on=30,off=60s", "is not a time"),
        ("mmpp:factor=5,share=100%,length=1s", "below 1"),
        ("clients:clients=1.5", "a whole number"),
        ("poisson:cv=1", "takes no parameters"),
        ("flash-crowd:at", "is no parameter of flash-crowd"),
    ],
)
def test_a_wrong_process_is_told(given: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_arrivals(given)


def test_streams_of_two_purposes_are_different() -> None:
    assert stream(1, "arrivals").random() != stream(1, "think_time").random()
    assert stream(1, "arrivals").random() != stream(2, "arrivals").random()
    assert stream(1, "arrivals", 0).random() != stream(1, "arrivals", 1).random()


@pytest.mark.parametrize("rate", [0, -1, math.inf, math.nan])
def test_a_rate_that_is_no_rate_is_refused(rate: float) -> None:
    with pytest.raises(InputError, match="requests/s"):
        arrival_times(POISSON, rate, 1, 0)


def test_a_seed_below_0_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="seed is -1; it must be a whole number, at least 0"):
        stream(-1, "arrivals")
