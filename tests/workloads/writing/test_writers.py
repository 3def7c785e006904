"""What is written is what is read again, but for what the writer says it cannot hold."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from files.reading import InputError
from tests.workloads.description.test_description import BLOCK, blocks_by_hand
from tests.workloads.trace_files import load_trace
from workloads.description.arrivals import earliest_arrival_s
from workloads.load import load_preset
from workloads.requests import NEXT_FREE, NO_PREDECESSOR, OPEN_END, RequestTable, independent_requests
from workloads.tenants import tenancy_of_names
from workloads.writing.text_rows import Lists, Numbers, write_rows
from workloads.writing.trace_writer import TRACE_WRITERS, TraceWriter, find_writer

WRITERS = [TRACE_WRITERS.load(name).WRITER for name in TRACE_WRITERS.names()]

_NUMBERS = st.integers(0, 2**63 - 1)


@st.composite
def tables(draw: st.DrawFn) -> RequestTable:
    """Requests that begin alike in whole blocks or within them, some of them turns of sessions, some sooner."""
    n = draw(st.integers(1, 12))
    follows, last = [], list[int]()
    for row in range(n):
        follows.append(last.pop() if last and draw(st.booleans()) else NO_PREDECESSOR)
        last.append(row)
    per_s = draw(st.sampled_from([1e7, 1e9, 3e9]))
    arrival = [draw(st.integers(0, 10**12)) / per_s if before < 0 else math.nan for before in follows]
    think = [0.0 if before < 0 else draw(st.integers(0, 10**9)) / 1e6 for before in follows]
    spans, start, count = list[tuple[int, int]](), list[int](), list[int]()
    for row in range(n):
        cuts = draw(st.lists(st.integers(1, 20), max_size=3, unique=True))
        shared = draw(st.integers(0, len(cuts)))
        ends = sorted(cuts)
        own = [(100 * place + end, end) for place, end in enumerate(ends[:shared])]
        start.append(len(spans))
        spans += [*own, (10_000 + row, OPEN_END)]
        count.append(len(own) + 1)
    return RequestTable(
        arrival_s=np.array(arrival),
        follows=np.array(follows, np.int64),
        think_s=np.array(think),
        prompt_tokens=np.array([draw(st.integers(1, 30)) for _ in range(n)], np.int32),
        output_tokens=np.array([draw(st.integers(1, 9)) for _ in range(n)], np.int32),
        priority=np.array([draw(st.sampled_from([0, 0, 3])) for _ in range(n)], np.int32),
        span_start=np.array(start, np.int64),
        span_count=np.array(count, np.int32),
        span_content=np.array([content for content, _ in spans], np.int64),
        span_end=np.array([end for _, end in spans], np.int32),
        tenancy=tenancy_of_names(("b", "a"), np.array([row % 2 for row in range(n)], np.int32))
        if draw(st.booleans())
        else None,
    )


def whose(table: RequestTable) -> list[str]:
    return [] if table.tenancy is None else [table.tenancy.tenants[of].name for of in table.tenancy.of]


def common_blocks(table: RequestTable) -> list[list[int]]:
    """How many full blocks each two prompts begin with alike."""
    rows = [
        [block for block in blocks_by_hand(table, row, int(table.prompt_tokens[row]), BLOCK) if block[1] % BLOCK == 0]
        for row in range(table.num_requests)
    ]
    return [[_alike(one, other) for other in rows] for one in rows]


def _alike(one: list[Any], other: list[Any]) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)
@settings(max_examples=40)
@given(table=tables())
def test_a_trace_that_is_written_and_read_again_differs_only_in_what_is_told(
    tmp_path_factory: pytest.TempPathFactory, writer: TraceWriter, table: RequestTable
) -> None:
    table.validate()
    path = tmp_path_factory.mktemp("t") / "trace"
    writer.write(table, path, BLOCK)
    lost = {text.split(":")[0] for text in writer.lost(table, BLOCK)}
    again = load_trace(path, BLOCK).table
    assert again.prompt_tokens.tolist() == table.prompt_tokens.tolist()
    assert again.output_tokens.tolist() == table.output_tokens.tolist()
    at_s, read_s = earliest_arrival_s(table), earliest_arrival_s(again)
    np.testing.assert_allclose(read_s - read_s.min(), at_s - at_s.min(), rtol=0, atol=2e-7)
    if "sessions" not in lost:
        assert again.follows.tolist() == table.follows.tolist()
        np.testing.assert_allclose(again.think_s, table.think_s, rtol=0, atol=1e-9)
    if "times" not in lost:
        np.testing.assert_allclose(read_s - read_s.min(), at_s - at_s.min(), rtol=0, atol=2e-9)
    if "tenants" not in lost:
        assert whose(again) == whose(table)
    if "priority" not in lost:
        assert again.priority.tolist() == table.priority.tolist()
    if "content" not in lost:
        assert common_blocks(again) == common_blocks(table)


def test_ids_are_those_of_the_blocks(tmp_path: Path) -> None:
    table = load_preset("chat").draw(3, 4, 1, 8192)
    find_writer("mooncake", Path("x")).write(table, tmp_path / "x.jsonl", BLOCK)
    again = load_trace(tmp_path / "x.jsonl", BLOCK).table
    assert common_blocks(again) == common_blocks(table)


def test_what_is_not_there_is_not_told_as_lost() -> None:
    table = independent_requests(arrival_s=[0, 1], prompt_tokens=[64, 64], output_tokens=[1, 1])
    assert all(writer.lost(table, 16) == () for writer in WRITERS)


def test_times_that_a_format_rounds_are_told() -> None:
    table = independent_requests(arrival_s=[0, 1.25, 1 / 3], prompt_tokens=[64] * 3, output_tokens=[1] * 3)
    told = {writer.name: writer.lost(table, 16) for writer in WRITERS}
    assert told == {
        "aiperf": ("times: 1 of 3 are rounded to 1 ns",),
        "azure": ("times: 1 of 3 are rounded to 100 ns",),
        "mooncake": ("times: 1 of 3 are rounded to 1 ns",),
        "parquet": (),
    }


@pytest.mark.slow
def test_long_traces_are_written_in_parts(tmp_path: Path) -> None:
    n = 600_001
    table = independent_requests(arrival_s=np.arange(n) / 8, prompt_tokens=np.arange(n) % 97 + 1, output_tokens=[5] * n)
    find_writer(None, Path("x.csv")).write(table, tmp_path / "x.csv", 16)
    again = load_trace(tmp_path / "x.csv").table
    np.testing.assert_array_equal(again.arrival_s, table.arrival_s)
    np.testing.assert_array_equal(again.prompt_tokens, table.prompt_tokens)


@settings(max_examples=30)
@given(rows=st.lists(st.tuples(_NUMBERS, st.lists(_NUMBERS, max_size=3)), max_size=5))
def test_rows_of_numbers_are_written_as_python_writes_them(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, list[int]]]
) -> None:
    path = tmp_path_factory.mktemp("t") / "rows"
    numbers = np.array([number for number, _ in rows], np.int64)
    lists = Lists(
        np.array([each for _, several in rows for each in several], np.int64),
        np.cumsum([0, *(len(several) for _, several in rows)]),
    )
    write_rows(path, len(rows), lambda _: (b"<", Numbers(numbers, width=4), b">[", lists, b"]\n"), b"head\n")
    expected = [f"<{number:04d}>[{','.join(map(str, several))}]\n" for number, several in rows]
    assert path.read_text() == "head\n" + "".join(expected)


def test_requests_without_times_cannot_be_written(tmp_path: Path) -> None:
    table = independent_requests(
        arrival_s=[0, np.nan], prompt_tokens=[1, 1], output_tokens=[1, 1], follows=[-1, NEXT_FREE]
    )
    with pytest.raises(InputError, match="row 1 has no arrival time"):
        find_writer("azure", Path("x")).write(table, tmp_path / "x", 16)


def test_a_writer_is_found_by_its_name_a_client_or_the_ending() -> None:
    assert find_writer(None, Path("a.CSV")).name == "azure"
    assert find_writer("vllm", Path("a.csv")).name == "mooncake"
    with pytest.raises(InputError, match=r"a\.txt: no trace format ends so; end it in .*\.csv"):
        find_writer(None, Path("a.txt"))
    with pytest.raises(ValueError, match="did you mean 'azure'"):
        find_writer("azur", Path("a.csv"))
