"""Traces at other times: counts, rates, order and sessions stay what they have to be."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.reading import InputError
from workloads.description.arrivals import counts, earliest_arrival_s
from workloads.load import load_preset, load_workload
from workloads.requests import NEXT_FREE, RequestTable, independent_requests
from workloads.traces.times import MOVED_S, rate_scaled, spliced, spread_in_ticks, stretched
from workloads.traces.trace import Trace
from workloads.traces.trace_file import TraceFile

FACTORS = st.sampled_from([0.25, 0.5, 0.75, 1.0, 1.3, 2.0, 2.5, 3.0])


def trace_of(table: RequestTable, name: str = "t") -> Trace:
    table.validate()
    return Trace(name=name, format="azure", table=table, source="s", block_size=16)


def conversations(users: int = 12, turns: int = 6, seed: int = 0) -> Trace:
    return trace_of(load_preset("chat").draw(users, turns, seed, 8192))


def sessions_of(table: RequestTable) -> list[tuple[tuple[float, ...], ...]]:
    """What each session's turns are, and how long its user thinks, whenever it comes."""
    first = table.first_turns()
    found = []
    for row in np.flatnonzero(table.follows < 0).tolist():
        rows = np.flatnonzero(first == row)
        columns = (table.prompt_tokens[rows], table.output_tokens[rows], table.think_s[rows])
        found.append(tuple(tuple(column.tolist()) for column in columns))
    return sorted(found)


def shared_pairs(table: RequestTable) -> int:
    """Contents that several requests use."""
    begin_count = zip(table.span_start.tolist(), table.span_count.tolist(), strict=True)
    used = np.concatenate([table.span_content[begin : begin + count] for begin, count in begin_count])
    return int((np.unique(used, return_counts=True)[1] > 1).sum())


@given(st.integers(2, 12), st.integers(1, 5), st.sampled_from([0.001, 0.5, 3.0, 1000.0]))
def test_stretching_multiplies_every_time_and_changes_nothing_else(users: int, turns: int, factor: float) -> None:
    trace = conversations(users, turns)
    found = stretched(trace, factor).table
    assert np.allclose(earliest_arrival_s(found), factor * earliest_arrival_s(trace.table))
    for name in ("follows", "prompt_tokens", "output_tokens", "span_start", "span_content"):
        assert np.array_equal(getattr(found, name), getattr(trace.table, name))


@given(st.integers(4, 20), st.integers(1, 4), FACTORS)
def test_a_rate_scale_has_so_many_times_the_sessions_all_of_them_whole(users: int, turns: int, factor: float) -> None:
    trace = conversations(users, turns)
    found = rate_scaled(trace, factor).table
    found.validate()
    originals, sessions = sessions_of(trace.table), sessions_of(found)
    whole, rest = int(factor), round((factor - int(factor)) * users)
    assert len(sessions) == whole * users + rest
    for each in set(sessions):
        assert whole * originals.count(each) <= sessions.count(each) <= (whole + 1) * originals.count(each)
    at_s = earliest_arrival_s(found)
    assert (np.diff(at_s) >= 0).all()
    times, before = found.arrival_s[found.follows < 0], trace.table.arrival_s[trace.table.follows < 0]
    assert before.min() <= times.min() and times.max() <= before.max()


def test_a_copy_comes_near_the_original_and_shares_no_content_with_it() -> None:
    trace = conversations(30, 3)
    twice = rate_scaled(trace, 2).table
    assert shared_pairs(twice) == 2 * shared_pairs(trace.table)
    before = np.sort(trace.table.arrival_s[trace.table.follows < 0])
    after = np.sort(twice.arrival_s[twice.follows < 0])
    assert np.abs(np.sort(after) - np.repeat(before, 2)).max() <= MOVED_S


def test_copies_keep_busy_minutes_and_do_not_double_short_bursts() -> None:
    """Ten requests at once each minute, every second hour twice as many: copies come between them."""
    minute = np.arange(0, 14_400, 60.0)
    times = np.repeat(minute, np.where(minute // 3600 % 2, 20, 10))
    lengths = np.full(len(times), 100)
    trace = trace_of(independent_requests(arrival_s=times, prompt_tokens=lengths, output_tokens=lengths))
    found = rate_scaled(trace, 2).table
    hours = counts(np.sort(found.arrival_s), 3600.0)
    assert hours == pytest.approx(2 * counts(times, 3600.0)[: len(hours)], rel=0.03)
    assert counts(np.sort(found.arrival_s), 1.0).max() <= 20 + 5


def test_thinning_leaves_each_request_what_it_was() -> None:
    trace = conversations(40, 3)
    found = rate_scaled(trace, 0.5).table
    assert set(found.arrival_s[found.follows < 0]) <= set(trace.table.arrival_s[trace.table.follows < 0])


@given(st.integers(2, 8), st.integers(2, 8), st.integers(1, 4))
def test_spliced_traces_follow_one_another_whole(one: int, other: int, turns: int) -> None:
    first, second = conversations(one, turns, 1), conversations(other, turns, 2)
    found = spliced(first, [second, first])
    found.table.validate()
    n, m = first.num_requests, second.num_requests
    assert found.num_requests == 2 * n + m
    assert np.array_equal(found.table.prompt_tokens[n : n + m], second.table.prompt_tokens)
    assert sessions_of(found.table) == sorted(2 * sessions_of(first.table) + sessions_of(second.table))
    start = np.nanmin(second.table.arrival_s)
    moved = found.table.arrival_s[n : n + m] - (np.nanmin(first.table.arrival_s) + first.period_s)
    assert np.allclose(moved, second.table.arrival_s - start, equal_nan=True)
    assert shared_pairs(found.table) == 2 * shared_pairs(first.table) + shared_pairs(second.table)


def test_ticks_are_spread_evenly_and_their_order_stays() -> None:
    times = np.repeat(np.arange(0, 3000, 3.0), 10)
    trace = trace_of(
        independent_requests(arrival_s=times, prompt_tokens=np.arange(len(times)) + 1, output_tokens=times + 1)
    )
    found = spread_in_ticks(trace).table
    assert (np.diff(found.arrival_s) >= 0).all()
    assert np.array_equal(found.prompt_tokens, trace.table.prompt_tokens)
    within = found.arrival_s - times
    assert within.min() >= 0 and within.max() < 3
    assert within.mean() == pytest.approx(1.5, abs=5 * 3 / np.sqrt(12 * len(times)))


@pytest.mark.parametrize("change", [lambda t: rate_scaled(t, 2.0), lambda t: stretched(t, 2.0), spread_in_ticks])
def test_a_trace_without_times_has_none_to_change(change: object) -> None:
    table = independent_requests(
        arrival_s=[0, np.nan], prompt_tokens=[1, 1], output_tokens=[1, 1], follows=[-1, NEXT_FREE]
    )
    with pytest.raises(InputError, match="it has no times to change"):
        change(replace(trace_of(table)))  # type: ignore[operator]


def test_a_population_has_no_times_of_its_own() -> None:
    with pytest.raises(InputError, match="'chat' is a population; only a trace takes stretch and a rate scale"):
        load_workload(TraceFile("chat", stretch=2, rate_scale=2))
