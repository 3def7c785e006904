"""JSON lines that are read many at once: the same as one by one."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.workloads.trace_files import load_trace
from workloads.formats import mooncake
from workloads.formats.parsing import json_rows
from workloads.requests import RequestTable

LINES = 400
LAST_OF_A_BLOCK = 17


@pytest.fixture
def lines() -> list[dict[str, Any]]:
    """Prompts of blocks that some share, some without ids, one with an id beyond an int64."""
    rng = np.random.default_rng(0)
    found: list[dict[str, Any]] = []
    for number in range(LINES):
        ids = [0, int(rng.integers(3)), int(rng.integers(9)), 100 + number][: int(rng.integers(5))]
        prompt = 512 * len(ids) - int(rng.integers(512)) if ids else 7
        found.append({"timestamp": 3.5 * number, "input_length": prompt, "output_length": 9, "hash_ids": ids})
    del found[20]["hash_ids"]
    found[300] |= {"input_length": 512, "hash_ids": [2**70]}
    return found


def write(folder: Path, rows: list[Any]) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def same(one: RequestTable, other: RequestTable) -> None:
    for name, column in vars(one).items():
        np.testing.assert_array_equal(column, getattr(other, name), err_msg=name)


@pytest.mark.parametrize("wanted", [None, 1, LAST_OF_A_BLOCK, 333])
def test_lines_many_at_once_are_the_same_trace_as_one_by_one(
    tmp_path: Path, lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, wanted: int | None
) -> None:
    path = write(tmp_path, lines)
    monkeypatch.setattr(json_rows, "_BLOCK_BYTES", path.stat().st_size * LAST_OF_A_BLOCK // LINES)
    at_once = mooncake.read(path, None, wanted)
    monkeypatch.setattr(mooncake, "json_blocks", lambda *_: iter([None]))
    one_by_one = mooncake.read(path, None, wanted)
    same(at_once.table, one_by_one.table)
    assert (at_once.notes, at_once.block_size) == (one_by_one.notes, one_by_one.block_size)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ('{"timestamp": 1', "line 251, column 1: is not JSON"),
        ("", "line 251: .*empty"),
        ('{"timestamp": 1, "input_length": 5, "output_length": 0}', "line 251: .*output_length"),
        ('{"input_length": 5, "output_length": 1}', "line 251: 'timestamp' is missing"),
        ('{"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [1, 2]}', "line 251: 2 hash_ids for 5"),
        ('{"timestamp": 1, "input_length": 5, "output_length": 1}' * 2, "line 251"),
    ],
)
def test_a_wrong_line_far_into_a_file_is_told_by_its_number(
    tmp_path: Path, lines: list[Any], monkeypatch: pytest.MonkeyPatch, wrong: str, said: str
) -> None:
    path = write(tmp_path, [*lines[:250], wrong, *lines[250:]])
    monkeypatch.setattr(json_rows, "_BLOCK_BYTES", 2000)
    with pytest.raises(ValueError, match=said):
        load_trace(path)
    assert load_trace(write(tmp_path, lines[:250])).num_requests == 250


def test_sessions_that_begin_late_in_a_file_are_still_found(
    tmp_path: Path, lines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_rows, "_BLOCK_BYTES", 2000)
    first = {"timestamp": 9000, "input_length": 5, "output_length": 5, "session_id": "s"}
    turns = [first, {"input_length": 20, "output_length": 5, "session_id": "s", "delay": 2500}]
    table = load_trace(write(tmp_path, [*lines, *turns])).table
    assert (table.follows[-1], table.think_s[-1]) == (LINES, 2.5)
