"""Loads whose size can be chosen."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.fleet.fleet import Fleet
from simulator.study.loads import WARMUP_SHARE, TraceLoad, UserLoad, replication_seed
from tests.simulator.fleet.test_pools import pool_of
from tests.simulator.study.study_tasks import small_task
from workloads.clients import Clients, Library
from workloads.distributions import Exponential
from workloads.load import load_preset
from workloads.requests import RequestTable, independent_requests
from workloads.synthetic import single_turn_users
from workloads.traces.trace import Trace

COLUMNS = ("arrival_s", "think_s", "prompt_tokens", "output_tokens")


def users(seed: int = 0, preset: str = "chat") -> UserLoad:
    return UserLoad(population=load_preset(preset), max_model_len=8192, seed=seed)


def by_user(table: RequestTable, name: str) -> list[np.ndarray]:
    """Each user's turns."""
    return np.split(getattr(table, name), np.flatnonzero(table.follows < 0)[1:])


def starts_with(long: np.ndarray, short: np.ndarray) -> bool:
    return np.array_equal(long[: len(short)], short, equal_nan=True)


@settings(max_examples=6)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 5), st.integers(0, 99))
def test_a_user_does_the_same_beside_any_number_of_others(fewer: int, more: int, replication: int, seed: int) -> None:
    fewer, more = min(fewer, more), max(fewer, more)
    long, short = (users(seed).draw(count, replication).table for count in (fewer, more))  # more users: a shorter run
    for name in COLUMNS:
        alone, beside = by_user(long, name), by_user(short, name)
        assert (len(alone), len(beside)) == (fewer, more)
        assert all(starts_with(one, other) for one, other in zip(alone, beside, strict=False))


@settings(max_examples=10)
@given(st.integers(1, 300), st.integers(0, 3))
def test_turns_that_cannot_arrive_within_the_run_are_left_out_and_no_others(count: int, replication: int) -> None:
    table, horizon_s = users().draw(count, replication).table, users().horizon_s(count)
    for first, gaps in zip(by_user(table, "arrival_s"), by_user(table, "think_s"), strict=True):
        soonest_s = first[0] + np.cumsum(gaps)
        assert (soonest_s[:-1] <= horizon_s).all()
        assert soonest_s[-1] > horizon_s


def test_more_patience_only_adds_turns() -> None:
    restless = single_turn_users(input_len=20, output_len=5, think_time_s=0.0)
    load = UserLoad(population=restless, max_model_len=8192, seed=0)
    short, long = (load.draw(5, 0, patience=patience).table for patience in (0, 1))
    assert long.num_requests > short.num_requests
    for name in COLUMNS:
        pairs = zip(by_user(long, name), by_user(short, name), strict=True)
        assert all(starts_with(more, fewer) for more, fewer in pairs)


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "size"), [("chat", 30), ("chat", 400), ("rag", 30), ("reasoning", 30)])
def test_the_work_that_chance_drew_is_as_expected_on_average(preset: str, size: int) -> None:
    work = np.array([users(preset=preset).draw(size, number).surplus for number in range(150)])
    error = work.std(ddof=1, axis=0) / np.sqrt(len(work))
    assert (abs(work.mean(axis=0)) < 4 * error).all()
    assert error.max() < 0.05, "too few draws to prove anything"


def test_the_work_of_a_trace_is_as_expected_on_average() -> None:
    work = np.array([trace_load().draw(2.0, number).surplus for number in range(300)])
    assert abs(work.mean()) < 4 * work.std(ddof=1) / np.sqrt(len(work)) + 0.01


def test_replications_are_different_and_each_can_be_had_again() -> None:
    drawn = [users().draw(5, replication, patience=0).table.prompt_tokens for replication in (0, 1, 0)]
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
    first_rows = [int(trace_load().draw(1.0, number, patience=0).table.prompt_tokens[0]) for number in range(20)]
    again = [int(trace_load().draw(1.0, number, patience=0).table.prompt_tokens[0]) for number in range(20)]
    other = [int(trace_load(seed=1).draw(1.0, number, patience=0).table.prompt_tokens[0]) for number in range(20)]
    assert first_rows == again != other
    assert len(set(first_rows)) >= 15


@settings(max_examples=20)
@given(st.floats(0.1, 20.0), st.floats(1.1, 10.0))
def test_a_faster_replay_keeps_order_and_lengths(rate: float, factor: float) -> None:
    slow, fast = (trace_load().draw(size, 3, patience=0).table for size in (rate, rate * factor))
    count = min(slow.num_requests, fast.num_requests)
    for name in ("prompt_tokens", "output_tokens"):
        np.testing.assert_array_equal(getattr(slow, name)[:count], getattr(fast, name)[:count])
    np.testing.assert_allclose(slow.arrival_s[:count], fast.arrival_s[:count] * factor, rtol=1e-9, atol=1e-9)
    assert (np.diff(fast.arrival_s) >= 0).all()


def test_a_replay_brings_the_asked_rate_for_the_whole_horizon() -> None:
    load = trace_load()
    for size in (0.5, 2.0, 30.0):
        table, horizon_s = load.draw(size, 0, patience=0).table, load.horizon_s(size)
        assert table.arrival_s[-1] > horizon_s
        assert (table.arrival_s < horizon_s).sum() == pytest.approx(size * horizon_s, rel=0.1)


def test_users_of_a_trace_are_rate_times_think_time_and_latency() -> None:
    assert trace_load().users(2.0, requests_per_s=2.0, e2e_mean_s=5.0) == 70.0


def test_a_trace_without_a_rate_is_refused() -> None:
    table = independent_requests(arrival_s=[0.0, 0.0], prompt_tokens=[5, 5], output_tokens=[1, 1])
    with pytest.raises(ValueError, match="has no rate that could be scaled"):
        TraceLoad(trace=Trace(name="t", format="test", table=table, source="s"), think_time_s=1.0, seed=0)


def test_what_is_left_out_as_warm_up_does_not_depend_on_what_happens_in_it() -> None:
    """Else a run's worst time is cut away where it comes early, and kept where it comes late."""
    shown = [small_task(fleet=Fleet(pools=(pool_of(step_s, 100),))).run().replication for step_s in (0.001, 0.5)]
    calm, crowded = shown
    assert crowded.in_flight > calm.in_flight
    assert calm.warmup_s == crowded.warmup_s == calm.horizon_s * WARMUP_SHARE
    assert calm.num_requests == pytest.approx(2.0 * (calm.horizon_s - calm.warmup_s), abs=2)


@pytest.mark.parametrize("abandons_session", [False, True])
def test_the_same_user_waits_as_long_whoever_else_is_there(abandons_session: bool) -> None:
    """And who abandons a session goes on with the next conversation."""
    clients = Clients(patience_s=Exponential(mean_value=5), library=Library(abandons_session=abandons_session))
    load = replace(users(), population=replace(users().population, clients=clients))
    few, many = load.draw(40, 0).table, load.draw(90, 0).table
    assert few.waits is not None and many.waits is not None
    rows = np.flatnonzero(few.follows < 0)[1]  # of the first user
    more = np.flatnonzero(many.follows < 0)[1]
    shared = min(rows, more)
    np.testing.assert_array_equal(few.waits.patience_s[:shared], many.waits.patience_s[:shared])
    resumes = few.waits.resumes[: rows - 1]
    resumes = resumes[resumes >= 0]
    opens = few.span_start[resumes] != few.span_start[resumes - 1]  # spans are shared by a conversation's turns
    assert opens.all() if abandons_session else not opens.all()
    assert (resumes < rows).all()
