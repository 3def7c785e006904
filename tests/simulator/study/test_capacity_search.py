"""The estimate of the capacity, on loads whose capacity is known."""

import math
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simulator.study.capacity import (
    FIRST_REQUESTS,
    MAX_REPLICATIONS,
    PRECISION,
    Capacity,
    CapacitySearch,
    Crossing,
    capacity_beside,
    enough,
    find_capacity,
    size_near,
)
from simulator.study.capacity_screening import MAX_SIZE, SCREENED_WITHIN, screen_capacity
from simulator.study.points import Point
from simulator.study.slo import SLO
from simulator.study.slo_crossing import LoadSample, SLOCrossing, find_knee

TARGET = SLO(attainment=0.95)


@dataclass
class KnownLoad:
    """Misses grow as a power of the load, up to all: `replication` by `replication` times what chance drew.

    `spread` is the standard deviation of the drawn work, `noise` what is left of misses when the work is known.
    """

    scale: float  # the load that misses 5 %
    steepness: float = 6.0
    bend: float = 0.0  # how much steeper they grow with each e-fold of the load, halved
    spread: float = 0.0
    noise: float = 0.0
    whole: bool = True
    seed: int = 0
    grows_from: float = math.inf
    simulated: list[tuple[float, int]] = field(default_factory=list)
    slo: SLO = TARGET
    hours_met: float | None = None

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.work = 1 + self.spread * rng.standard_normal(MAX_REPLICATIONS)
        self.luck = np.exp(self.noise * rng.standard_normal(MAX_REPLICATIONS) - self.noise**2 / 2)
        self.known: dict[float, int] = {}
        self.load: Any = SimpleNamespace(unit="users", smallest=1.0 if self.whole else 1e-3, round=self._round)

    def _round(self, size: float) -> float:
        return float(max(math.floor(size), 1)) if self.whole else size

    def under(self, slo: SLO) -> "KnownLoad":
        """The same simulations, judged by a limit on TTFT that lets as many times the load through."""
        assert slo.ttft_s is not None
        judged = replace(self, scale=self.scale * slo.ttft_s)
        judged.known, judged.simulated = self.known, self.simulated
        return judged

    def point(self, size: float, num_replications: int) -> Point:
        have = self.known.get(size, 0)
        if have < num_replications:
            self.simulated.append((size, num_replications - have))
            self.known[size] = num_replications
        return self._point(size)

    def points(self) -> list[Point]:
        return [self._point(size) for size in sorted(self.known)]

    def _point(self, size: float) -> Point:
        away = math.log(size / self.scale)
        mean = 0.05 * math.exp(min((self.steepness + self.bend * max(away, -0.05)) * away, 100.0))
        misses = np.clip(mean * self.luck * (1 + 2 * (self.work - 1)), 0.0, 1.0)
        replications: Any = tuple(
            SimpleNamespace(
                number=n, attainment=1 - misses[n], surplus=(self.work[n] - 1,), horizon_s=100.0, warmup_s=0.0,
                in_flight=10.0, queue_slope_per_s=float(size > self.grows_from) + 0.001 * (n % 2),
                num_requests=FIRST_REQUESTS // 10, is_stuck=False,
            )
            for n in range(self.known[size])
        )  # fmt: skip
        return Point(size=size, replications=replications)


def find(known: KnownLoad, guess: float, **asked: Any) -> Capacity:
    return find_capacity(known, guess, **asked)  # type: ignore[arg-type]  # a stand-in for the Evaluator


sizes = st.floats(0.3, 5.0).map(lambda exponent: 10.0**exponent)


@given(scale=sizes, guess=sizes, steepness=st.floats(1.0, 30.0), whole=st.booleans())
def test_the_search_finds_the_known_capacity_from_any_guess(
    scale: float, guess: float, steepness: float, whole: bool
) -> None:
    found = find(KnownLoad(scale=scale, steepness=steepness, whole=whole), guess).mean
    assert found == pytest.approx(scale, rel=0.015, abs=1.0 if whole else 0.0)


