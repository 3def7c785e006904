"""A share of clock hours that have to meet the SLO: fewer users than the long run, by a known law."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

import headcount as hc
from simulator.study.slo_crossing import LoadSample, SLOCrossing, find_knee
from tests.headcount.conftest import SHORT_ANSWERS

TARGET, SLOPE, SIGMA = 0.05, 4.0, 0.5  # the long run meets the target at load 100


def knee(hours_met: float | None, *, hours: float = 1.0, sigma: float = SIGMA, count: int = 800) -> SLOCrossing:
    rng = np.random.default_rng(5)
    shown = []
    for size in (80.0, 86.0):
        mean = TARGET * (size / 100) ** SLOPE
        misses = mean * np.exp(sigma * rng.standard_normal(count) - sigma**2 / 2)
        shown.append(
            LoadSample(size=size, misses=misses, requests=np.ones(count), surplus=np.zeros((count, 1)), hours=hours)
        )
    return find_knee(shown, TARGET, hours_met=hours_met)


def known(hours_met: float, sigma: float = SIGMA) -> float:
    """Where that quantile of lognormal hours is the target."""
    return 100 * math.exp(-(ndtri(hours_met) * sigma - sigma**2 / 2) / SLOPE)


@pytest.mark.slow
@pytest.mark.parametrize("hours_met", [0.8, 0.9, 0.95, 0.99])
def test_the_load_is_where_that_share_of_hours_meets_the_target(hours_met: float) -> None:
    assert knee(hours_met).interval().mean == pytest.approx(known(hours_met), rel=0.01)


def test_the_interval_holds_the_known_load() -> None:
    found = knee(0.95, count=60).interval()
    assert found.low < known(0.95) < found.high


def test_runs_of_half_an_hour_are_put_together_to_hours() -> None:
    square = math.log1p(0.5 * math.expm1(SIGMA**2))
    assert knee(0.95, hours=0.5).interval().mean == pytest.approx(known(0.95, math.sqrt(square)), rel=0.01)


@pytest.mark.slow
def test_more_hours_cost_more_users_and_no_hours_none() -> None:
    loads = [knee(share).interval().mean for share in (0.5, 0.8, 0.95, 0.99)]
    assert loads == sorted(loads, reverse=True)
    assert loads[0] <= knee(None).interval().mean


def test_hours_that_are_all_alike_cost_nothing() -> None:
    assert knee(0.95, sigma=0.0).log_size == pytest.approx(knee(None, sigma=0.0).log_size)


ASKED: dict[str, Any] = {
    "gpus": [1], "workload": SHORT_ANSWERS, "latency_model": "constant", "step_s": 0.5, "replications": 4,
    "store": False, "max_model_len": 4096, "max_num_seqs": 2, "ttft_s": 5.0, "tpot_s": 1.0, "hours_met": 0.95,
}  # fmt: skip


@pytest.mark.slow
def test_an_answer_for_hours_is_at_most_that_for_the_long_run_and_says_what_it_costs() -> None:
    answer = hc.capacity("qwen3-0.6b", "h100-sxm", **ASKED)
    row = answer.best
    assert row.users_long_run is not None
    assert row.hours_over_long_run is not None
    assert 0 < row.users <= row.users_long_run
    assert row.hours_over_long_run.mean == pytest.approx(row.users / row.users_long_run, abs=1 / row.users)
    assert "hourly SLO compliance 95 %" in str(answer)
    again = hc.capacity("qwen3-0.6b", "h100-sxm", **ASKED)
    assert again.to_json() == answer.to_json()


@pytest.mark.parametrize("share", [0.0, 0.49, 1.0, 95.0])
def test_a_share_of_hours_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="share of hours that meet the SLO"):
        hc.capacity("qwen3-0.6b", "h100-sxm", **{**ASKED, "hours_met": share})
