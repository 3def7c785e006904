"""Workloads by name, and what is made of a trace: windows, rates, statistics."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.reading import InputError
from tests.workloads.trace_files import load_trace, mooncake, refusal, shared_tokens, write, write_lines
from workloads.load import load_workload
from workloads.populations.population import Population
from workloads.requests import independent_requests
from workloads.traces.trace import Trace
from workloads.traces.trace_format import trace_formats


def test_names_that_are_nothing_get_the_nearest_preset(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_workload("chatt")
    assert str(caught.value) == "no workload 'chatt': neither a file nor a preset; did you mean 'chat'?"
    assert "neither a file nor a preset" in refusal(tmp_path / ("x" * 5000))
    assert "neither a file nor a preset" in refusal(tmp_path / "absent.csv")


def test_presets_go_by_name_and_populations_by_file(tmp_path: Path) -> None:
    chat = load_workload("Chat")
    assert isinstance(chat, Population)
    assert chat.name == "chat"
    text = "system_prompt = 5\nturns = 2\nuser_tokens = 10\noutput_tokens = 20\nthink_time_s = 3\n"
    mine = load_workload(write(tmp_path, "mine.toml", text))
    assert isinstance(mine, Population)
    assert mine.name == "mine"
    assert "not readable as TOML" in refusal(write(tmp_path, "bad.toml", "turns = "))
    assert "bad.toml: has more than 50 levels" in refusal(write(tmp_path, "bad.toml", f"turns = {'[' * 60}{']' * 60}"))
    assert "bad.toml: " in refusal(write(tmp_path, "bad.toml", f"turns = {'[' * 9000}"))
    assert "bad.toml: turns is 1e+300; it must be" in refusal(
        write(tmp_path, "bad.toml", text.replace("2\n", "1e300\n", 1))
    )
    assert "not a text file" in refusal(write(tmp_path, "bad.toml", text + "\0"))


def test_every_format_tells_who_publishes_it() -> None:
    formats = trace_formats()
    assert {"azure", "mooncake"} < {known.name for known in formats}
    assert all(known.source for known in formats)


def small_trace(tmp_path: Path) -> Trace:
    lines = (
        mooncake(4000, 600, 5, [4, 7]),
        mooncake(1000, 512, 6, [4]),
        mooncake(2000, 10, 7),
        mooncake(2000, 20, 8),
    )
    return load_trace(write_lines(tmp_path, *lines))


def test_a_trace_tells_its_statistics(tmp_path: Path) -> None:
    trace = small_trace(tmp_path)
    assert trace.duration_s == 3
    assert trace.requests_per_s == pytest.approx(1.0)  # three gaps in three seconds
    found = trace.statistics()
    assert found["num_requests"] == 4
    assert found["prompt_tokens_mean"] == 285.5
    assert found["output_tokens_p50"] == 6.5


def test_scaling_a_trace_multiplies_its_rate(tmp_path: Path) -> None:
    trace = small_trace(tmp_path)
    fast = replace(trace, table=trace.table.scaled_arrivals(4))
    assert fast.requests_per_s == pytest.approx(4 * trace.requests_per_s)
    assert fast.table.arrival_s.tolist() == [1, 0.25, 0.5, 0.5]


def test_a_window_starts_at_its_time_in_order_of_arrival(tmp_path: Path) -> None:
    window = small_trace(tmp_path).window(3, 0.75)
    window.validate()
    assert window.prompt_tokens.tolist() == [10, 20, 600]
    assert window.arrival_s.tolist() == [0.25, 0.25, 2.25]


@given(
    st.lists(st.integers(0, 200), min_size=2, max_size=8).filter(lambda each: len(set(each)) > 1), st.integers(1, 40)
)
def test_windows_from_all_times_have_the_rate_of_the_trace(times: list[int], length: int) -> None:
    lengths = np.full(len(times), 5)
    table = independent_requests(arrival_s=np.sort(times).astype(float), prompt_tokens=lengths, output_tokens=lengths)
    trace = Trace(name="bursts", format="drawn", table=table, source="drawn")
    within_s, starts = length / 40 * trace.period_s, (np.arange(100) + 0.5) / 100
    counts = [(trace.window(2 * len(times), at * trace.period_s).arrival_s < within_s).sum() for at in starts]
    assert np.mean(counts) == pytest.approx(trace.requests_per_s * within_s, abs=0.05 * len(times))


def test_a_window_wraps_round_with_fresh_content(tmp_path: Path) -> None:
    trace = small_trace(tmp_path)
    window = trace.window(10, 2.5)
    window.validate()
    assert window.prompt_tokens.tolist() == [600, 512, 10, 20, 600, 512, 10, 20, 600, 512]
    gaps = [1, 1, 0, 2]  # one mean gap between the last arrival and the first of the next lap
    np.testing.assert_allclose(np.diff(window.arrival_s), (gaps * 3)[:9])
    assert shared_tokens(window, 1, 4) == 512, "within a lap content is shared as in the trace"
    assert shared_tokens(window, 4, 5) == 0, "the next lap's is fresh"


def test_a_window_of_the_whole_is_the_trace_in_order(tmp_path: Path) -> None:
    trace = small_trace(tmp_path)
    for laps in (0, 1, 2):
        window = trace.window(4, laps * trace.period_s)
        assert window.prompt_tokens.tolist() == [512, 10, 20, 600]
        assert shared_tokens(window, 0, 3) == 512


def test_a_window_keeps_sessions_whole(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path,
        mooncake(500, 10, 5, session_id="a"),
        mooncake(200, 20, 5, session_id="b"),
        {"session_id": "a", "delay": 100, "input_length": 11, "output_length": 5},
        {"session_id": "b", "delay": 200, "input_length": 21, "output_length": 5},
        mooncake(800, 30, 5),
    )
    trace = load_trace(path)
    window = trace.window(7, 0.1)  # b's second turn comes then: begin with a
    window.validate()
    assert window.prompt_tokens.tolist() == [10, 11, 30, 20, 21, 10, 11]
    assert window.follows.tolist() == [-1, 0, -1, -1, 3, -1, 5]
    assert window.think_s.tolist() == [0, 0.1, 0, 0, 0.2, 0, 0.1]
    np.testing.assert_allclose(window.arrival_s[[0, 2, 3, 5]], [0.2, 0.5, 0.8, 1.1])


def test_an_empty_window_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least 1"):
        small_trace(tmp_path).window(0, 0)