bent = given(scale=st.floats(200.0, 5000.0), luck=st.floats(0.4, 1.0))
lucky = given(steepness=st.floats(4.0, 40.0), luck=st.floats(1e-4, 0.1), guess=st.floats(200.0, 900.0))


def assert_bend_moves_little(scale: float, luck: float) -> None:
    """As chat's on four H100 do: a line through loads on one side of the capacity, where luck put them, bends."""
    known = KnownLoad(scale=scale, steepness=11.0, bend=70.0, whole=False)
    known.luck[:2] = luck
    assert find(known, scale, replications=MAX_REPLICATIONS).mean == pytest.approx(scale, rel=0.006)


@settings(max_examples=8)
@bent
def test_misses_that_grow_ever_faster_move_the_capacity_little(scale: float, luck: float) -> None:
    assert_bend_moves_little(scale, luck)


@pytest.mark.slow
@bent
def test_the_same_of_many_more_scales(scale: float, luck: float) -> None:
    assert_bend_moves_little(scale, luck)


def assert_luck_leads_nowhere(steepness: float, luck: float, guess: float) -> None:
    """They alone screen the loads: quiet hours of a trace place the search far beyond the capacity."""
    known = KnownLoad(scale=500.0, steepness=steepness, noise=0.3)
    known.luck[2:] *= (MAX_REPLICATIONS - 2) / known.luck[2:].sum()
    known.luck[:2] = luck
    assert find(known, guess).mean == pytest.approx(500.0, rel=0.06)


@settings(max_examples=5)
@lucky
def test_two_lucky_replications_lead_nowhere(steepness: float, luck: float, guess: float) -> None:
    assert_luck_leads_nowhere(steepness, luck, guess)


@pytest.mark.slow
@settings(max_examples=30)
@lucky
def test_the_same_of_many_more_loads(steepness: float, luck: float, guess: float) -> None:
    assert_luck_leads_nowhere(steepness, luck, guess)


@pytest.mark.slow
@settings(max_examples=30)
@given(scale=sizes, guess=sizes, seed=st.integers(0, 99))
def test_a_leap_from_no_misses_to_all_is_found_to_a_fiftieth(scale: float, guess: float, seed: int) -> None:
    edge = scale * 1.00371  # no load that is tried lies on it
    found = find(KnownLoad(scale=edge, steepness=1e4, whole=False, noise=0.3, seed=seed), guess)
    assert found.mean == pytest.approx(edge, rel=0.02)


def test_an_interval_of_two_replications_ends_where_searches_end() -> None:
    """With one degree of freedom it may be of any width."""
    found = [find(KnownLoad(scale=500, noise=2.0, steepness=2, seed=seed), 500, replications=2) for seed in range(100)]
    assert all(0 <= each.low <= each.mean <= each.high <= MAX_SIZE for each in found)
    assert max(each.high for each in found) == MAX_SIZE


@settings(max_examples=30)
@given(scale=sizes, spread=st.floats(0.0, 0.1), noise=st.floats(0.0, 0.5), seed=st.integers(0, 999))
@example(scale=10.0**1.375, spread=0.0, noise=0.375, seed=133)  # one user, of the answer, not of the first guess
def test_the_interval_lies_around_the_mean_and_is_as_narrow_as_asked(
    scale: float, spread: float, noise: float, seed: int
) -> None:
    found = find(KnownLoad(scale=scale, spread=spread, noise=noise, seed=seed, whole=False), scale)
    assert found.low <= found.mean <= found.high
    assert (
        found.half_width <= enough(PRECISION, found, are_users=True)
        or len(found.pair[0].replications) == MAX_REPLICATIONS
    )


