"""`headcount calibrate read`: what a file holds, said and written down."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

RESULT = {
    "tokenizer_id": "m", "model_id": "m", "num_prompts": 3, "request_rate": "inf", "burstiness": 1.0,
    "max_concurrency": 2, "duration": 0.5, "completed": 2, "failed": 1, "total_input_tokens": 30,
    "total_output_tokens": 6, "request_throughput": 4.0, "output_throughput": 12.0, "mean_ttft_ms": 25.0,
    "input_lens": [10, 20, 30], "output_lens": [2, 4, 0], "ttfts": [0.02, 0.03, 0.0],
    "itls": [[0.01], [0.01, 0.01, 0.01], []], "latencies": [0.03, 0.06, 0.0], "start_times": [100.0, 100.1, 100.2],
    "errors": ["", "", "Bad Request"],
}  # fmt: skip


def put(folder: Path, name: str = "result.json", **changes: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps(RESULT | changes), encoding="utf-8")
    return path


def test_a_result_is_said_with_what_was_left_out(headcount: Callable[..., Any], tmp_path: Path) -> None:
    ran = headcount("calibrate", "read", put(tmp_path))
    assert ran.code == 0
    for told in ("result.json: vllm_bench", "concurrency 2, rate inf", "requests    2; left out: 1 failed", "TPOT"):
        assert told in ran.out
    assert "by the tool" not in "".join(line for line in ran.out.splitlines() if "ttft" in line)


def test_a_figure_that_the_requests_do_not_give_is_said(headcount: Callable[..., Any], tmp_path: Path) -> None:
    ran = headcount("calibrate", "read", put(tmp_path, mean_ttft_ms=30.0))
    assert "ttft_s.mean: 0.025 from the requests, 0.03 by the tool (-16.7%)" in ran.out


def test_a_terminal_obeys_nothing_that_a_file_holds(headcount: Callable[..., Any], tmp_path: Path) -> None:
    ran = headcount("calibrate", "read", put(tmp_path, "n\x1b[31m.json", model_id="\x1b]0;x\x07m\n  requests    5000"))
    assert ran.code == 0
    assert all(char.isprintable() or char == "\n" for char in ran.out)
    assert "\n  requests    5000" not in ran.out


def test_json_holds_every_file_and_run(headcount: Callable[..., Any], tmp_path: Path) -> None:
    ran = headcount("calibrate", "read", put(tmp_path), put(tmp_path, "other.json", mean_ttft_ms=30.0), "--json")
    first, second = json.loads(ran.out)["files"]
    (run,) = first["runs"]
    assert (first["format"], run["num_requests"], run["excluded"]) == ("vllm_bench", 2, {"failed": 1})
    assert run["load"]["rate"] == "inf"
    assert run["ttft_s"]["mean"] == pytest.approx(0.025)
    assert run["tpot_s"]["p50"] == pytest.approx(0.01)
    assert "ttft_s.mean" not in [found["name"] for found in run["differences"]]
    assert "ttft_s.mean" in [found["name"] for found in second["runs"][0]["differences"]]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_all_requests_can_be_written(headcount: Callable[..., Any], suffix: str, tmp_path: Path) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    out = tmp_path / f"requests{suffix}"
    ran = headcount("calibrate", "read", put(tmp_path), put(tmp_path, "b.json"), "--out", out)
    assert (ran.code, ran.err) == (0, f"wrote 4 requests to {out}\n")
    table = pd.read_csv(out) if suffix == ".csv" else pd.read_parquet(out)
    assert list(table["ttft_s"]) == [0.02, 0.03] * 2
    assert table["path"].nunique() == 2


def test_two_snapshots_bracket_a_run(headcount: Callable[..., Any], tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("before", "after")]
    for path, count in zip(paths, (10, 30), strict=True):
        labels = '{model_name="m"}'
        path.write_text(
            f"vllm:time_to_first_token_seconds_count{labels} {count}\n"
            f"vllm:time_to_first_token_seconds_sum{labels} {count**2 / 1000}\n",
            encoding="utf-8",
        )
    ran = headcount("calibrate", "read", paths[1], "--before", paths[0], "--json")
    (run,) = json.loads(ran.out)["files"][0]["runs"]
    assert run["tool_figures"] == pytest.approx({"ttft_s.count": 20, "ttft_s.mean": 0.04})
    ran = headcount("calibrate", "read", paths[1], paths[1], "--before", paths[0])
    assert (ran.code, "not with 2 files" in ran.err) == (2, True)


def test_a_snapshot_says_what_the_server_was_doing(headcount: Callable[..., Any], tmp_path: Path) -> None:
    text = "".join(
        f'vllm:{name}{{engine="0",model_name="m"}} {value}\n'
        for name, value in [("num_requests_running", 7.0), ("num_requests_waiting", 3.0), ("kv_cache_usage_perc", 0.25)]
    )
    (tmp_path / "metrics.txt").write_text(text, encoding="utf-8")
    ran = headcount("calibrate", "read", tmp_path / "metrics.txt")
    assert "server      running 7, waiting 3, KV use 0.25" in ran.out


@pytest.mark.parametrize(
    "command",
    ["read", "fit --out profile.toml --model llama-3.1-8b --gpu l40s", "check --model llama-3.1-8b --gpu l40s"],
)
def test_a_server_s_address_is_no_file(headcount: Callable[..., Any], command: str) -> None:
    ran = headcount("calibrate", *command.split(), "http://localhost:8000/metrics")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "'headcount calibrate record --url http://localhost:8000/metrics --out FOLDER'" in ran.err


def test_a_log_of_iterations_is_said(headcount: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(
        "INFO 11-21 23:56:26 [loggers.py:199] Engine 000: Iteration(0): 1 context requests, 100 context tokens, 3 "
        "generation requests, 3 generation tokens, iteration elapsed time: 14.84 ms, GPU KV cache usage: 0.0%\n",
        encoding="utf-8",
    )
    ran = headcount("calibrate", "read", path)
    assert (ran.code, "steps       1" in ran.out, "14.8 ms" in ran.out) == (0, True, True)
    ran = headcount("calibrate", "read", path, "--json")
    (found,) = json.loads(ran.out)["files"][0]["recordings"]
    assert found["num_steps"] == 1
    assert "decode_context" in found["unknown"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["missing.json"], "missing.json cannot be read: no such file"),
        (["result.json", "--format", "vllm"], "did you mean 'vllm_bench'"),
        (["result.json", "--format", "guidellm"], "it holds no run"),
        (["result.json", "--out", "requests.xlsx"], "must end in .csv or .parquet"),
        (["result.json", "--out", "nowhere/requests.csv"], "--out nowhere/requests.csv: there is no folder "),
        (["plain.json", "--out", "requests.csv"], "no file given holds requests"),
        ([], "Missing argument"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(
    headcount: Callable[..., Any], arguments: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path)
    plain = {name: value for name, value in RESULT.items() if not isinstance(value, list)}
    (tmp_path / "plain.json").write_text(json.dumps(plain), encoding="utf-8")
    ran = headcount("calibrate", "read", *arguments)
    assert (ran.code, ran.err.count("\n"), ran.out) == (2, 1, "")
    assert told in ran.err
    assert not (tmp_path / "requests.csv").exists()


@pytest.mark.parametrize("value", ["a", None, float("nan")])
@pytest.mark.parametrize(
    ("array", "reason"),
    [
        ("ttfts", "no time to first token"),
        ("input_lens", "no number of prompt tokens"),
        ("latencies", "no end to end time"),
        ("start_times", "no time of sending"),
    ],
)
def test_an_array_without_a_number_leaves_no_request(
    headcount: Callable[..., Any], array: str, reason: str, value: Any, tmp_path: Path
) -> None:
    ran = headcount("calibrate", "read", put(tmp_path, **{array: [value] * 3}))
    assert (ran.code, ran.err.count("\n"), ran.out) == (2, 1, "")
    assert "result.json: no request of it can be used" in ran.err
    assert f"2 {reason}" in ran.err


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"input_lens": {"a": 1}}, "input_lens is a table; it must be a list or nothing"),
        ({"itls": "none"}, "itls is 'none'; it must be a list or nothing"),
        ({"itls": [3, 3, 3]}, "2 gaps that are not a list"),
        ({"duration": "abc"}, "duration is 'abc'; it must be a number or nothing"),
        ({"mean_ttft_ms": True}, "mean_ttft_ms is true; it must be a number"),
        ({"duration": -5}, "duration_s is -5, which is impossible"),
        ({"duration": 1e308}, "duration_s is 1e+308, which is impossible; it must be at most 1e+06"),
        ({"mean_ttft_ms": 1e33}, "ttft_s.mean is 1e+30, which is impossible; it must be at most 1e+06"),
        ({"mean_ttft_ms": float("inf")}, "ttft_s.mean is inf, which is impossible"),
        ({"total_input_tokens": 1e14}, "input_len is 5e+13 tokens per request, which is impossible"),
        ({"ttfts": [1e30] * 3}, "2 above 1,000,000 s"),
        ({"itls": [[1e308, 1e308]] * 3}, "2 above 1,000,000 s"),
        ({"start_times": [1e308] * 3}, "2 a time of sending that no clock tells"),
        ({"output_lens": [1e30] * 3}, "2 above 1,000,000,000 tokens"),
    ],
)
@pytest.mark.parametrize("command", [("read",), ("check", "--model", "llama-3.1-8b", "--gpu", "h100-sxm")])
def test_a_field_that_cannot_be_is_told_with_its_file(
    headcount: Callable[..., Any], command: tuple[str, ...], changes: dict[str, Any], told: str, tmp_path: Path
) -> None:
    ran = headcount("calibrate", *command, put(tmp_path, **changes))
    assert (ran.code, ran.err.count("\n"), ran.out) == (2, 1, "")
    assert "result.json: " in ran.err
    assert told in ran.err


@pytest.mark.parametrize(("duration_s", "is_clock"), [(0.5, True), (0.01, False)])
def test_a_shorter_clock_is_not_explained_by_a_longer_one(
    headcount: Callable[..., Any], duration_s: float, is_clock: bool, tmp_path: Path
) -> None:
    ran = headcount("calibrate", "read", put(tmp_path, duration=duration_s, request_throughput=2 / duration_s))
    told = [line for line in ran.out.splitlines() if line.strip().startswith(("duration_s", "requests_per_s"))]
    assert len(told) == 2
    assert all(("clock runs from before" in line) == is_clock for line in told)


def test_a_paste_is_read_from_standard_input(headcount: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    table = "Slow:\n| concurrency | mean TTFT (ms) |\n|---|---|\n| 8 | 41.5 |\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(table.encode())))
    ran = headcount("calibrate", "read", "-", "--json")
    assert (ran.code, ran.err) == (0, "")
    (file,) = json.loads(ran.out)["files"]
    assert (file["path"], file["runs"][0]["tool_figures"]) == ("-", {"ttft_s.mean": pytest.approx(0.0415)})
