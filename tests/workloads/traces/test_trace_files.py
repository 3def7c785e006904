"""Trace files in their publishers' formats."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.limits import limits_raised
from files.reading import InputError
from tests.workloads.trace_files import (
    AZURE,
    HEADER,
    load_trace,
    mooncake,
    refusal,
    shared_tokens,
    spans,
    write,
    write_lines,
)
from workloads.formats.parsing.rows import Request, Rows
from workloads.load import load_workload
from workloads.requests import NO_PREDECESSOR
from workloads.traces.trace import Trace

DATA = Path(__file__).parents[3] / ".." / "shared" / "data"


# Azure


def test_an_azure_trace_is_read_to_the_seventh_decimal(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path, "conv.csv", AZURE))
    assert trace.format == "azure"
    np.testing.assert_allclose(trace.table.arrival_s, [0, 2.5, 60.1], rtol=0, atol=1e-12)
    assert trace.table.prompt_tokens.tolist() == [300, 4000, 7]
    assert trace.table.output_tokens.tolist() == [40, 1, 1000]
    assert len(set(trace.table.span_content.tolist())) == 3


@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("AzureLLMInferenceTrace_conv_1week.csv", ("2024-05-12 00:00:00.25+00:00", "2024-05-12 00:00:01.750000+00:00")),
        ("lmm.csv", ("2024-10-15T12:00:00.250Z", "2024-10-15T12:00:01.750Z")),
        ("zones.csv", ("2024-05-12 02:00:00.25+02:00", "2024-05-12 00:00:01.75Z")),
    ],
)
def test_zones_are_read(tmp_path: Path, name: str, times: tuple[str, str]) -> None:
    rows = "\n".join(f"{time},10,20" for time in times)
    assert load_trace(write(tmp_path, name, f"{HEADER}\n{rows}\n")).table.arrival_s.tolist() == [0, 1.5]


def test_columns_go_by_their_names(tmp_path: Path) -> None:
    text = "GeneratedTokens,TIMESTAMP,NumImages,ContextTokens\n5,2024-10-15T12:00:00.269Z,3,770\n"
    table = load_trace(write(tmp_path, "lmm.csv", "\ufeff" + text)).table
    assert (table.prompt_tokens[0], table.output_tokens[0]) == (770, 5)


def test_rows_keep_their_places_when_times_do_not_ascend(tmp_path: Path) -> None:
    text = f"{HEADER}\n2023-11-16 10:00:05,1,1\n2023-11-16 10:00:00,2,1\n2023-11-16 10:00:05,3,1\n\n\n"
    table = load_trace(write(tmp_path, "a.csv", text)).table
    assert table.arrival_s.tolist() == [5, 0, 5]
    assert table.prompt_tokens.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        ("\ufeff\ufeff", "the file is empty"),
        (HEADER + "\r\n", "has no rows; a trace needs at least one request"),
        (
            HEADER.replace("GeneratedTokens", "Generated") + "\n",
            "line 1: no column GeneratedTokens; the header has TIM",
        ),
        (HEADER + "\n2023-11-16 10:00:00,5,5\n2023-13-16 10:00:00,5,5", "line 3: TIMESTAMP is '2023-13-16 10:00:00'"),
        (HEADER + "\n,5,5", "line 2: TIMESTAMP is empty; it must be a date such as 2023-11-16 18:15:46.6805900"),
        (HEADER + "\nnow,5,5", "line 2: TIMESTAMP is 'now'; it must be a date such as"),
        (HEADER + "\n9999-01-01 00:00:00,5,5", "line 2: TIMESTAMP is '9999-01-01 00:00:00'; it must be a date"),
        (HEADER + ",TIMESTAMP\n2023-11-16 10:00:00,5,5,x", "line 1: a column is there twice; the header has TIM"),
        (
            HEADER + '\n2023-11-16 10:00:00,5,5\n2023-11-16 10:00:00,"5,5',
            "line 3: has a quotation mark that is not closed",
        ),
        (HEADER + "\n2023-11-16 10:00:00,-5,5", "line 2: ContextTokens is '-5'; it must be a whole number of tokens"),
        (HEADER + "\n2023-11-16 10:00:00,5,0", "line 2: GeneratedTokens is '0'; it must be a whole number of tokens"),
        (HEADER + "\n2023-11-16 10:00:00,5,nan", "line 2: GeneratedTokens is 'nan'"),
        (HEADER + "\n2023-11-16 10:00:00,5,1.5", "line 2: GeneratedTokens is '1.5'"),
        (HEADER + "\n2023-11-16 10:00:00,9999999999,1", "line 2: ContextTokens is '9999999999'"),
        (HEADER + "\n2023-11-16 10:00:00,5\n", "line 2: has 2 cells; the header has 3 columns"),
        (
            HEADER + "\n2023-11-16 10:00:00,5,5\n\n2023-11-16 10:00:00,5,5\n",
            "line 3: is empty; only the end of the file may have",
        ),
        (
            HEADER + "\n2023-11-16 10:00:00,5,5\n2023-11-16 10:00:00,5,5,6\n",
            "line 3: has 4 cells; the header has 3 columns",
        ),
        (HEADER + "\n2023-11-16 10:00:00,5,5,6\n", "line 2: has 4 cells; the header has 3 columns"),
        (
            "a,b,c\n1,2,3\n",
            "for CSV, Parquet or JSON, name the columns: --columns time=",
        ),
    ],
)
def test_a_broken_azure_file_is_told_by_line(tmp_path: Path, text: str, message: str) -> None:
    found = refusal(write(tmp_path, "broken.csv", text))
    assert message in found
    assert "broken.csv" in found


# Mooncake


def test_a_mooncake_trace_keeps_its_times_and_line_numbers(tmp_path: Path) -> None:
    path = write_lines(tmp_path, mooncake(3000, 600, 5, [4, 7]), mooncake(1500, 512, 6, [4]), mooncake(3000, 5, 7, [9]))
    trace = load_trace(path)
    assert trace.format == "mooncake"
    assert trace.table.arrival_s.tolist() == [3.0, 1.5, 3.0]
    assert trace.table.output_tokens.tolist() == [5, 6, 7]


def test_equal_hash_prefixes_are_equal_content(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path,
        mooncake(0, 1100, 500, [4, 7, 8]),  # the last id covers 1024 to 1100
        mooncake(0, 1536, 5, [4, 7, 9]),
        mooncake(0, 1100, 5, [5, 7]),  # id 7 follows another block here, so it names another prefix
        mooncake(0, 1100, 5, [4, 7, 8]),
    )
    table = load_trace(path).table
    assert [shared_tokens(table, 0, row) for row in (1, 2, 3)] == [1024, 0, 1100]


@st.composite
def prompts_of_blocks(draw: st.DrawFn) -> list[tuple[int, list[int]]]:
    """(tokens, ids) of prompts that often begin alike, in blocks of 4 tokens."""
    prompts: list[tuple[int, list[int]]] = []
    for _ in range(draw(st.integers(2, 12))):
        begins = draw(st.sampled_from(prompts))[1] if prompts and draw(st.booleans()) else []
        ids = begins[: draw(st.integers(0, 8))] + draw(st.lists(st.integers(0, 3), min_size=1, max_size=5))
        prompts.append((4 * len(ids) - draw(st.integers(0, 3)), ids))
    return prompts


@given(prompts_of_blocks())
def test_prompts_share_the_blocks_whose_ids_are_equal_from_the_first_on(prompts: list[tuple[int, list[int]]]) -> None:
    rows = Rows(Path("trace.jsonl"))
    for tokens, ids in prompts:
        rows.add("", Request(prompt_tokens=tokens, output_tokens=9999, arrival_s=0.0, ids=ids, block_size=4))
    table = rows.recorded().table  # answers are so long that no prompt goes on from one
    table.validate()
    for (one, (tokens, ids)), (other, (others, other_ids)) in combinations(enumerate(prompts), 2):
        equal = next((at for at, pair in enumerate(zip(ids, other_ids, strict=False)) if len(set(pair)) > 1), 99)
        equal = min(equal, len(ids), len(other_ids))
        full = min(equal, tokens // 4, others // 4)
        assert 4 * full <= shared_tokens(table, one, other) <= 4 * equal


def test_the_next_turn_finds_the_prompt_and_the_answer(tmp_path: Path) -> None:
    """Its ids cover both; those of the blocks that the answer begins or ends in are new."""
    turns = [(1100, 500, [4, 7, 8]), (1700, 300, [4, 7, 9, 10]), (2100, 40, [4, 7, 9, 11, 12])]
    lines = [mooncake(0, *turn, session_id="a") for turn in turns]
    table = load_trace(write_lines(tmp_path, *lines)).table
    assert [shared_tokens(table, row, row + 1) for row in (0, 1)] == [1600, 2000]
    assert shared_tokens(table, 0, 2) == 1600
    inferred = load_trace(write_lines(tmp_path, *(mooncake(0, *turn) for turn in turns)))
    assert [shared_tokens(inferred.table, row, row + 1) for row in (0, 1)] == [1600, 2000]
    assert "2 of 3 requests are taken as the next turn of the one whose block ids they go on from" in inferred.notes[0]


def test_who_shares_a_long_system_prompt_is_not_taken_for_its_next_turn(tmp_path: Path) -> None:
    system = [1, 2, 3]
    lines = [mooncake(0, 1600 + k, 20, [*system, 10 + k]) for k in range(3)]
    lines.append(mooncake(0, 2100, 20, [*system, 20, 21]))
    trace = load_trace(write_lines(tmp_path, *lines))
    assert [shared_tokens(trace.table, row, 3) for row in range(3)] == [1536] * 3
    assert trace.notes == ()


def test_a_prompt_that_is_too_short_for_the_answer_does_not_hold_it(tmp_path: Path) -> None:
    lines = (mooncake(0, 1100, 500, [4, 7, 8], session_id="a"), mooncake(9, 1300, 5, [4, 7, 9], session_id="a"))
    assert shared_tokens(load_trace(write_lines(tmp_path, *lines)).table, 0, 1) == 1024


def test_requests_without_hash_ids_share_nothing(tmp_path: Path) -> None:
    table = load_trace(write_lines(tmp_path, mooncake(0, 600, 5), mooncake(1, 600, 5, []))).table
    assert table.span_count.tolist() == [1, 1]
    assert spans(table, 0) != spans(table, 1)


def test_the_trace_block_size_is_the_traces_own(tmp_path: Path) -> None:
    path = write_lines(tmp_path, mooncake(0, 40, 5, [1, 2, 3]))
    same = write_lines(tmp_path / "..", mooncake(0, 40, 50, [1, 2, 3]), mooncake(0, 48, 5, [1, 2, 4]))
    assert shared_tokens(load_trace(same, 16).table, 0, 1) == 32
    found = refusal(path)
    assert "line 1: 3 hash_ids for 40 tokens; with blocks of 512 there must be 0 or 1 (set --trace-block-size" in found


def test_a_session_follows_its_delays(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path,
        mooncake(100, 10, 5, session_id="a"),
        mooncake(200, 10, 5, session_id="b"),
        {"session_id": "a", "delay": 2500, "input_length": 20, "output_length": 5},
        mooncake(900, 20, 5, session_id="b"),
        mooncake(999, 30, 5, session_id="a", delay=0),
    )
    table = load_trace(path).table
    assert table.follows.tolist() == [NO_PREDECESSOR, NO_PREDECESSOR, 0, NO_PREDECESSOR, 2]
    np.testing.assert_array_equal(table.arrival_s, [0.1, 0.2, math.nan, 0.9, math.nan])
    assert table.think_s.tolist() == [0, 0, 2.5, 0, 0]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"timestamp": 0, "input_length": 5,'], "line 1, column 36: is not JSON"),
        ([mooncake(0, 5, 5), "[1, 2]"], "line 2: it is a list of 2; it must be a table"),
        ([mooncake(0, 5, 5), "", mooncake(0, 5, 5)], "line 2: is empty"),
        ([mooncake(0, 5, 5), '{"timestamp": 1, "input_le'], "line 2, column"),
        ([mooncake(0, 5, 5, extra="[" * 9000 + "]" * 9000), "[" * 9000], "line 2: "),
        (['{"input_length": ' + "9" * 400 + ', "output_length": 5, "timestamp": 0}'], "line 1: input_length is 99999"),
        (['{"input_length": ' + "9" * 5000 + ', "output_length": 5, "timestamp": 0}'], "line 1: "),
        ([mooncake(1e300, 5, 5)], "line 1: timestamp is 1e+300; it must be a number of milliseconds"),
        ([mooncake(0, 5, 5, session_id=[1], delay=3)], "line 1: session_id is a list of 1; it must be"),
        ([mooncake(0, 5, 5, delay="x")], "line 1: delay is 'x'; it must be a number of milliseconds"),
        ([{"timestamp": 0, "input_length": 5}], "line 1: 'output_length' is missing; give it"),
        ([mooncake(0, 5, 5), {"input_length": 5, "output_length": 5}], "line 2: 'timestamp' is missing; give it"),
        ([mooncake(0, -5, 5)], "line 1: input_length is -5; it must be a whole number of tokens, at least 1"),
        ([mooncake(0, 5, 5), mooncake(0, 5, 0)], "line 2: output_length is 0; it must be a whole number of tokens"),
        ([mooncake(0, 5, 5) | {"input_length": 5.5}], "line 1: input_length is 5.5"),
        (
            [mooncake(0, 5, 5) | {"input_length": "5"}],
            "line 1: input_length is '5'; it must be a whole number of tokens",
        ),
        ([mooncake(0, 5, 5) | {"input_length": True}], "line 1: input_length is true"),
        ([mooncake(math.nan, 5, 5)], "line 1: timestamp is nan; it must be a number of milliseconds"),
        ([mooncake(-1, 5, 5)], "line 1: timestamp is -1; it must be a number of milliseconds, at least 0"),
        ([mooncake(0, 2**31 - 5, 5)], "line 1: 2,147,483,643 + 5 tokens"),
        ([mooncake(0, 5, 5), mooncake(0, 5, 5, ["a"])], "line 2: hash_ids[1] is 'a'; it must be a whole number"),  # type: ignore[list-item]
        (
            [mooncake(0, 600, 5, [1, 2, 3])],
            "line 1: 3 hash_ids for 600 tokens; with blocks of 512 there must be 1 or 2",
        ),
        ([mooncake(0, 5, 5, session_id="a"), mooncake(0, 5, 5, session_id="a", delay=-3)], "line 2: delay is -3"),
    ],
)
def test_a_broken_mooncake_file_is_told_by_line(tmp_path: Path, lines: list[Any], message: str) -> None:
    found = refusal(write_lines(tmp_path, *lines))
    assert message in found
    assert "trace.jsonl" in found


# Any trace


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (AZURE.encode("utf-16"), 1),
        (AZURE.encode("utf-16-le"), 1),
        (f"{AZURE}\r\n2023-11-16 10:02:00,7,\0".encode(), 5),
        (f"{AZURE}\r\n2023-11-16 10:02:00,7,\0".encode()[:-1] + b"\xff", 5),
        (f"{AZURE}\r\n2023-11-16 10:02:00,7,é".encode()[:-1], 5),
        ((HEADER + "\n2023-11-16 10:02:00,7,7" * 99_999 + "\né").encode("latin-1"), 100_001),
        (b'{"timestamp": 0, "input_length": 5, "output_length": 5}\n\xff\n', 2),
        (b"\0" * 100_000, 1),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_that_is_no_text_is_refused_with_the_line_that_is_not(
    tmp_path: Path, raw: bytes, line: int, packed: bool
) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(gzip.compress(raw) if packed else raw)
    assert f"trace.csv, line {line}: not a text file in UTF-8" in refusal(path)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_packed_data_that_is_damaged_is_told_with_the_line_that_is_lost(tmp_path: Path, kind: str, damage: str) -> None:
    rows = [f"2023-11-16 10:02:00,{row * 7919 % 9973 + 1},7" for row in range(60_000)]
    if kind == "jsonl":
        rows = [json.dumps(mooncake(row, row * 7919 % 9973 + 1, 7)) for row in range(60_000)]
    text = "\n".join([HEADER, *rows] if kind == "csv" else rows).encode()
    packed = bytearray(gzip.compress(text))
    whole = len(packed) // 2
    packed = packed[:whole] if damage == "cut" else packed
    packed[whole - 9] ^= 0xFF if damage == "flipped" else 0
    path = tmp_path / "trace.gz"
    path.write_bytes(packed)
    found = re.search(r"trace\.gz, line (\d+): its gzip data is cut off or damaged here", message := refusal(path))
    if damage == "flipped" and found is None:  # what it turns into may be read as text that is wrong
        assert "trace.gz, line " in message
        return
    assert found is not None, message
    assert 0.4 * len(rows) < int(found[1]) < 0.6 * len(rows) or damage == "flipped"


def test_pipes_devices_and_folders_are_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    os.mkfifo(tmp_path / "pipe.toml")
    for path in (tmp_path / "pipe.csv", tmp_path / "pipe.toml", Path("/dev/zero")):
        assert "is a pipe or a device; give an ordinary file" in refusal(path)
    assert "is a folder; give an ordinary file" in refusal(tmp_path)


@pytest.mark.parametrize("text", [AZURE, "\ufeff" + AZURE.replace("\r", "")])
def test_a_trace_is_the_same_packed_with_a_mark_or_other_line_ends(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    plain = load_trace(write(tmp_path, "plain.csv", AZURE)).table
    np.testing.assert_array_equal(load_trace(path).table.arrival_s, plain.arrival_s)
    path.write_bytes(gzip.compress(text.encode())[:-9])
    assert "trace.csv.gz, line 4: its gzip data is cut off or damaged" in refusal(path)


def test_quoted_columns_are_read(tmp_path: Path) -> None:
    text = "\n".join(",".join(f'"{cell}"' for cell in line.split(",")) for line in AZURE.splitlines())
    assert load_trace(write(tmp_path, "quoted.csv", text)).table.prompt_tokens.tolist() == [300, 4000, 7]


def test_rows_and_lines_have_limits_that_can_be_raised(tmp_path: Path) -> None:
    azure = write(tmp_path, "a.csv", AZURE)
    lines = write_lines(tmp_path, *[mooncake(0, 5, 5)] * 3)
    with limits_raised(rows=2):
        assert "has more than 2 rows (limit rows; --limit rows=N raises it); replay its first" in refusal(azure)
        assert "has more than 2 rows (limit rows; --limit rows=N raises it); replay its first" in refusal(lines)
        assert load_workload(lines, num_requests=2).num_requests == 2  # type: ignore[union-attr]
    with limits_raised(line_bytes=100_000):
        for text in (AZURE + "7" * 200_000, json.dumps(mooncake(0, 5, 5, extra="x" * 200_000))):
            found = refusal(write(tmp_path, "long.txt", text))
            assert "long.txt: has a line of more than 100,000 bytes (limit line_bytes" in found


@pytest.mark.parametrize("num_requests", [1, 2, 3, 9])
def test_a_trace_is_read_only_as_far_as_asked(tmp_path: Path, num_requests: int) -> None:
    """As the whole file's first rows; what comes after them is not looked at."""
    lines = [mooncake(2, 1100, 5, [4, 7, 8]), mooncake(7, 600, 6, [4, 9]), mooncake(5, 40, 7)]
    broken = [*map(json.dumps, lines), "{" * 100_000]
    for name, whole, damaged in (
        ("a.csv", AZURE, f"{AZURE}\r\nnow,x,-1"),
        ("b.jsonl", "\n".join(broken[:-1]), "\n".join(broken)),
    ):
        expected = load_trace(write(tmp_path, name, whole)).table.head(num_requests)
        if num_requests > 3:
            assert f"{name}, line " in refusal(write(tmp_path, name, damaged))
        else:
            write(tmp_path, name, damaged)
            found = load_workload(tmp_path / name, num_requests=num_requests)
            assert isinstance(found, Trace)
            for row in range(num_requests):
                assert [end for _, end in spans(found.table, row)] == [end for _, end in spans(expected, row)]
            for column in ("arrival_s", "follows", "think_s", "prompt_tokens", "output_tokens"):
                np.testing.assert_array_equal(getattr(found.table, column), getattr(expected, column))