@pytest.mark.slow
def test_the_interval_holds_the_true_capacity_as_often_as_it_says() -> None:
    runs = [(KnownLoad(scale=500.0, spread=0.15, noise=0.4, seed=seed), 450.0) for seed in range(300)]
    found = [find(*run) for run in runs]
    held = sum(each.low <= 500.0 <= each.high for each in found)
    assert 0.9 * 300 <= held <= 0.99 * 300, held  # stopping when it looks narrow costs one or two of the 95 %
    assert sum(each.mean for each in found) / 300 == pytest.approx(500.0, rel=0.005)


def knee_of(known: KnownLoad, *, correct: bool) -> SLOCrossing:
    points = [known.point(size, 24).shown() for size in (480.0, 520.0)]
    plain = [replace(each, surplus=np.zeros((24, 1))) for each in points]
    return find_knee(points if correct else plain, 0.05)


def test_knowing_what_work_was_drawn_narrows_the_interval() -> None:
    known = KnownLoad(scale=500.0, spread=0.2, noise=0.1)
    assert knee_of(known, correct=True).half_width < 0.5 * knee_of(known, correct=False).half_width


def test_a_request_counts_the_same_in_a_crowded_replication_as_in_an_empty_one() -> None:
    """One of three replications has half of all requests, and all of the misses."""
    crowds, few = np.array([2.0, 1.0, 1.0]), np.array([0.04, 0.0, 0.0])
    points = [
        LoadSample(size=size, misses=size / 100 * few, requests=crowds, surplus=np.zeros((3, 1)))
        for size in (98.0, 102.0)
    ]
    assert points[0].share == pytest.approx(0.98 * 0.02)
    assert math.exp(find_knee(points, 0.02).log_size) == pytest.approx(100.0, rel=1e-3)


def test_the_ratio_of_two_capacities_is_known_better_than_either() -> None:
    one, other = (knee_of(KnownLoad(scale=scale, noise=0.5), correct=False) for scale in (500.0, 530.0))
    ratio = other.over(one)
    assert ratio.mean == pytest.approx(1.06, rel=0.01)
    assert ratio.high / ratio.low < 1 + other.half_width
    itself = one.over(one)
    assert (itself.mean, itself.low, itself.high) == (1.0, 1.0, 1.0)


def crossing(found: Capacity) -> Crossing:
    assert found.knee is not None
    assert found.better_known is not None
    return Crossing(knee=found.knee, point=found.better_known)


def test_the_capacity_of_a_variant_is_paired_with_its_partners() -> None:
    base = find(KnownLoad(scale=500.0, noise=0.5), 450.0)
    slower = KnownLoad(scale=400.0, noise=0.5)
    found = capacity_beside(slower, crossing(base), 0.76).size  # type: ignore[arg-type]
    assert found / base.mean == pytest.approx(0.8, rel=0.03)
    assert sum(count for _, count in slower.simulated) < 30


def test_the_interval_of_a_variant_holds_its_capacity() -> None:
    held, halves, tried = 0, [], 200
    for seed in range(tried):
        base = find(KnownLoad(scale=500.0, noise=0.5, seed=seed, whole=False), 450.0)
        slower = KnownLoad(scale=400.0, noise=0.5, seed=seed, whole=False)
        slower.luck *= KnownLoad(scale=1.0, noise=0.2, seed=seed + tried).luck
        found = capacity_beside(slower, crossing(base), 0.76)  # type: ignore[arg-type]
        assert found.half_width is not None
        halves.append(found.half_width)
        held += abs(math.log(found.size / 400.0)) <= found.half_width
    assert 0.92 <= held / tried <= 0.995, (held / tried, np.mean(halves))


@given(ratio=st.floats(0.75, 1.3), steepness=st.floats(2.5, 20.0), seed=st.integers(0, 20))
def test_users_under_another_limit_are_near_however_far_they_are(ratio: float, steepness: float, seed: int) -> None:
    known = KnownLoad(scale=500.0, steepness=steepness, noise=0.2, seed=seed)
    base = find(known, 450.0, replications=24)
    known.simulated.clear()
    found = size_near(known, SLO(attainment=0.95, ttft_s=ratio)).size  # type: ignore[arg-type]
    assert found / base.mean == pytest.approx(ratio, rel=0.04)
    assert sum(count for _, count in known.simulated) <= 4 * 6 + 2


