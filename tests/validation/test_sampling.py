"""Sampling intervals against queues whose capacity is known exactly."""

import math

import pytest

from simulator.study.statistics import t_interval
from validation.sampling import CASES, answer

SEEDS = range(12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["m-m-8", "m-d-1"])
def test_the_capacity_of_a_queue_is_the_exact_one(name: str) -> None:
    found = [answer(CASES[name](seed)) for seed in SEEDS]
    exact = CASES[name](0).exact
    assert exact is not None
    bias = t_interval([math.log(each["mean"] / exact) for each in found], confidence=0.999)
    assert bias.low <= 0 <= bias.high
    assert abs(bias.mean) < 0.015
    assert sum(each["low"] <= exact <= each["high"] for each in found) >= 8  # of 12: 1 in 5,000 has fewer
