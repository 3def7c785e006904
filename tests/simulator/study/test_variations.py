"""Paired ratios keep the laws of ratios, and a brief search finds what a long one does."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache.models.catalog import find_gpu, load_model
from simulator.engines.vllm.arguments import EngineArgs
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_row import CapacityRow
from simulator.study.slo_crossing import SLOCrossing
from simulator.study.variations.ratios import (
    COARSE_ERROR,
    UNSURE_ERROR,
    chain_ratios,
    common_replications,
    inverse,
    users_ratio,
)
from simulator.study.variations.variation import screen, simulated
from workloads.load import load_preset

LOGS = st.lists(st.floats(0.0, 6.0), min_size=3, max_size=8)


def row(log_sizes: list[float], users: int = 100) -> CapacityRow:
    knee = SLOCrossing(log_size=float(np.mean(log_sizes)), log_sizes=np.array(log_sizes))
    return CapacityRow(gpus=1, tp=1, replicas=1, users=users, users_low=0, users_high=users, knee=knee)


@given(LOGS)
def test_a_ratio_of_a_row_with_itself_is_exactly_1(log_sizes: list[float]) -> None:
    found = users_ratio(row(log_sizes), row(log_sizes))
    assert found is not None
    assert (found.mean, found.low, found.high) == (1.0, 1.0, 1.0)


@pytest.mark.slow
@given(st.lists(LOGS, min_size=2, max_size=5))
def test_the_product_of_a_chain_is_the_last_over_the_first(chain: list[list[float]]) -> None:
    rows = [row(log_sizes) for log_sizes in chain]
    product = math.prod(found.mean for found in chain_ratios(rows) if found is not None)
    whole = users_ratio(rows[-1], rows[0], numbers=common_replications(rows))
    assert whole is not None
    assert product == pytest.approx(whole.mean, rel=1e-9)


@given(LOGS, LOGS)
def test_the_other_way_round_a_ratio_is_its_inverse(one: list[float], other: list[float]) -> None:
    there, back = users_ratio(row(one), row(other)), users_ratio(row(other), row(one))
    assert there is not None
    assert back is not None
    assert inverse(there).mean == pytest.approx(back.mean)
    assert there.low <= there.mean <= there.high


def test_random_numbers_that_are_common_cancel() -> None:
    luck = np.array([0.3, -0.2, 0.1, -0.1])
    found = users_ratio(row(list(5.0 + luck)), row(list(4.0 + luck)))
    assert found is not None
    assert found.low == pytest.approx(math.e) == found.high


@given(LOGS, LOGS, st.integers(1, 100), st.integers(1, 100))
def test_a_ratio_is_that_of_the_users_that_are_shown(
    one: list[float], other: list[float], users: int, others: int
) -> None:
    """The expected ones scatter less, so that they say how wide the interval is."""
    expected = users_ratio(row(one), row(other))
    found = users_ratio(replace(row(one), users_low=users), replace(row(other), users_low=others))
    assert expected is not None
    assert found is not None
    assert found.mean == pytest.approx(users / others)
    assert found.high / found.low == pytest.approx(expected.high / expected.low)


@given(LOGS, LOGS, st.integers(1, 100), st.integers(1, 100), st.sampled_from([None, 0.1, 0.41]))
def test_a_coarse_row_beside_a_confirmed_one_is_compared_as_shown_with_its_own_error(
    one: list[float], other: list[float], users: int, others: int, longer: float | None
) -> None:
    few, others_few = (
        replace(row(logs), users_low=low, evidence="coarse", step_time_error=longer)
        for logs, low in ((one, users), (other, others))
    )
    confirmed = replace(row([*one, 5.0]), users_low=77, coarse=few)
    found, alike = users_ratio(others_few, confirmed), users_ratio(others_few, few)
    assert found is not None and alike is not None
    assert found.mean == pytest.approx(others / 77)
    wider = 1 + (UNSURE_ERROR if longer == 0.41 else COARSE_ERROR)
    assert found.low / found.mean == pytest.approx(alike.low / alike.mean / wider)
    assert found.high / found.mean == pytest.approx(alike.high / alike.mean * wider)
    chain = [each.mean for each in chain_ratios([few, confirmed, others_few]) if each]
    assert math.prod(chain) == pytest.approx(others / users)


def test_a_row_that_serves_nobody_has_no_ratio() -> None:
    nobody = CapacityRow(gpus=1, tp=1, replicas=1, users=0, users_low=0, users_high=0)
    assert users_ratio(nobody, row([1.0, 2.0, 3.0])) is users_ratio(row([1.0, 2.0, 3.0]), nobody) is None


def question(**settings: object) -> CapacityQuestion:
    args = EngineArgs(latency_model="constant", step_s=0.02, max_model_len=8192, **settings)  # type: ignore[arg-type]
    return CapacityQuestion(
        architecture=load_model("llama-3.1-8b"), gpu=find_gpu("h100-sxm"), gpus=(1,), workload=load_preset("chat"),
        think_time_s=84.0, args=args, precision=0.1, replications=4,
    )  # fmt: skip


@pytest.mark.slow
def test_what_is_slower_serves_fewer_by_estimate_and_by_simulation() -> None:
    fast, slow = screen(question(max_num_seqs=16)), screen(question(max_num_seqs=8))
    assert fast.users > slow.users > 0
    rows = [simulated(each) for each in (fast, slow)]
    found = users_ratio(*rows)
    assert found is not None
    assert found.low > 1
    assert rows[0].users == pytest.approx(fast.users, rel=0.5)


def test_what_does_not_run_is_a_row_with_its_reason() -> None:
    asked = question(tensor_parallel_size=3)
    found = simulated(screen(asked))
    assert (found.users, found.plan) == (0, None)
    assert "does not divide 1 GPU" in str(found.reason)