@given(ratio=st.floats(0.9, 1.15), steepness=st.floats(15.0, 200.0), farthest=st.integers(2, 8))
def test_loads_that_all_miss_do_not_lead_to_others_still_farther(ratio: float, steepness: float, farthest: int) -> None:
    known = KnownLoad(scale=6000.0, steepness=steepness, whole=False)
    find(known, 5800.0, replications=4)
    for number in range(1, farthest):
        known.point(6000.0 * 1.3**number, 1)
        known.point(6000.0 / 1.3**number, 1)
    known.simulated.clear()
    found = size_near(known, SLO(attainment=0.95, ttft_s=ratio)).size  # type: ignore[arg-type]
    assert found / 6000.0 == pytest.approx(ratio, rel=0.06)
    assert all(4500 < size < 8000 for size, _ in known.simulated), known.simulated


@pytest.mark.slow
@settings(max_examples=50)
@given(ratio=st.floats(0.5, 1.0), steepness=st.floats(2.0, 60.0), guess=st.floats(0.5, 2.0))
def test_the_capacity_of_a_variant_is_found_from_a_bad_guess_before_a_leap(
    ratio: float, steepness: float, guess: float
) -> None:
    base = find(KnownLoad(scale=500.0, steepness=steepness, noise=0.2), 450.0)
    slower = KnownLoad(scale=500.0 * ratio, steepness=steepness, noise=0.2, grows_from=600.0 * ratio)
    found = capacity_beside(slower, crossing(base), ratio * guess).size  # type: ignore[arg-type]
    assert found / base.mean == pytest.approx(ratio, rel=0.15)


@given(scale=sizes, guess=sizes)
def test_screening_is_right_to_its_ratio(scale: float, guess: float) -> None:
    found = screen_capacity(KnownLoad(scale=scale, whole=False), guess)  # type: ignore[arg-type]
    assert scale / SCREENED_WITHIN <= found <= scale * SCREENED_WITHIN


def test_a_load_that_most_requests_miss_is_screened_with_one_replication() -> None:
    known = KnownLoad(scale=100.0)
    screen_capacity(known, 180.0)  # type: ignore[arg-type]
    assert known.simulated[0] == (180.0, 1)
    assert (180.0, 2) not in known.simulated


@given(guess=st.floats(60.0, 150.0), precision=st.sampled_from([0.01, 0.03]))
def test_what_is_confirmed_does_not_depend_on_whether_it_was_located_before(guess: float, precision: float) -> None:
    def known() -> Any:
        return KnownLoad(scale=100.0, spread=0.2, noise=0.2)

    alone, before = CapacitySearch(known(), guess), CapacitySearch(known(), guess)
    before.located()
    found, again = alone.confirmed(precision), before.confirmed(precision)
    assert (found.low, found.mean, found.high) == (again.low, again.mean, again.high)
    assert before.confirmed(precision).mean == found.mean


def test_what_is_screened_already_costs_a_search_no_more_screening() -> None:
    known = KnownLoad(scale=100.0)
    screened = screen_capacity(known, 80.0)  # type: ignore[arg-type]
    before = len(known.simulated)
    assert screen_capacity(known, screened) == screened  # type: ignore[arg-type]
    assert len(known.simulated) == before


@pytest.mark.parametrize("guess", [1.0, 64.0, 1e5])
def test_nothing_is_served_where_even_one_user_misses(guess: float) -> None:
    known = KnownLoad(scale=0.1)
    assert screen_capacity(known, guess) == 0  # type: ignore[arg-type]
    found = find(known, guess)
    assert (found.low, found.mean, found.high, found.point) == (0.0, 0.0, 0.0, None)