def test_times_of_the_first_rows_begin_at_the_earliest_of_them(tmp_path: Path) -> None:
    """A row beyond them that is earlier is not looked at."""
    text = f"{HEADER}\n2023-11-16 10:00:05,1,1\n2023-11-16 10:00:03,2,1\n2023-11-16 10:00:00,3,1\n"
    found = load_workload(write(tmp_path, "a.csv", text), num_requests=2)
    assert isinstance(found, Trace)
    assert found.table.arrival_s.tolist() == [2, 0]


def test_an_empty_line_among_the_first_rows_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", f"{HEADER}\n2023-11-16 10:00:05,1,1\n\n2023-11-16 10:00:03,2,1\n")
    with pytest.raises(InputError, match="line 3: is empty"):
        load_workload(path, num_requests=2)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "3"])
def test_a_number_of_rows_that_is_none_is_refused(tmp_path: Path, wrong: Any) -> None:
    path = write(tmp_path, "a.csv", AZURE)
    with pytest.raises(InputError, match=r"num_requests is .*; it must be a whole number, at least 1"):
        load_workload(path, num_requests=wrong)
    with pytest.raises(InputError, match=r"trace_block_size is .*; it must be a whole number, at least 1"):
        load_workload(path, trace_block_size=wrong)


# Published traces


