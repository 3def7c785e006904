"""The largest load within a limit: a continuous figure, from runs at a few loads."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.check.largest_loads import largest_loads, load_at
from calibrate.check.runs import Checked, Row
from simulator.latency.model import LatencyModel, LogError
from simulator.latency.step_time import constant_step_times
from simulator.study.slo import SLO

MODEL = LatencyModel(
    name="made up",
    step_times=constant_step_times(0.01, max_num_batched_tokens=8, max_num_seqs=8),
    assumptions=(),
    is_measured=True,
    tpot_log_error=LogError(deployment=0.1, residual=0.0, half_width_sds=1.0),
    ttft_log_error=LogError(deployment=0.1, residual=0.0, half_width_sds=1.0),
)


def run(concurrency: float, measured_s: float, simulated_s: float, **load: float) -> Checked:
    return Checked(
        name=f"c{concurrency:g}",
        load={"concurrency": concurrency, **load},
        rows=(Row(name="tpot_s.mean", measured=measured_s, simulated=simulated_s),),
        measured_overload=(),
        simulated_overload=(),
    )


@given(st.floats(0.3, 2.0), st.floats(1.2, 60.0))
def test_a_power_law_is_told_exactly_within_its_loads_and_beyond(power: float, at: float) -> None:
    loads = [2.0, 8.0, 32.0]
    assert load_at(loads, np.array(loads) ** power, at**power) == pytest.approx(at)


@given(st.lists(st.floats(0.001, 1.0), min_size=3, max_size=6), st.floats(0.001, 1.0), st.floats(1.0, 2.0))
def test_a_looser_limit_is_never_reached_at_a_smaller_load(times: list[float], limit: float, looser: float) -> None:
    loads = [2.0**place for place in range(len(times))]
    strict, loose = load_at(loads, times, limit), load_at(loads, times, limit * looser)
    assert strict is None or loose is None or loose >= strict * (1 - 1e-9)


def test_a_curve_is_not_followed_far_beyond_its_loads() -> None:
    assert load_at([1, 2], [0.01, 0.011], 0.1) is None
    assert load_at([1, 2], [0.01, 0.02], 0.1) is None
    assert load_at([1, 2], [0.01, 0.02], 0.05) == pytest.approx(5)


def test_the_error_of_a_latency_becomes_one_of_the_load_with_its_interval() -> None:
    runs = [run(load, 0.001 * load, 0.0008 * load, rate=math.inf) for load in (4.0, 16.0, 64.0)]  # as vLLM says it
    (found,) = largest_loads(runs, MODEL, SLO(ttft_s=None, tpot_s=0.02))
    assert (found.unit, found.latency) == ("concurrency", "tpot_s")
    assert found.measured == pytest.approx(20)
    assert found.simulated == pytest.approx(25)
    assert found.error_percent == pytest.approx(25)
    assert (found.low, found.high) == (pytest.approx(25 / math.exp(0.1)), pytest.approx(25 * math.exp(0.1)))


def test_runs_of_other_lengths_are_another_curve_and_one_load_is_none() -> None:
    runs = [
        run(load, 0.001 * load, 0.001 * load, input_len=length) for load in (4.0, 64.0) for length in (128.0, 4096.0)
    ]
    assert [item.of["input_len"] for item in largest_loads(runs, MODEL, SLO(ttft_s=None, tpot_s=0.02))] == [128, 4096]
    assert largest_loads(runs[:1], MODEL, SLO()) == ()
