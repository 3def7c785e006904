"""A figure lies in its own interval, and the interval's ends hardly depend on the seed."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headcount as hc
from simulator.study.points import Point
from simulator.study.served import latency_summary


@given(
    scales=st.lists(st.floats(0.01, 100.0), min_size=2, max_size=6),
    counts=st.lists(st.integers(1, 400), min_size=6, max_size=6),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_percentile_lies_in_its_own_interval(scales: list[float], counts: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = (rng.lognormal(size=count) * scale for scale, count in zip(scales, counts, strict=False))
    replications: list[Any] = [
        SimpleNamespace(number=number, times=SimpleNamespace(ttft_s=each)) for number, each in enumerate(drawn)
    ]
    found = latency_summary(Point(size=1.0, replications=tuple(replications)), "ttft_s")
    low, p95, high = (found[name] for name in ("p95_low", "p95", "p95_high"))
    assert low is not None
    assert p95 is not None
    assert high is not None
    assert low <= p95 <= high


@pytest.mark.slow
def test_users_at_95_percent_confidence_hardly_depend_on_the_seed() -> None:
    """Ten seeds gave 1.8 %. Six whose true value is that stay below 4 % in more than 99.9 % of cases."""
    rows = [hc.capacity("llama-3.1-8b", "h100-sxm", gpus=[1], seed=seed, store=False).best for seed in range(6)]
    low = np.array([row.users_low for row in rows], float)
    assert low.std(ddof=1) / low.mean() < 0.04
    assert all(row.users_low <= row.users_low_sampling <= row.users <= row.users_high_sampling for row in rows)
    assert all(row.users_high_sampling <= row.users_high for row in rows)
