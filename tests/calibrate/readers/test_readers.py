"""Results of other tools say the same as they were told."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibrate.check.run_figures import differences, request_figures
from calibrate.measured_run import REQUEST_COLUMNS, MeasuredRun
from calibrate.readers import READERS, find_format, read_file, read_measured, read_recordings, reader
from files.names import UnknownNameError
from tests.calibrate.readers.one_run import RUN, only, written
from tests.calibrate.readers.result_writers import (
    ALL,
    Run,
    Sent,
    Written,
    finished,
    sglang_result,
    vllm_result,
    write_vllm,
)

WAYS = pytest.mark.parametrize("way", ALL.values(), ids=ALL)

sent_requests = st.builds(
    Sent,
    arrival_us=st.integers(0, 10**9),
    prompt_tokens=st.integers(1, 10**6),
    ttft_us=st.integers(1, 10**8),
    gaps_us=st.lists(st.integers(0, 10**7), max_size=6).map(tuple),
    session=st.integers(0, 3),
    cached_tokens=st.integers(0, 100),
    has_failed=st.booleans(),
)
runs = st.lists(sent_requests, min_size=1, max_size=6).filter(lambda run: any(not sent.has_failed for sent in run))


@WAYS
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sent=runs)
def test_a_run_written_and_read_back_has_the_same_requests(way: Written, tmp_path: Path, sent: Run) -> None:
    run = only(way.write(tmp_path / way.name, sent))
    table, order = run.requests, list(range(len(finished(sent))))
    assert table is not None
    assert list(table) == list(REQUEST_COLUMNS)
    done = finished(sent)
    if "arrival_s" not in way.lacks:
        order.sort(key=lambda row: done[row].arrival_us)
    first_us = min(one.arrival_us for one in sent)
    expected = {
        "arrival_s": [(done[row].arrival_us - first_us) / 1e6 for row in order],
        "prompt_tokens": [done[row].prompt_tokens for row in order],
        "output_tokens": [done[row].output_tokens for row in order],
        "ttft_s": [done[row].ttft_us / 1e6 for row in order],
        "e2e_s": [done[row].e2e_us / 1e6 for row in order],
        "cached_tokens": [done[row].cached_tokens for row in order],
    }
    for name, values in expected.items():
        if name in way.lacks:
            assert table[name].isna().all()
        else:
            # A float of seconds since 1970 has steps of 0.24 µs.
            np.testing.assert_allclose(table[name], values, atol=2e-6, rtol=0)
    same_session = [[done[a].session == done[b].session for a in order] for b in order]
    numbers = table["session"].to_numpy()
    found = (numbers[:, None] == numbers[None, :]).tolist()
    assert found == (np.eye(len(order), dtype=bool).tolist() if "session" in way.lacks else same_session)
    if way.has_gaps and any(one.gaps_us for one in done):
        assert run.itl_s is not None
        for row, gaps in zip(order, run.itl_s, strict=True):
            np.testing.assert_allclose(gaps, np.array(done[row].gaps_us) / 1e6, atol=2e-6)
    else:
        assert run.itl_s is None
    failed = len(sent) - len(done)
    assert dict(run.excluded) == ({"failed": failed} if failed else {})


@WAYS
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sent=runs)
def test_latencies_from_the_requests_are_the_tool_s_own(way: Written, tmp_path: Path, sent: Run) -> None:
    run = only(way.write(tmp_path / way.name, sent))
    rates = {"duration_s", "requests_per_s", "output_tokens_per_s"}  # a tool counts its own wait for the last answer
    wrong = [found for found in differences(run, 1e-3) if found.name not in rates]
    assert not [found for found in wrong if abs(found.here - found.tool) > 2e-6]  # a wall clock's rounding


@WAYS
def test_each_format_is_known_by_its_content_alone(way: Written, tmp_path: Path) -> None:
    path = way.write(tmp_path / "file", RUN)
    assert find_format(path) == way.format
    assert [name for name in READERS.names() if name == way.format]


@WAYS
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused_with_its_path(way: Written, tmp_path: Path, data: Any) -> None:
    path = way.write(tmp_path / way.name, RUN)
    if path.suffix == ".gz":
        raw = bytearray(path.read_bytes())
        raw[data.draw(st.integers(2, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(raw)
    else:
        lines = path.read_text(encoding="utf-8")
        document = json.loads(lines.splitlines()[0]) if path.suffix == ".jsonl" else json.loads(lines)
        junk = st.sampled_from(
            [None, [], {}, "x", -1, 1e308, True, [[]], {"a": 1}, float("nan"), float("inf"), 10**400]
        )
        path.write_text(json.dumps(_with_junk(document, data, junk)), encoding="utf-8")
    try:
        found = read_file(path, way.format)
    except ValueError as error:
        assert str(path) in str(error)
        return
    for run in found:
        assert isinstance(run, MeasuredRun)
        request_figures(run)
        if run.requests is not None:
            assert (run.requests["output_tokens"].dropna() > 0).all()
            assert not (run.requests["e2e_s"] < run.requests["ttft_s"] - 1e-5).any()


def _with_junk(value: Any, data: Any, junk: Any) -> Any:
    """The document with one place, anywhere in it, replaced."""
    if isinstance(value, dict) and value and data.draw(st.integers(0, 5)):
        name = data.draw(st.sampled_from(sorted(value)))
        return value | {name: _with_junk(value[name], data, junk)}
    if isinstance(value, list) and value and data.draw(st.integers(0, 5)):
        place = data.draw(st.integers(0, len(value) - 1))
        return [*value[:place], _with_junk(value[place], data, junk), *value[place + 1 :]]
    return data.draw(junk)


@WAYS
def test_a_file_that_was_cut_off_says_so(way: Written, tmp_path: Path) -> None:
    path = way.write(tmp_path / way.name, RUN)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match="cut off"):
        read_measured(path)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read"),
        (b"", "the file is empty"),
        (b" \n\n", "the file is empty"),
        (bytes(random.Random(1).randbytes(500)), "not a text file in UTF-8"),
        (b"\x1f\x8b\x08\x00junk", "gzip data is cut off"),
        (b"[]", "an empty list"),
        (b"{}", "its JSON object is empty"),
        (b"hello\nworld", "starts with 'hello', which no known format does; known formats: aiperf"),
        (b'{"a": 1, "b": 2}', "its JSON has the keys a, b"),
        (b'{"a": [1, 2', "is not JSON: it is empty or cut off"),
        (b'{"a": 1,, }', "is not JSON"),
        (b"[" * 100_000, "starts with"),
        (b'{"a": ' + b"1" * 5000 + b"}", "a number of thousands of digits"),
    ],
)
def test_what_is_no_result_is_told(content: bytes | None, told: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=told) as refused:
        read_measured(path)
    assert str(path) in str(refused.value)


def test_a_line_that_is_no_object_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(sglang_result(RUN, has_times=True)) + "\n\n7\n", "r.jsonl")
    with pytest.raises(ValueError, match="line 3 is 7; it must be a table"):
        read_measured(path)


def test_a_run_whose_requests_all_failed_is_refused(tmp_path: Path) -> None:
    path = write_vllm(tmp_path / "r.json", [replace(sent, has_failed=True) for sent in RUN])
    with pytest.raises(ValueError, match=r"no request of it can be used \(4 failed\)"):
        read_measured(path)


def test_a_run_that_failed_stays_beside_one_that_did_not(tmp_path: Path) -> None:
    failed = vllm_result([replace(sent, has_failed=True) for sent in RUN])
    path = written(tmp_path, json.dumps(failed) + "\n" + json.dumps(vllm_result(RUN)))
    counts = [len(run.requests) for run in read_measured(path) if run.requests is not None]
    assert counts == [0, 3]


# Finding readers


def test_an_unknown_format_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'vllm_bench'"):
        read_measured(write_vllm(tmp_path / "r.json", RUN), "vllm_bensh")


def test_a_reader_outside_the_package_is_given_by_module_and_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
from calibrate.measured_run import MeasuredRun

class Own:
    LOOKS_LIKE = "anything"
    recognizes = staticmethod(lambda path, head: True)
    read = staticmethod(lambda path: [MeasuredRun(source=path, tool="own", aggregates={"ttft_s.mean": 1.0})])
"""
    (tmp_path / "own_reader.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    path = written(tmp_path, "anything at all", "file")
    assert read_measured(path, "own_reader:Own")[0].tool == "own"
    for wrong, told in (
        ("own_reader:Missing", "Missing"),
        ("no_module:Name", "no_module"),
        ("json:JSONDecoder", "read"),
    ):
        with pytest.raises(UnknownNameError, match=told):
            reader(wrong)


def test_steps_are_not_taken_for_requests(tmp_path: Path) -> None:
    path = write_vllm(tmp_path / "r.json", RUN)
    with pytest.raises(ValueError, match="holds requests, not engine steps"):
        read_recordings(path)
