"""How well several runs tell a p99, and how many would tell it better."""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.queries.report_data.percentiles import GOAL, trust_text
from simulator.study.statistics import t_interval


@given(deviation=st.floats(0.15, 1.0), count=st.integers(3, 20), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_so_many_runs_that_differ_as_much_tell_the_p99_within_the_goal(deviation: float, count: int, seed: int) -> None:
    logs = np.random.default_rng(seed).normal(0, deviation, count)
    told = trust_text("TTFT", np.exp(logs).tolist(), (0.0, 0.0))
    found = re.search(r"--runs ([\d,]+)", told)
    half = t_interval(logs, confidence=0.9)
    if half.high - half.mean <= math.log1p(GOAL):
        assert "more runs are not needed" in told
        return
    assert found is not None
    runs = int(found[1].replace(",", ""))
    assert runs > count
    as_many = np.resize(logs, runs)  # that differ about as much
    then = t_interval((as_many - as_many.mean()) * logs.std(ddof=1) / as_many.std(ddof=1), confidence=0.9)
    assert then.high - then.mean <= math.log1p(GOAL) * 1.0001


def test_the_verdict_names_both_errors_apart() -> None:
    told = trust_text("TTFT", [1.0, 1.5, 2.0, 1.2], (math.log(1.25),) * 2)
    assert told.startswith("noise between 4 runs leaves p99 TTFT −")
    assert "step-time error adds −20 % to +25 %, which only calibration reduces" in told


@pytest.mark.parametrize("p99s", [[], [1.0], [1.0, math.nan], [1.0, 0.0]])
def test_without_several_known_p99s_nothing_is_said(p99s: list[float]) -> None:
    assert not trust_text("TTFT", p99s, (0.1, 0.1))