def published(name: str) -> Any:
    path = DATA / "traces" / name
    if not path.exists():
        pytest.skip(f"the published trace {name} is not here")
    return pytest.importorskip("pandas").read_parquet(path)


def test_the_published_azure_trace_is_read_as_its_publisher_wrote_it(tmp_path: Path) -> None:
    rows = published("azure_llm_2023_conv.parquet")
    ticks = np.round(rows.arrival_s.to_numpy() * 1e7).astype(np.int64)
    times = np.datetime64("2023-11-16T18:15:46.680590000") + ticks * np.timedelta64(100, "ns")
    columns = zip(np.datetime_as_string(times), rows.input_tokens, rows.output_tokens, strict=True)
    lines = [f"{time.replace('T', ' ')[:27]},{prompt},{output}" for time, prompt, output in columns]
    trace = load_trace(write(tmp_path, "AzureLLMInferenceTrace_conv.csv", "\r\n".join([HEADER, *lines])))
    np.testing.assert_allclose(trace.table.arrival_s, rows.arrival_s, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(trace.table.prompt_tokens, rows.input_tokens)
    np.testing.assert_array_equal(trace.table.output_tokens, rows.output_tokens)


@pytest.mark.slow
def test_the_published_mooncake_trace_shares_as_its_hashes_do(tmp_path: Path) -> None:
    rows = published("mooncake_conversation.parquet")
    columns = zip(rows.arrival_s, rows.input_tokens, rows.output_tokens, rows.hash_ids, strict=True)
    lines = [mooncake(round(at * 1000), int(prompt), int(out), ids.tolist()) for at, prompt, out, ids in columns]
    trace = load_trace(write_lines(tmp_path, *lines))
    np.testing.assert_allclose(trace.table.arrival_s, rows.arrival_s)
    ids = rows.hash_ids.to_list()
    size = rows.input_tokens.to_numpy()
    for one, other in np.random.default_rng(0).integers(len(ids), size=(300, 2)).tolist():
        num_same = int(np.argmin([*(a == b for a, b in zip(ids[one], ids[other], strict=False)), False]))
        expected = min(512 * num_same, size[one], size[other])
        if one != other:
            assert shared_tokens(trace.table, one, other) >= expected
            assert shared_tokens(trace.table, one, other) <= max(size[one], size[other])


@pytest.mark.parametrize(
    ("name", "known"),
    [("azure_llm_2023.csv", "azure"), ("azure_llm_2024_week.csv", "azure"), ("azure_lmm_2025.csv", "azure"),
     ("mooncake.jsonl", "mooncake")],
)  # fmt: skip
def test_published_samples_are_known_by_content(name: str, known: str) -> None:
    path = DATA / "trace_formats" / name
    if not path.exists():
        pytest.skip(f"the published sample {name} is not here")
    assert load_trace(path).format == known
