"""ServeGen's files: requests are drawn from what they say of clients."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.workloads.trace_files import load_trace, refusal, write
from workloads.load import load_workload
from workloads.traces.trace import Trace

LENGTHS = {
    "input_tokens": "{39: 0.5, 41: 0.25, 80.5: 0.25}",
    "output_tokens": "{1: 0.1, 300: 0.9}",
    "reason_ratio": "{}",
}
STEADY = "".join(f"{600 * window},2.0,1.5,Gamma,0.4444,1.125\n" for window in range(36))
BUSY_LATER = "0,0,0,,0,0\n600,5,0.5,Weibull,2.1,0.2\n1200,0,0,,0,0\n"


def client(folder: Path, number: int, windows: str, lengths: object = None) -> Path:
    text = json.dumps({"0": LENGTHS} if lengths is None else lengths)
    write(folder, f"chunk-{number}-dataset.json", text)
    return write(folder, f"chunk-{number}-trace.csv", windows)


def test_requests_have_the_rates_the_variation_and_the_lengths_of_each_client(tmp_path: Path) -> None:
    client(tmp_path, 0, STEADY)
    client(tmp_path, 10, BUSY_LATER, {"0": LENGTHS, "600": LENGTHS | {"input_tokens": "{7: 1.0}"}})
    trace = load_trace(tmp_path)
    table = trace.table
    table.validate()
    assert trace.format == "servegen"
    assert (np.diff(table.arrival_s) >= 0).all()
    assert table.tenancy is not None
    assert [tenant.name for tenant in table.tenancy.tenants] == ["chunk-0", "chunk-10"]
    steady = table.tenancy.of == 0
    assert steady.sum() == pytest.approx(2.0 * 36 * 600, rel=0.03)
    gaps = np.diff(table.arrival_s[steady])
    assert gaps.std() / gaps.mean() == pytest.approx(1.5, rel=0.05)
    assert np.unique(table.prompt_tokens[steady], return_counts=True)[0].tolist() == [39, 41, 81]
    assert (table.prompt_tokens[steady] == 39).mean() == pytest.approx(0.5, abs=0.02)
    assert (table.output_tokens[steady] == 1).mean() == pytest.approx(0.1, abs=0.01)
    busy = table.arrival_s[~steady]
    assert len(busy) == pytest.approx(3000, abs=100)
    assert busy.min() > 599
    assert busy.max() < 1200
    assert set(table.prompt_tokens[~steady].tolist()) == {7}
    assert "drawn, not recorded" in trace.notes[0]


def test_a_pair_is_read_by_either_name_and_always_the_same(tmp_path: Path) -> None:
    path = client(tmp_path, 3, STEADY)
    first, second, folder = (
        load_trace(each).table for each in (path, path.with_name("chunk-3-dataset.json"), tmp_path)
    )
    for other in (second, folder):
        np.testing.assert_array_equal(first.arrival_s, other.arrival_s)
        np.testing.assert_array_equal(first.prompt_tokens, other.prompt_tokens)


@pytest.mark.parametrize("count", [1, 500, 3000])
def test_the_first_requests_are_those_of_the_whole(tmp_path: Path, count: int) -> None:
    """Also where one client's windows are longer than another's."""
    client(tmp_path, 0, STEADY)
    client(tmp_path, 1, "0,1,1,Gamma,1,1\n3600,3,1,Gamma,1,1\n")
    whole, found = load_trace(tmp_path), load_workload(tmp_path, num_requests=count)
    assert isinstance(found, Trace)
    assert found.num_requests == count
    np.testing.assert_array_equal(found.table.arrival_s, whole.table.arrival_s[:count])


def test_clients_and_windows_without_lengths_are_counted(tmp_path: Path) -> None:
    client(tmp_path, 0, STEADY)
    write(tmp_path, "chunk-1-trace.csv", STEADY)
    client(tmp_path, 2, "0,2,1,Gamma,1,1\n600,2,1,Gamma,1,1\n", {"0": {}, "600": LENGTHS})
    told = load_trace(tmp_path).notes[0]
    assert told == (
        "left out of the trace: 1 clients without dataset.json, 1,200 requests (expected) of windows without lengths"
    )


@pytest.mark.parametrize(
    ("windows", "lengths", "told"),
    [
        ("0,1,1,Gamma,1,1\n600,1,1,Gamma,1\n", None, "chunk-0-trace.csv, line 2: has 5 cells; a window has 6"),
        ("0,1,1,Gamma,1,1\n600,-1,1,Gamma,1,1\n", None, "chunk-0-trace.csv, line 2: the rate is '-1'; it must be"),
        ("0,1,1,Gamma,1,1\n600,nan,1,Gamma,1,1\n", None, "chunk-0-trace.csv, line 2: the rate is 'nan'"),
        ("600,1,1,Gamma,1,1\n0,1,1,Gamma,1,1\n", None, "chunk-0-trace.csv, line 2: begins at 0 s, not after"),
        ("0,0,0,,0,0\n", None, "no client sends a request"),
        ("0,1e9,1,Gamma,1,1\n", None, "has more than 10,000,000 rows"),
        (STEADY, {"x": LENGTHS}, "chunk-0-dataset.json: 'x' is no start"),
        (STEADY, {"0": LENGTHS | {"input_tokens": "{39: 0.5"}}, "chunk-0-dataset.json: '0'.input_tokens is '{39: 0.5'"),
        (STEADY, {"0": LENGTHS | {"input_tokens": "__import__('os')"}}, "it must be text such as '{39: 0.5, 40: 0.5}'"),
        (STEADY, {"0": LENGTHS | {"output_tokens": "{-5: 1.0}"}}, "holds a length or a share that is none"),
        (STEADY, {"0": LENGTHS | {"output_tokens": "{5: -1.0, 6: 2.0}"}}, "holds a length or a share that is none"),
    ],
)  # fmt: skip
def test_damage_is_told_with_its_place(tmp_path: Path, windows: str, lengths: object, told: str) -> None:
    assert told.replace("'0'.", "") in refusal(client(tmp_path, 0, windows, lengths)).replace("0.input", "input")


def test_a_client_s_file_alone_says_what_is_missing(tmp_path: Path) -> None:
    path = write(tmp_path, "chunk-0-trace.csv", STEADY)
    assert "chunk-0-dataset.json cannot be read: no such file" in refusal(path)
    assert "has no client with both" in refusal_of_folder(tmp_path)
    other = write(tmp_path, "mine.csv", STEADY)
    assert "ServeGen's files are called chunk-N-trace.csv and chunk-N-dataset.json" in refusal(other)


def refusal_of_folder(folder: Path) -> str:
    write(folder, "notes.json", json.dumps({"0": LENGTHS}))
    return refusal(folder)
