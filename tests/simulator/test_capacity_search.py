"""The search for the largest load, on loads whose capacity is known."""

import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.study.capacity import RESOLUTION, SCREENING_RATIO, Capacity, Point, find_capacity, screen_capacity
from simulator.study.slo import SLO
from simulator.study.statistics import t_interval

TARGET = SLO(attainment=0.95)
REPLICATIONS = 10


@dataclass
class KnownLoad:
    """Attainment falls with size, the same random numbers at every size: 1 / (1 + (size / scale)^steepness) + noise."""

    scale: float
    steepness: float = 4.0
    spread: float = 0.0
    whole: bool = True
    seed: int = 0
    simulated: list[tuple[float, int]] = field(default_factory=list)
    slo: SLO = TARGET

    def __post_init__(self) -> None:
        noise = np.random.default_rng(self.seed).normal(0.0, 1.0, REPLICATIONS)
        self.noise = self.spread * (noise - noise.mean())
        self.known: dict[float, int] = {}
        self.load: Any = SimpleNamespace(unit="users", smallest=1.0 if self.whole else 1e-3, round=self._round)

    def _round(self, size: float) -> float:
        return float(max(math.floor(size), 1)) if self.whole else size

    def point(self, size: float, num_replications: int) -> Point:
        have = self.known.get(size, 0)
        if have < num_replications:
            self.simulated.append((size, num_replications - have))
            self.known[size] = num_replications
        return self._point(size)

    def points(self) -> list[Point]:
        return [self._point(size) for size in sorted(self.known)]

    def _point(self, size: float) -> Point:
        mean = 1.0 / (1.0 + (size / self.scale) ** self.steepness)
        replications: Any = tuple(
            SimpleNamespace(attainment=mean + e, queue_slope_per_s=0.0, horizon_s=1.0, warmup_s=0.0, in_flight=1.0)
            for e in self.noise[: self.known[size]]
        )
        return Point(size=size, replications=replications)

    def true(self, bound: str) -> float:
        """The size at which the mean, or an end of its interval, is the target."""
        offset = float(getattr(t_interval(self.noise), bound))
        wanted = TARGET.attainment - offset
        if wanted >= 1.0:
            return 0.0
        return self.scale * (1.0 / wanted - 1.0) ** (1 / self.steepness) if wanted > 0 else math.inf


def find(known: KnownLoad, guess: float) -> Capacity:
    return find_capacity(known, guess, REPLICATIONS)  # type: ignore[arg-type]  # a stand-in for the Evaluator


def assert_found(found: float, true: float, *, whole: bool) -> None:
    """Served, and not far below the true one: within RESOLUTION, or one user."""
    assert found <= true
    if whole:
        assert true < max(found * (1 + RESOLUTION), found + 1) + 1e-9
    else:
        assert true <= found * (1 + RESOLUTION) * (1 + 1e-9)


sizes = st.floats(0.3, 5.0).map(lambda exponent: 10.0**exponent)


@settings(deadline=None)
@given(scale=sizes, guess=sizes, steepness=st.floats(1.0, 40.0), whole=st.booleans())
def test_the_search_finds_the_known_capacity_from_any_guess(
    scale: float, guess: float, steepness: float, whole: bool
) -> None:
    known = KnownLoad(scale=scale, steepness=steepness, whole=whole)
    true = known.true("mean")
    found = find(known, guess).mean
    if whole and true < 1:
        assert found == 0
    elif true >= known.load.smallest:
        assert_found(found, true, whole=whole)


@settings(deadline=None)
@given(scale=sizes, guess=sizes, spread=st.floats(0.0, 0.05), seed=st.integers(0, 999))
def test_both_ends_of_the_interval_are_found_and_lie_around_the_mean(
    scale: float, guess: float, spread: float, seed: int
) -> None:
    known = KnownLoad(scale=scale, spread=spread, seed=seed, whole=False)
    found = find(known, guess)
    assert found.low <= found.mean <= found.high
    for bound in ("low", "mean", "high"):
        true = known.true(bound)
        if known.load.smallest <= true < math.inf:
            assert_found(getattr(found, bound), true, whole=False)


@settings(deadline=None)
@given(scale=sizes, guess=sizes)
def test_screening_is_right_to_its_ratio(scale: float, guess: float) -> None:
    known = KnownLoad(scale=scale, whole=False)
    found = screen_capacity(known, guess)  # type: ignore[arg-type]
    assert found <= known.true("mean") <= found * SCREENING_RATIO * (1 + 1e-9)


@pytest.mark.parametrize("guess", [1.0, 64.0, 1e5])
def test_nothing_is_served_where_even_one_user_misses(guess: float) -> None:
    known = KnownLoad(scale=0.1)
    assert screen_capacity(known, guess) == 0  # type: ignore[arg-type]
    assert find(known, guess) == Capacity(low=0.0, mean=0.0, high=0.0)


def test_a_limit_that_nothing_misses_is_refused() -> None:
    with pytest.raises(ValueError, match="limits nothing here; tighten --ttft or --tpot"):
        find(KnownLoad(scale=1e12), 64.0)


@pytest.mark.parametrize("scale", [30.0, 1000.0, 1e5])
@pytest.mark.parametrize("error", [0.92, 1.0, 1.08])
def test_a_good_guess_costs_few_simulations(scale: float, error: float) -> None:
    known = KnownLoad(scale=scale, spread=0.01)
    find(known, known.true("mean") * error)
    assert len(known.simulated) <= 25


def test_a_bad_guess_costs_little_more() -> None:
    for guess in (1.0, 1e6):
        known = KnownLoad(scale=1000.0, spread=0.01)
        find(known, guess)
        assert len(known.simulated) <= 45


def test_no_replication_is_simulated_twice() -> None:
    known = KnownLoad(scale=500.0, spread=0.01)
    guess = screen_capacity(known, 64.0)  # type: ignore[arg-type]
    find(known, guess)
    for size in known.known:
        assert sum(count for seen, count in known.simulated if seen == size) <= REPLICATIONS


def test_a_growing_queue_is_no_capacity() -> None:
    growing: Any = tuple(
        SimpleNamespace(attainment=1.0, queue_slope_per_s=1.0 + e, horizon_s=100.0, warmup_s=0.0, in_flight=10.0)
        for e in (-0.1, 0.0, 0.1)
    )
    assert not Point(size=1.0, replications=growing).meets(TARGET, "high")
