"""Load over time: how it grows within a span."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.study.over_time import OverTime

LEVELS = st.lists(st.integers(1, 20), min_size=2, max_size=8)


def growth(levels: list[int], *, span_s: float, least: float = 0.0) -> float:
    """Of so many requests in flight during each span."""
    starts = np.repeat(np.arange(len(levels)) * span_s, levels)
    times = SimpleNamespace(arrival_s=starts, e2e_s=np.full(len(starts), span_s))
    shown: Any = object.__new__(OverTime)
    object.__setattr__(shown, "until_s", len(levels) * span_s)
    object.__setattr__(shown, "result", SimpleNamespace(times=times))
    found: float = shown.growth_within(span_s, least)
    return found


@given(levels=LEVELS, span_s=st.sampled_from([10.0, 267.0]))
def test_the_growth_within_a_span_is_the_largest_step_up(levels: list[int], span_s: float) -> None:
    steps = [after / before for before, after in pairwise(levels)]
    assert growth(levels, span_s=span_s) == pytest.approx(max(1.0, *steps))


@given(levels=LEVELS, least=st.integers(1, 30))
def test_what_the_fewest_replicas_carry_is_no_growth(levels: list[int], least: int) -> None:
    found = growth(levels, span_s=60.0, least=least)
    assert 1 <= found <= max(growth(levels, span_s=60.0), max(levels) / least, 1.0) + 1e-9
    assert max(levels) > least or found == 1
