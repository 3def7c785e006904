"""Traces resampled from a trace: how well it tells its load."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.workloads.trace_files import load_trace, mooncake, shared_tokens, write_lines
from workloads.description.reuse import prefix_reuse
from workloads.requests import IntArray, independent_requests
from workloads.traces.resampled import NUM_PARTS, Resampling, sample_notes
from workloads.traces.trace import Trace


def trace_of(prompts: IntArray, seed: int = 0) -> Trace:
    n = len(prompts)
    times = np.cumsum(np.random.default_rng(seed).exponential(1.0, n))
    table = independent_requests(arrival_s=times, prompt_tokens=prompts, output_tokens=np.full(n, 5))
    return Trace(name="t", format="made up", table=table, source="a test")


def test_a_draw_has_the_sessions_of_the_trace_in_parts() -> None:
    trace = trace_of(np.arange(1, 1001))
    found = Resampling(trace).drawn(3).table
    found.validate()
    steps = np.diff(found.prompt_tokens) % 1000
    assert found.num_requests == 1000
    assert NUM_PARTS - 3 <= 1 + (steps != 1).sum() <= NUM_PARTS
    gaps = np.diff(trace.table.arrival_s)
    assert np.isin(np.diff(found.arrival_s).round(9), np.append(gaps, trace.period_s - gaps.sum()).round(9)).all()


def test_a_draw_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    resampling = Resampling(trace_of(np.arange(1, 101)))
    one, same, other = (resampling.drawn(seed).table.prompt_tokens.tolist() for seed in (0, 0, 1))
    assert one == same != other


def test_turns_stay_in_their_session_and_a_session_that_comes_twice_shares_nothing_with_itself(tmp_path: Path) -> None:
    lines = []
    for session in range(40):
        ids = [1000, 10 * session]
        lines.append(mooncake(1000 * session, 1024, 512, ids, session_id=session))
        lines.append(mooncake(0, 2048, 5, [*ids, 10 * session + 1, 10 * session + 2], session_id=session, delay=7))
    trace = load_trace(write_lines(tmp_path, *lines))
    found = Resampling(trace).drawn(0).table
    found.validate()
    assert found.num_requests == 80
    turns = np.flatnonzero(found.follows >= 0)
    assert (found.follows[turns] == turns - 1).all()
    assert all(shared_tokens(found, row - 1, row) == 1536 for row in turns.tolist())
    firsts = np.flatnonzero(found.follows < 0)
    names = found.span_content[found.span_start[firsts]]
    assert len(set(names.tolist())) > 1, "copies of a session begin with contents of their own"
    own, drawn = (prefix_reuse(table, 512) for table in (trace.table, found))
    assert own is not None
    assert drawn is not None
    assert drawn.ideal_hit_rate == pytest.approx(own.ideal_hit_rate, rel=0.1)


def test_the_error_of_independent_requests_is_that_of_their_mean() -> None:
    errors = []
    for seed in range(12):
        prompts = np.random.default_rng(seed).integers(1, 2000, 4000)
        found = Resampling(trace_of(prompts)).error_of_mean(prompts.astype(float))
        errors.append(found / (prompts.std() / prompts.mean() / np.sqrt(4000)))
    assert np.mean(errors) == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("count", [3, 19, 21, 30, 50])
def test_a_trace_of_few_requests_is_no_surer_than_their_number_allows(count: int) -> None:
    """A draw has as many sessions as the trace, whatever its number of parts: the mean's error is CV / sqrt(n)."""
    errors = []
    for seed in range(30):
        prompts = np.random.default_rng(seed).integers(1, 2000, count)
        found = Resampling(trace_of(prompts)).error_of_mean(prompts.astype(float))
        errors.append(found / (prompts.std() / prompts.mean() / np.sqrt(count)))
    assert np.mean(errors) == pytest.approx(1.0, abs=0.1)


def test_three_requests_tell_their_mean_as_badly_as_three_can() -> None:
    prompts = np.array([374, 396, 879])  # of the three rows of Azure's 2023 trace: mean 550, CV 0.42
    (told,) = sample_notes(trace_of(prompts))
    share = int(re.findall(r"mean prompts differ by ±(\d+)%", told)[0]) / 100
    assert share == pytest.approx(1.645 * prompts.std() / prompts.mean() / np.sqrt(3), abs=0.03)


def test_busy_times_of_long_prompts_count_as_few_requests() -> None:
    """400 requests in runs of 20 that are alike tell as much as 20 would."""
    lengths = np.random.default_rng(1).integers(1, 2000, 200)
    prompts = np.repeat(lengths, 20).astype(float)
    found = Resampling(trace_of(prompts.astype(int))).error_of_mean(prompts)
    assert found == pytest.approx(lengths.std() / lengths.mean() / np.sqrt(200), rel=0.35)


def test_a_short_trace_is_told_and_a_long_one_is_not() -> None:
    drawn = np.random.default_rng(2).pareto(1.5, 300_000) * 500 + 10
    prompts = np.minimum(drawn, 100_000).astype(int)
    (told,) = sample_notes(trace_of(prompts[:1000]))
    assert told.startswith(
        "its 1,000 requests are a sample: between traces resampled from it, mean prompts differ by ±"
    )
    assert sample_notes(trace_of(prompts)) == ()
    assert sample_notes(trace_of(np.full(1000, 7))) == ()
    assert sample_notes(trace_of(np.full(1, 7))) == ()
