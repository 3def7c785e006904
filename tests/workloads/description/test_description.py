"""What a description says is what a count by hand says."""

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.trace_files import load_trace, mooncake, write_lines
from workloads.description.arrivals import arrivals, counts, earliest_arrival_s
from workloads.description.description import describe_population, describe_trace
from workloads.description.lengths import dependence, spread
from workloads.description.reuse import prefix_reuse
from workloads.load import load_preset
from workloads.requests import NEXT_FREE, OPEN_END, RequestTable, independent_requests
from workloads.traces.blocks import shares_content
from workloads.traces.trace import Trace

TRACES = Path(__file__).parents[4] / "shared" / "data" / "traces"
BLOCK = 4
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


# Prefix reuse


def blocks_by_hand(table: RequestTable, row: int, num_tokens: int, block_size: int) -> list[tuple[int, int]]:
    """(content of its last token, number of tokens before its end) of each block of the first tokens."""
    at = slice(table.span_start[row], table.span_start[row] + table.span_count[row])
    spans = list(zip(table.span_content[at].tolist(), table.span_end[at].tolist(), strict=True))
    ends = [min(start + block_size, num_tokens) for start in range(0, num_tokens, block_size)]
    return [(next(content for content, span_end in spans if span_end >= end), end) for end in ends]


def found_by_hand(table: RequestTable, block_size: int, cache_blocks: int) -> tuple[int, int]:
    """Prompt blocks found in an LRU cache, and all: block by block."""
    cache: OrderedDict[tuple[int, int], None] = OrderedDict()
    found = asked = 0
    followed = set(table.follows.tolist())
    for row in np.argsort(earliest_arrival_s(table), kind="stable").tolist():
        prompt = int(table.prompt_tokens[row])
        blocks = blocks_by_hand(table, row, prompt, block_size)
        asked += len(blocks)
        found += sum(block in cache for block in blocks)
        if row in followed:
            answered = blocks_by_hand(table, row, prompt + int(table.output_tokens[row]), block_size)
            blocks += [block for block in answered if block[1] > prompt and block[1] % block_size == 0]
        for block in reversed(blocks):
            cache[block] = None
            cache.move_to_end(block)
        while len(cache) > cache_blocks:
            cache.popitem(last=False)
    return found, asked


