"""`headcount workload convert`: the file, and what is said of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.trace_files import AZURE, load_trace, mooncake, write, write_lines

Run = Callable[..., Any]


@pytest.mark.slow
def test_a_trace_is_written_for_vllm_with_the_command_that_replays_it(headcount: Run, tmp_path: Path) -> None:
    out = tmp_path / "replay.jsonl"
    ran = headcount("workload", "convert", write(tmp_path, "a.csv", AZURE), out, "--to", "vllm", "--block-size", "256")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.splitlines() == [
        f"wrote 3 requests to {out} (mooncake)",
        f"replay: vllm bench serve --dataset-name timed_trace --dataset-path {out} --num-prompts 3 "
        "--timed-trace-chunk-hash-size 256 --timed-trace-sec-multiplier 0.001 --ignore-eos",
    ]
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["timestamp"] for line in lines] == [0, 2500, 60_100]
    assert [len(line["hash_ids"]) for line in lines] == [2, 16, 1]


def test_what_a_format_cannot_hold_is_told_by_name(headcount: Run, tmp_path: Path) -> None:
    lines = [mooncake(0, 600, 9, [1, 2], session_id="a"), mooncake(5, 700, 9, [1, 3], session_id="a", delay=1000)]
    ran = headcount("workload", "convert", write_lines(tmp_path, *lines), tmp_path / "out.csv")
    assert [line.split(": ")[1:3] for line in ran.err.splitlines()[1:]] == [
        ["not held by azure", "sessions"],
        ["not held by azure", "content"],
    ]
    assert (tmp_path / "out.csv").read_text().endswith("\n2000-01-01 00:00:01.0000000,700,9\n")


def test_a_population_and_an_unknown_format_are_refused_before_anything_is_written(
    headcount: Run, tmp_path: Path
) -> None:
    population = write(tmp_path, "p.toml", "system_prompt=1\nturns=1\nuser_tokens=1\noutput_tokens=1\nthink_time_s=1\n")
    ran = headcount("workload", "convert", population, tmp_path / "out.csv")
    assert (ran.code, (tmp_path / "out.csv").exists()) == (2, False)
    assert "is a population, not a trace" in ran.err
    ran = headcount("workload", "convert", population, tmp_path / "out.txt")
    assert "no trace format ends so; end it in .csv, .jsonl, .parquet, or give --to" in ran.err


def test_an_output_that_is_the_input_is_refused(headcount: Run, tmp_path: Path) -> None:
    trace = write(tmp_path, "a.csv", AZURE)
    ran = headcount("workload", "convert", trace, trace)
    assert ran.code == 2
    assert trace.read_text() == AZURE.replace("\r\n", "\n")


def test_sessions_are_kept_for_aiperf_and_in_parquet(headcount: Run, tmp_path: Path) -> None:
    lines = [
        mooncake(0, 1024, 512, [1, 2], session_id="a"),
        mooncake(5, 2048, 9, [1, 2, 3, 4], session_id="a", delay=7),
    ]
    trace = write_lines(tmp_path, *lines)
    ran = headcount("workload", "convert", trace, tmp_path / "a.jsonl", "--to", "aiperf")
    assert [line.split(":")[0] for line in ran.err.splitlines()] == [
        f"wrote 2 requests to {tmp_path / 'a.jsonl'} (aiperf)",
        "replay",
    ]
    first, second = (json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines())
    assert (first["timestamp"], second["delay"], "timestamp" in second) == (0, 7, False)
    assert first["session_id"] == second["session_id"]
    assert second["hash_ids"][:2] == first["hash_ids"]
    assert second["context_mode"] == "message_array_with_responses"
    assert headcount("workload", "convert", trace, tmp_path / "a.parquet").code == 0
    again = load_trace(tmp_path / "a.parquet").table
    assert (again.follows.tolist(), again.think_s.tolist()) == ([-1, 0], [0, 0.007])
