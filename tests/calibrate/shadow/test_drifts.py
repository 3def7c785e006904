"""What drifts is named, with its cause; what chance does is not."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.shadow.drifts import Drift, DriftWatch, Kind
from calibrate.shadow.expected import Expected
from calibrate.shadow.headroom import seconds_until
from calibrate.shadow.windows import Window

BEFORE = 6  # windows of a fleet that is as it was


def window(number: int, *, requests: float = 240.0, engines: int = 2, **figures: float) -> Window:
    return Window(
        start_s=60.0 * number,
        end_s=60.0 * (number + 1),
        engines=engines,
        arrivals=requests,
        first_tokens=requests,
        prompt_tokens=1000.0,
        output_tokens=200.0,
        figures={"ttft_s": 0.2, "itl_s": 0.02, "waiting": 0.0, "prefix_hit_rate": 0.3} | figures,
    )


EXPECTED = {
    "ttft_s": Expected(mean=0.2, deviation=0.01),
    "itl_s": Expected(mean=0.02, deviation=0.0003),
    "waiting": Expected(mean=0.1, deviation=0.1),
}


def found(*windows: Window, expected: Any = EXPECTED) -> list[Drift]:
    watch = DriftWatch()
    return [drift for each in windows for drift in watch.add(each, expected)]


def steady(**figures: float) -> list[Window]:
    return [window(number, **figures) for number in range(BEFORE)]


@given(st.integers(0, 10_000))
def test_what_chance_does_is_no_drift(seed: int) -> None:
    """Noise of the simulation's own size, on both sides: a day of windows."""
    rng = np.random.default_rng(seed)
    watch = DriftWatch()
    for number in range(200):
        noise = {
            name: math.exp(float(rng.normal(0, each.relative)))
            for name, each in EXPECTED.items()
            if name in ("ttft_s", "itl_s")
        }
        seen = window(number, ttft_s=0.25 * noise["ttft_s"], itl_s=0.018 * noise["itl_s"], requests=rng.poisson(240))
        assert list(watch.add(seen, EXPECTED)) == []


@given(st.floats(1.2, 5.0))
def test_steps_that_take_longer_are_named_with_the_second_window(factor: float) -> None:
    slower = {"itl_s": 0.02 * factor, "ttft_s": 0.2 * factor}
    one, two = (window(BEFORE + number, **slower) for number in (0, 1))
    assert found(*steady(), one) == []
    told = found(*steady(), one, two)
    assert told[-1].kind is Kind.STEPS
    (drift,) = (each for each in told if each.figure == "itl_s")
    assert drift.since_s == one.start_s
    assert drift.factor == pytest.approx(factor)
    assert drift.before == pytest.approx(0.02)


def test_a_drift_is_measured_from_what_the_fleet_was_not_from_the_simulation() -> None:
    """A server that always was 15 % slower than simulated has not drifted."""
    assert found(*steady(itl_s=0.023, ttft_s=0.25), window(BEFORE, itl_s=0.023, ttft_s=0.25)) == []


def test_a_drift_ends_once_the_fleet_is_as_it_was() -> None:
    slower = [window(BEFORE + number, itl_s=0.03, ttft_s=0.3) for number in range(3)]
    back = [window(BEFORE + 3 + number) for number in range(3)]
    told = found(*steady(), *slower, *back)
    assert {(each.figure, each.is_over) for each in told} == {
        ("itl_s", False), ("ttft_s", False), ("itl_s", True), ("ttft_s", True),
    }  # fmt: skip


def test_one_window_alone_is_no_drift() -> None:
    assert found(*steady(), window(BEFORE, itl_s=0.04), window(BEFORE + 1), window(BEFORE + 2, itl_s=0.04)) == []


@pytest.mark.parametrize(("waiting", "kind"), [(9.0, Kind.QUEUE), (0.0, Kind.FRONT_END)])
def test_first_tokens_that_come_later_are_told_apart_by_where_requests_wait(waiting: float, kind: Kind) -> None:
    later = [window(BEFORE + number, ttft_s=0.5, waiting=waiting) for number in (0, 1)]
    (drift,) = found(*steady(), *later)
    assert drift.kind is kind


def test_what_more_load_does_is_expected_and_the_load_is_named() -> None:
    """Latencies that grow as simulated are no drift."""
    busier = {"ttft_s": Expected(mean=0.6, deviation=0.05), "itl_s": Expected(mean=0.03, deviation=0.001)}
    watch = DriftWatch()
    for each in steady():
        assert list(watch.add(each, EXPECTED)) == []
    told = [
        drift
        for number in (0, 1)
        for drift in watch.add(window(BEFORE + number, requests=480.0, ttft_s=0.6, itl_s=0.03), busier)
    ]
    assert [(each.kind, each.figure) for each in told] == [(Kind.LOAD, "requests_per_s")]
    assert told[0].factor == pytest.approx(2.0)


def test_an_engine_that_no_longer_answers_is_named_at_once() -> None:
    told = found(*steady(), window(BEFORE, engines=1))
    assert [(each.kind, each.before, each.after) for each in told] == [(Kind.ENGINES, 2, 1)]


def test_few_requests_judge_no_latency() -> None:
    few = [window(number, requests=5.0, itl_s=0.02 * (1 + number % 2)) for number in range(20)]
    assert found(*few) == []


def rising(slope: float, count: int = 20) -> list[Window]:
    rng = np.random.default_rng(3)
    return [window(number, requests=60 * (4 + slope * number + rng.normal(0, 0.1))) for number in range(count)]


def test_a_trend_says_when_the_load_reaches_what_is_served() -> None:
    left_s = seconds_until(rising(0.1), 8.0)  # from 4 on, 0.1 a minute: 20 minutes gone, 20 to come
    assert left_s is not None
    assert left_s == pytest.approx(20 * 60, rel=0.15)


def test_no_trend_says_nothing_and_what_is_reached_is_now() -> None:
    assert seconds_until(rising(0.0), 8.0) is None
    assert seconds_until(rising(-0.1), 8.0) is None
    assert seconds_until(rising(0.1, count=5), 8.0) is None
    assert seconds_until(rising(0.1), 4.5) == 0.0
    assert seconds_until(rising(0.1), math.inf) is None