@st.composite
def hashed_lines(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Requests that often begin alike, some of them turns of a session."""
    lines = []
    for number in range(draw(st.integers(1, 30))):
        ids = draw(st.lists(st.integers(0, 2), min_size=1, max_size=5))
        tokens = BLOCK * len(ids) - draw(st.integers(0, BLOCK - 1))
        line = mooncake(draw(st.integers(0, 50)) if number else 0, tokens, draw(st.integers(1, 12)), ids)
        if draw(st.booleans()):
            line |= {"session_id": draw(st.sampled_from("ab")), "delay": draw(st.integers(0, 20))}
        lines.append(line)
    return lines


@pytest.mark.slow
@settings(max_examples=60)
@given(lines=hashed_lines(), cache_blocks=st.integers(0, 40))
def test_every_cache_finds_what_one_that_is_kept_block_by_block_finds(
    tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, Any]], cache_blocks: int
) -> None:
    table = load_trace(write_lines(tmp_path_factory.mktemp("t"), *lines), BLOCK).table
    reuse = prefix_reuse(table, BLOCK)
    found, asked = found_by_hand(table, BLOCK, cache_blocks)
    assert reuse.num_blocks == asked
    assert reuse.hit_rate(cache_blocks) * asked == pytest.approx(found)
    assert reuse.hit_rate(reuse.num_distinct_blocks) == reuse.ideal_hit_rate


@pytest.mark.slow
@pytest.mark.parametrize("cache_blocks", [3, 300, 1000, 10_000, 10**9])
def test_conversations_are_found_as_one_by_one_too(cache_blocks: int) -> None:
    table = load_preset("chat").draw(5, 8, 1, 8192)
    reuse = prefix_reuse(table, 16)
    found, asked = found_by_hand(table, 16, cache_blocks)
    assert reuse.num_blocks == asked
    assert reuse.hit_rate(cache_blocks) * asked == pytest.approx(found)


def test_a_larger_cache_never_finds_less() -> None:
    reuse = prefix_reuse(load_preset("chat").draw(20, 10, 1, 8192), 16)
    rates = [reuse.hit_rate(size) for size in range(0, reuse.num_distinct_blocks, 97)]
    assert rates == sorted(rates)
    assert rates[0] == 0


def test_an_unbounded_cache_misses_what_is_said_for_the_first_time() -> None:
    population = load_preset("chat")
    sessions = population.sessions(50, 20, 3, 8192)
    table = sessions.table()
    reuse = prefix_reuse(table, 1, table.follows >= 0)
    goes_on = sessions.conversation[:, 1:] == sessions.conversation[:, :-1]
    said = sessions.prompt_tokens[:, :-1] + sessions.output_tokens[:, :-1]
    sent_before = np.where(goes_on, said, sessions.system_prompt_tokens)
    assert reuse.ideal_hit_rate * reuse.num_blocks == pytest.approx(sent_before.sum())


def test_requests_of_their_own_content_share_none() -> None:
    table = independent_requests(arrival_s=[0, 1], prompt_tokens=[64, 64], output_tokens=[1, 1])
    assert not shares_content(table)
    assert prefix_reuse(table, 16).ideal_hit_rate == 0


# Arrivals


def test_regular_arrivals_are_less_bursty_than_poisson_s_and_clumps_more() -> None:
    regular = arrivals(np.arange(5000) / 4)
    poisson = arrivals(np.cumsum(np.random.default_rng(1).exponential(0.25, 40_000)))
    clumped = arrivals(np.repeat(np.cumsum(np.random.default_rng(1).exponential(1, 10_000)), 4))
    assert regular is not None and poisson is not None and clumped is not None
    assert all(window.variance_over_mean == 0 for window in regular.windows.values())
    assert regular.gap_cv == 0
    assert poisson.gap_cv == pytest.approx(1, rel=0.02)
    for width, window in poisson.windows.items():
        standard_error = np.sqrt(2 / window.num_windows)
        assert window.variance_over_mean == pytest.approx(1, abs=4 * standard_error), width
    assert clumped.windows[10].variance_over_mean > 3


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1e4), min_size=2, max_size=50), st.sampled_from([0.5, 1, 60]))
def test_no_arrival_of_a_whole_window_is_counted_twice_or_lost(at_s: list[float], width_s: float) -> None:
    times = np.sort(at_s) - min(at_s)
    found = counts(times, width_s)
    assert found.sum() == (times < len(found) * width_s).sum()


def test_turns_arrive_as_soon_as_they_can() -> None:
    table = independent_requests(
        arrival_s=[5, np.nan, np.nan, 1], prompt_tokens=[1] * 4, output_tokens=[1] * 4,
        follows=[-1, 0, 1, -1], think_s=[0, 2, 3, 0],
    )  # fmt: skip
    assert earliest_arrival_s(table).tolist() == [5, 7, 10, 1]


def test_requests_without_times_have_no_rate() -> None:
    table = independent_requests(
        arrival_s=[0, np.nan], prompt_tokens=[1, 1], output_tokens=[1, 1], follows=[-1, NEXT_FREE]
    )
    assert arrivals(earliest_arrival_s(table)) is None
    assert arrivals(np.zeros(5)) is None


def test_hours_are_shown_where_a_day_is_there() -> None:
    busy = np.concatenate([np.linspace(day * 86_400, day * 86_400 + 3599, 720) for day in range(2)])
    found = arrivals(np.concatenate([busy, [2 * 86_400]]))
    assert found is not None
    assert len(found.hourly_per_s) == 24
    assert found.hourly_per_s[0] == pytest.approx(0.2)
    assert sum(found.hourly_per_s[1:]) == 0


# Lengths and sessions


def test_lengths_that_go_together_are_told_so() -> None:
    both = dependence([1, 2, 3, 100], [10, 20, 30, 40])
    assert both.rank_correlation == pytest.approx(1)
    assert 0.7 < both.correlation < 0.9
    assert dependence([1, 1], [5, 6]).correlation == 0
    assert spread([0, 0]).cv == 0


def test_a_draw_of_a_preset_has_its_exact_means() -> None:
    population = load_preset("chat")
    found = describe_population(population, 16, 500, 1)
    assert found.sessions is not None and found.reuse is not None
    assert found.sessions.turns.mean == pytest.approx(2.54, rel=0.01)
    assert found.output_tokens.mean == pytest.approx(population.output_tokens.mean(), rel=0.05)
    assert found.sessions.think_s.mean == pytest.approx(population.think_time_s.mean(), rel=0.05)


# What traces publish of themselves


def column(name: str, *columns: str) -> list[np.ndarray[Any, Any]]:
    path = TRACES / f"{name}.parquet"
    if not path.exists():
        pytest.skip("the published traces are not here")
    found = pd.read_parquet(path)
    return [found[each].to_numpy() for each in columns]


@pytest.mark.parametrize(
    ("name", "column_name", "published"),
    [
        ("azure_llm_2023_conv", "arrival_s", (5.53, 1.09, 1.39, 16.13, 1.52)),
        ("mooncake_conversation", "arrival_s", (3.401, 3.03, 7.89, 2.89, 1.21)),
        ("mooncake_conversation", "arrival_spread_s", (3.399, 1.01, 1.05, 2.89, 1.21)),
        ("servegen_sample_deepseek_r1_peak1h", "arrival_s", (35.63, 1.29, 4.31, 85.21, 1.30)),
        ("servegen_sample_m_large_peak10min", "arrival_s", (349.1, 1.54, 3.25, 4.82, 1.03)),
    ],
)
def test_rates_and_bursts_are_those_published(name: str, column_name: str, published: tuple[float, ...]) -> None:
    found = arrivals(column(name, column_name)[0])
    assert found is not None
    *first, peak = published
    told = (found.mean_per_s, found.gap_cv, *(found.windows[width].variance_over_mean for width in (1, 60)))
    assert told == pytest.approx(tuple(first), rel=0.005)
    assert found.windows[60].peak_per_s / found.mean_per_s == pytest.approx(peak, rel=0.01)


@pytest.mark.parametrize(
    ("name", "column_name", "published"),
    [
        ("azure_llm_2023_conv", "input_tokens", (1155, 1020, 2734, 4083, 4142, 14050)),
        ("mooncake_conversation", "output_tokens", (343, 350, 597, 698, 1119, 2000)),
        ("sharegpt_lengths_llama2_8k", "input_tokens", (2340, 1730, 5696, 6563, 7434, 8141)),
    ],
)
def test_lengths_are_those_published(name: str, column_name: str, published: tuple[float, ...]) -> None:
    found = spread(column(name, column_name)[0])
    told = (found.mean, found.p50, found.p90, found.p95, found.p99, found.max)
    assert told == pytest.approx(published, abs=0.5)


def hashed_table(at_s: Floats, prompt: Ints, output: Ints, hash_ids: Sequence[Ints], block_size: int) -> RequestTable:
    """Requests whose ids are chained: equal ids are equal content from the prompt's beginning on."""
    count = np.array([len(ids) for ids in hash_ids])
    place = np.concatenate([np.arange(1, each + 1) for each in count])
    ends = np.minimum(place * block_size, np.repeat(prompt, count))
    last = np.cumsum(count)
    ids = np.concatenate(list(hash_ids))
    return RequestTable(
        arrival_s=at_s.astype(np.float64),
        follows=np.full(len(at_s), -1),
        think_s=np.zeros(len(at_s)),
        prompt_tokens=prompt.astype(np.int32),
        output_tokens=output.astype(np.int32),
        priority=np.zeros(len(at_s), np.int32),
        span_start=last - count + np.arange(len(at_s)),
        span_count=(count + 1).astype(np.int32),
        span_content=np.insert(ids.astype(np.int64), last, ids.max() + 1 + np.arange(len(at_s))),
        span_end=np.insert(ends, last, OPEN_END).astype(np.int32),
    )


def test_mooncake_s_prefixes_are_found_as_published() -> None:
    at_s, *columns = column("mooncake_conversation", "arrival_s", "input_tokens", "output_tokens", "hash_ids")
    table = hashed_table(at_s, *columns, block_size=512)
    table.validate()
    trace = Trace(name="conversation", format="mooncake", table=table, source="a test")
    found = describe_trace(trace, 512)
    reuse = found.reuse
    assert reuse is not None
    assert (reuse.num_blocks, reuse.num_distinct_blocks) == (288_500, 182_790)
    assert reuse.ideal_hit_rate == pytest.approx(0.3664, abs=5e-5)
    told = [round(reuse.hit_rate(blocks), 3) for blocks in (1000, 3000, 10_000, 30_000, 100_000)]
    assert told == [0.045, 0.065, 0.212, 0.326, 0.364]
    assert found.untold[0].startswith("Bursts shorter than 3 s: its 12,031 requests have only 1,180 different times")
