"""A broken trace, config or model file is told in one line with its place."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.headcount.told import CAPACITY, SERVE, SIMULATE, assert_told

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROW = "2023-11-16 10:00:00,10,5\n"


def line(**fields: Any) -> str:
    return json.dumps({"timestamp": 0, "input_length": 5, "output_length": 5} | fields) + "\n"


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("", "the file is empty"),
        (HEADER, "has no rows; a trace needs at least one request"),
        ("TIMESTAMP,ContextTokens\n2023-11-16 10:00:00,10\n", "no column GeneratedTokens; the header has TIMESTAMP"),
        (HEADER + "2023-11-16 10:00:00,-10,5\n", "line 2: ContextTokens is '-10'; it must be a whole number"),
        (HEADER + "2023-11-16 10:00:00,nan,5\n", "line 2: ContextTokens is 'nan'"),
        (HEADER + "2023-13-16 10:00:00,10,5\n", "line 2: TIMESTAMP is '2023-13-16 10:00:00'; it must be a date"),
        (HEADER + "2023-11-16 10:00:00," + "9" * 10**6 + ",5\n", "line 2: ContextTokens is '999"),
        (HEADER + "2" * 10**6 + ",5,5\n", "line 2: TIMESTAMP is '222"),
        ("TIMESTAMP," + "x" * 10**6 + "\n1,2\n", "starts with 'TIMESTAMP,xxx"),
        (HEADER + "2023-11-16 10:00:00,200000,5\n", "1 of 1 prompts do not fit max_model_len 131,072"),
        ("x" * 10**6, "which no known trace format does"),
        ('10.0.0.5 - - [01/Nov/2026:09:00:00 +0000] "POST /v1 HTTP/1.1" 200 74 in=1782 out=243\n',
         r"For a log, give --log-pattern, such as --log-pattern 'in=(?P<prompt>\d+) out=(?P<output>\d+)'"),
        ('{"tokens": 3}\n', "Known formats: azure, bailian,"),
        (b"\x00\x01\xff\xfe" * 100, "not a text file"),
        (b"\x00" * 100, "not a text file"),
        ((HEADER + ROW * 9000).encode() + b"\xff\xfe", "line 9002: not a text file"),
        (line(input_length=-5), "line 1: input_length is -5; it must be a whole number of tokens, at least 1"),
        (line(timestamp=float("nan")), "line 1: timestamp is nan; it must be a number of milliseconds"),
        (line() + line(input_length=10**400), "line 2: input_length is 1000"),
        (line() + '{"input_length": ' + "9" * 10**5 + "}\n", "line 2: is not readable as JSON: it holds a number"),
        (line() + "[" * 10**5 + "\n", "line 2: is not readable as JSON: it is nested too deeply"),
        (line(input_length="y" * 10**5), "line 1: input_length is 'yyy"),
        (line(hash_ids=[1, 2]), "line 1: 2 hash_ids for 5 tokens"),
        (line(hash_ids="12"), "line 1: hash_ids is '12'; it must be a list"),
        ("{" + line(), "line 1, column 2: is not JSON"),
    ],
    ids=lambda value: (value if isinstance(value, str) else repr(value))[:40].strip(),
)  # fmt: skip
def test_a_broken_trace_is_told_by_file_and_line(
    headcount: Callable[..., Any], content: str | bytes, part: str, tmp_path: Path
) -> None:
    path = tmp_path / "trace"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    ran = headcount(*SIMULATE, "--workload", path, "--requests-out", tmp_path / "out.csv")
    assert_told(ran, part)
    assert ran.out == ""
    assert [entry.name for entry in tmp_path.iterdir()] == ["trace"]


@pytest.mark.parametrize("given", [("memory", "--gpu", "l4", "--model"), (*SIMULATE, "--workload")], ids=" ".join)
def test_a_link_that_leads_nowhere_is_told(
    headcount: Callable[..., Any], given: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    Path("dangling").symlink_to("nowhere")
    assert_told(headcount(*given, "loop"), "loop cannot be read: it is a loop of links")
    assert_told(headcount(*given, "./dangling"), "dangling cannot be read: no such file or directory")


@pytest.mark.parametrize(
    ("content", "part"),
    [(HEADER + ROW, "has no rate that could be scaled"), (HEADER + ROW + ROW, "arrive at one time"),
     (HEADER + ROW + "2023-11-16 10:00:01,200000,5\n", "has no rate that could be scaled")],
)  # fmt: skip
def test_a_trace_that_capacity_cannot_scale_is_told(
    headcount: Callable[..., Any], content: str, part: str, tmp_path: Path
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(content)
    assert_told(headcount(*CAPACITY, "--workload", path), part)


@pytest.mark.parametrize(
    "ask", [SIMULATE, CAPACITY, (*SIMULATE, "--autoscaler", "hpa")], ids=["simulate", "capacity", "autoscaling"]
)
def test_a_trace_of_which_few_prompts_do_not_fit_is_cut_and_said_to_be(
    headcount: Callable[..., Any], ask: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "trace.csv"
    rows = [f"2023-11-16 10:00:{second:02},{200_000 if second == 7 else 10},5\n" for second in range(50)]
    path.write_text(HEADER + "".join(rows))
    ran = headcount(*ask, "--workload", path)
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[1] == (
        "Not all the traffic asked for: 2 % of prompts are refused at max_model_len 131,072, the model's own limit; a "
        "model with a longer context would serve them whole"
    )


@pytest.mark.parametrize("load", [["--users", "5"], ["--rate", "5"], ["--concurrency", "5"], ["--think-time", "5s"]])
def test_a_trace_brings_its_own_arrivals(headcount: Callable[..., Any], load: list[str], tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + ROW)
    assert headcount(*SIMULATE, "--workload", path).code == 0
    ran = headcount(*SIMULATE, "--workload", path, *load)
    assert ran.code == 2
    assert "cannot" in ran.err
    assert load[0] in ran.err


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("c.yaml", "max-modle-len: 5", "no option 'max-modle-len'; did you mean 'max-model-len'?"),
        ("c.yaml", "zzz: x", "no option 'zzz'; known: adapter-skew, adapters, all2all-backend, api-server-count"),
        ("c.yaml", "a: [", ", line 2: is not readable as YAML: "),
        ("c.yaml", "a: \x01", "not readable"),
        ("c.yaml", "[" * 5000 + "]" * 5000, "has more than 50 levels within one another"),
        ("c.yaml", "", "it must hold option names with values"),
        ("c.yaml", "- 1", "it must hold option names with values"),
        ("c.yaml", b"\xff\xfe\xff", "not a text file in UTF-8"),
        ("c.toml", "a = ", "not readable as TOML: Invalid value"),
        ("c.yaml", "block-size: 0", "block-size: '0' is not a whole number above 0"),
        ("c.yaml", "block-size: -3", "block-size: '-3' is not a whole number above 0"),
        ("c.yaml", "block-size: true", "block-size: 'True' is not a value for it"),
        ("c.yaml", "block-size: null", "block-size: it has no value; give one, or leave it out"),
        ("c.yaml", "block-size: {a: 1}", "block-size: a table is not a value for it"),
        ("c.yaml", "environment: [null]", "environment: it is a list that holds nothing; give text or numbers"),
        ("c.yaml", "block-size: []", "block-size: it has no value; give one, or leave it out"),
        ("c.yaml", "model: 2024-01-01", "model: '2024-01-01' is not a value for it; give text (in quotes)"),
        ("c.yaml", "enforce-eager: maybe", "enforce-eager: 'maybe' is neither true nor false"),
        ("c.yaml", "json: 5", "json: '5' is neither true nor false"),
        ("c.yaml", "think-time: 0.5", "think-time: '0.5' is not a time; give a number with its unit"),
        ("c.yaml", "seed: -1", "seed: '-1' is not a whole number of at least 0"),
    ],
)
def test_a_broken_config_is_told_by_its_file(
    headcount: Callable[..., Any], name: str, content: str | bytes, part: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    ran = headcount(*SERVE, "--config", path)
    assert_told(ran, part)
    assert f"--config {path}" in ran.err


@pytest.mark.parametrize(
    ("content", "part"),
    [(b"{", "model.json, column 2: is not JSON"), (b"[]", "model.json: it is an empty list; it must be a table"),
     (b"{}", "config.json lacks 'num_hidden_layers'; add it"), (b"\xff\xfe\x00", "json, line 1: not a text file")],
)  # fmt: skip
def test_a_broken_model_config_is_told(
    headcount: Callable[..., Any], content: bytes, part: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(content)
    assert_told(headcount("memory", "--model", path, "--gpu", "l4"), part)
