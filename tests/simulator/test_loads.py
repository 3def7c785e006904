"""Loads whose size can be chosen."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.study.loads import TraceLoad, UserLoad, replication_seed
from workloads.load import load_preset
from workloads.requests import RequestTable, independent_requests
from workloads.trace import Trace

COLUMNS = ("arrival_s", "think_s", "prompt_tokens", "output_tokens")


def users(seed: int = 0) -> UserLoad:
    return UserLoad(population=load_preset("chat"), max_model_len=8192, seed=seed)


def by_user(table: RequestTable, num_users: int, name: str) -> np.ndarray:
    return getattr(table, name).reshape(num_users, -1)


@settings(deadline=None, max_examples=6)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 5), st.integers(0, 99))
def test_a_user_does_the_same_beside_any_number_of_others(fewer: int, more: int, replication: int, seed: int) -> None:
    fewer, more = min(fewer, more), max(fewer, more)
    tables = [users(seed).table(count, replication, patience=0) for count in (fewer, more)]
    for name in COLUMNS:
        few, many = (by_user(table, count, name) for table, count in zip(tables, (fewer, more), strict=True))
        turns = min(few.shape[1], many.shape[1])
        np.testing.assert_array_equal(few[:, :turns], many[:fewer, :turns])


def test_more_patience_only_adds_turns() -> None:
    short, long = (users().table(5, 0, patience=patience) for patience in (0, 1))
    assert long.num_requests > short.num_requests
    for name in COLUMNS:
        turns = by_user(short, 5, name).shape[1]
        np.testing.assert_array_equal(by_user(short, 5, name), by_user(long, 5, name)[:, :turns])


def test_replications_are_different_and_each_can_be_had_again() -> None:
    drawn = [users().table(5, replication, patience=0).prompt_tokens for replication in (0, 1, 0)]
    assert not np.array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn[0], drawn[2])
    assert len({replication_seed(seed, number) for seed in range(20) for number in range(20)}) == 400


def trace(count: int = 500, seed: int = 1) -> Trace:
    """Row i has a prompt of i + 1 tokens, so that rows can be told apart."""
    rng = np.random.default_rng(seed)
    table = independent_requests(
        arrival_s=np.cumsum(rng.exponential(0.5, count)),
        prompt_tokens=np.arange(1, count + 1),
        output_tokens=rng.integers(1, 50, count),
    )
    return Trace(name="t", format="test", table=table, source="drawn")


def trace_load(seed: int = 0) -> TraceLoad:
    return TraceLoad(trace=trace(), think_time_s=30.0, seed=seed)


def test_trace_windows_start_at_random_offsets_that_the_seed_decides() -> None:
    first_rows = [int(trace_load().table(1.0, number, patience=0).prompt_tokens[0]) for number in range(20)]
    again = [int(trace_load().table(1.0, number, patience=0).prompt_tokens[0]) for number in range(20)]
    other = [int(trace_load(seed=1).table(1.0, number, patience=0).prompt_tokens[0]) for number in range(20)]
    assert first_rows == again != other
    assert len(set(first_rows)) >= 15


@settings(deadline=None, max_examples=20)
@given(st.floats(0.1, 20.0), st.floats(1.1, 10.0))
def test_a_faster_replay_keeps_order_and_lengths(rate: float, factor: float) -> None:
    slow, fast = (trace_load().table(size, 3, patience=0) for size in (rate, rate * factor))
    count = min(slow.num_requests, fast.num_requests)
    for name in ("prompt_tokens", "output_tokens"):
        np.testing.assert_array_equal(getattr(slow, name)[:count], getattr(fast, name)[:count])
    np.testing.assert_allclose(slow.arrival_s[:count], fast.arrival_s[:count] * factor, rtol=1e-9, atol=1e-9)
    assert (np.diff(fast.arrival_s) >= 0).all()


def test_a_replay_brings_the_asked_rate_for_the_whole_horizon() -> None:
    load = trace_load()
    for size in (0.5, 2.0, 30.0):
        table, horizon_s = load.table(size, 0, patience=0), load.horizon_s(size)
        assert table.arrival_s[-1] > horizon_s
        assert (table.arrival_s < horizon_s).sum() == pytest.approx(size * horizon_s, rel=0.1)


def test_users_of_a_trace_are_rate_times_think_time_and_latency() -> None:
    assert trace_load().users(2.0, requests_per_s=2.0, e2e_mean_s=5.0) == 70.0


def test_a_trace_without_a_rate_is_refused() -> None:
    table = independent_requests(arrival_s=[0.0, 0.0], prompt_tokens=[5, 5], output_tokens=[1, 1])
    with pytest.raises(ValueError, match="has no rate that could be scaled"):
        TraceLoad(trace=Trace(name="t", format="test", table=table, source="s"), think_time_s=1.0, seed=0)