def test_a_limit_that_nothing_misses_is_refused() -> None:
    with pytest.raises(ValueError, match="limits nothing here; tighten --ttft or --tpot"):
        find(KnownLoad(scale=1e12), 64.0)


@pytest.mark.parametrize("scale", [30.0, 1000.0, 1e5])
@pytest.mark.parametrize("error", [0.8, 1.0, 1.2])
def test_a_good_guess_costs_few_simulations(scale: float, error: float) -> None:
    known = KnownLoad(scale=scale, noise=0.05)
    find(known, scale * error)
    assert sum(count for _, count in known.simulated) <= 60


def test_a_bad_guess_costs_little_more() -> None:
    for guess in (1.0, 1e6):
        known = KnownLoad(scale=1000.0, noise=0.05)
        find(known, guess)
        assert sum(count for _, count in known.simulated) <= 90


def test_no_replication_is_simulated_twice() -> None:
    known = KnownLoad(scale=500.0, noise=0.5)
    find(known, 64.0)
    for size, count in known.known.items():
        assert sum(more for seen, more in known.simulated if seen == size) == count


def test_a_growing_queue_is_no_capacity() -> None:
    known = KnownLoad(scale=500.0, grows_from=300.0, whole=False)
    assert find(known, 450.0).pair[0].size <= 300.0


def test_where_only_the_queue_grows_that_is_the_limit() -> None:
    """With a limit on TPOT alone all that is decided may be in time, however many wait."""
    known = KnownLoad(scale=1e9, grows_from=300.0, whole=False)
    assert find(known, 450.0).mean == pytest.approx(300.0, rel=0.02)
    assert max(size for size, _ in known.simulated) < 1500


@pytest.mark.parametrize("seed", range(8))
def test_a_load_with_few_replications_does_not_decide_the_interval(seed: int) -> None:
    luck = np.exp(1.2 * np.random.default_rng(seed).standard_normal(200) - 1.2**2 / 2)
    known = [
        LoadSample(
            size=size, misses=np.minimum(0.05 * size**8 * luck, 1), requests=np.ones(200), surplus=np.zeros((200, 1))
        )
        for size in (1.0, 1.05)
    ]
    misses = np.array([0, 0, 0, 0, 0, 0.4])  # a rare burst in one of six
    located = LoadSample(size=0.9, misses=misses, requests=np.ones(6), surplus=np.zeros((6, 1)))
    alone, together = find_knee(known, 0.05), find_knee([*known, located], 0.05)
    assert together.half_width <= 2 * alone.half_width
    assert together.interval().mean == pytest.approx(alone.interval().mean, rel=0.02)


def test_one_replication_with_most_misses_leaves_an_interval() -> None:
    """Without it hardly a miss is left that tells a slope; the interval once went from 0 to 10^10."""
    shown = [
        LoadSample(size=size, misses=misses, requests=np.ones(len(misses)), surplus=np.zeros((len(misses), 1)))
        for size, misses in (
            (4585.0, np.array([0.0846, 0.0, 0.0048, 0.0073])),
            (4609.0, np.array([0.1581, 0.0])),
        )
    ]
    found = find_knee(shown, 0.05).interval()
    assert 4585 < found.mean < 4620
    assert 2500 < found.low < found.high < 10_000


def test_a_quantity_that_hardly_varies_does_not_decide_the_interval() -> None:
    """Its coefficient is chance: with one replication left out it is another one."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        work, pairs = 0.02 * rng.standard_normal(8), 3e-4 * rng.standard_normal(8)
        drawn = np.exp(30 * work + 0.4 * rng.standard_normal(8))
        surplus = np.column_stack([work, pairs])
        shown = [
            LoadSample(size=size, misses=0.05 * size**40 * drawn[:n], requests=np.ones(n), surplus=surplus[:n])
            for size, n in ((0.98, 5), (1.0, 8), (1.02, 5))
        ]
        assert find_knee(shown, 0.05).half_width < 0.05
