"""Block ids that name blocks of different lengths, and sessions that are named without think times."""

import json
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from files.reading import InputError
from tests.workloads.trace_files import load_trace, shared_tokens, write
from workloads.description.description import describe_trace
from workloads.traces.trace_file import TraceFile

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
Row = tuple[list[tuple[int, int]], int]
rows = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), min_size=1, max_size=5), st.integers(0, 6)),
    min_size=2, max_size=8,
)  # fmt: skip


def parquet(tmp_path: Path, found: list[Row]) -> Path:
    """Ids with their tokens; a prompt has so many more that no id names. An id has one length wherever it stands."""
    lengths = {each: tokens for blocks, _ in found for each, tokens in blocks}
    columns = {
        "hash_ids": [[each for each, _ in blocks] for blocks, _ in found],
        "block_tokens": [[lengths[each] for each, _ in blocks] for blocks, _ in found],
        "input_tokens": [sum(lengths[each] for each, _ in blocks) + more + 1 for blocks, more in found],
        "output_tokens": [3] * len(found),
        "arrival_s": [float(number) for number in range(len(found))],
    }
    path = tmp_path / "trace.parquet"
    pandas.DataFrame(columns).to_parquet(path)
    return path


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(found=rows)
def test_requests_share_the_blocks_that_they_begin_with(found: list[Row], tmp_path: Path) -> None:
    table = load_trace(parquet(tmp_path, found)).table
    table.validate()
    lengths = {each: tokens for blocks, _ in found for each, tokens in blocks}
    for one in range(len(found)):
        for other in range(one):
            first, second = ([each for each, _ in found[row][0]] for row in (one, other))
            alike = accumulate((a == b for a, b in zip(first, second, strict=False)), lambda all_, is_: all_ and is_)
            expected = sum(lengths[each] for each, is_ in zip(first, alike, strict=False) if is_)
            assert shared_tokens(table, one, other) == expected


def test_lengths_that_are_not_those_of_the_ids_are_refused(tmp_path: Path) -> None:
    path = parquet(tmp_path, [([(1, 5)], 0), ([(2, 5)], 0)])
    pandas.read_parquet(path).assign(block_tokens=[[5], [5, 6]]).to_parquet(path)
    with pytest.raises(InputError, match=r"1 hash_ids, and block_tokens \[5, 6\]; give the tokens of each id"):
        load_trace(path)


def test_sessions_that_keep_their_times_are_described(tmp_path: Path) -> None:
    """Their turns are known, their think times are not."""
    users = ["a", "b", "a", "c", "a"]
    lines = [{"t": n, "p": 5, "o": 3, "user": user} for n, user in enumerate(users)]
    path = write(tmp_path, "trace.jsonl", "\n".join(map(json.dumps, lines)))
    described = describe_trace(load_trace(TraceFile(path, columns="time=t,prompt=p,output=o,session=user")), 16)
    sessions = described.sessions
    assert sessions is not None and sessions.think_s is None
    assert (sessions.num_sessions, sessions.turns.max) == (3, 3)
    assert sessions.multi_turn_share == pytest.approx(1 / 3)
    assert not any(text.startswith("Sessions:") for text in described.untold)
    assert any(text.startswith("Think times:") for text in described.untold)


def test_ragpulse_names_its_sessions(tmp_path: Path) -> None:
    ids = {"sys_prompt": [1], "passages_ids": [2], "history": [], "web_search": [], "user_input": [3]}
    lines = [
        {"timestamp": str(n), "input_length": 9, "output_length": 3, "hash_ids": ids, "session_id": f"s{n // 2}"}
        for n in range(4)
    ]
    trace = load_trace(write(tmp_path, "ragpulse.jsonl", "\n".join(map(json.dumps, lines))))
    assert (trace.format, trace.session_turns) == ("ragpulse", (2, 2))


FLAT = {"timestamp": 0.0, "input_length": 9, "output_length": 3, "hash_ids": [1, 2], "block_tokens": [4, 3]}


def test_ragpulse_with_the_lengths_of_its_parts_shares_them(tmp_path: Path) -> None:
    """The same as a Parquet table of the same columns."""
    parts = [([1, 2], [4, 3]), ([1, 3], [4, 2]), ([1, 2, 3], [4, 3, 2])]
    lines = [
        {**FLAT, "timestamp": 2.0 * n, "hash_ids": ids, "block_tokens": tokens, "session_id": f"s{n // 2}"}
        for n, (ids, tokens) in enumerate(parts)
    ]
    trace = load_trace(write(tmp_path, "flat.jsonl", "\n".join(map(json.dumps, lines))))
    names = {"timestamp": "arrival_s", "input_length": "input_tokens", "output_length": "output_tokens"}
    table = pandas.DataFrame(lines).rename(columns=names)
    table.to_parquet(tmp_path / "same.parquet")
    same = load_trace(tmp_path / "same.parquet")
    assert (trace.format, trace.session_turns, trace.notes) == ("ragpulse", same.session_turns, ())
    assert trace.table.arrival_s.tolist() == same.table.arrival_s.tolist() == [0, 2, 4]
    for one, other, tokens in ((0, 1, 4), (0, 2, 7), (1, 2, 4)):
        assert shared_tokens(trace.table, one, other) == shared_tokens(same.table, one, other) == tokens


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"block_tokens": [4]}, r"2 hash_ids, and block_tokens \[4\]; give the tokens of each id"),
        ({"block_tokens": None}, "line 2: hash_ids without block_tokens; give the tokens of each id"),
    ],
)
def test_ragpulse_without_the_length_of_a_part_is_refused(wrong: dict[str, object], says: str, tmp_path: Path) -> None:
    lines = [FLAT, {**FLAT, **wrong}]
    with pytest.raises(InputError, match=says):
        load_trace(write(tmp_path, "flat.jsonl", "\n".join(map(json.dumps, lines))))
