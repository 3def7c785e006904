"""`headcount workload generate`: a file that is a trace again."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.trace_files import AZURE, load_trace, write

Run = Callable[..., Any]


def test_users_of_a_preset_are_written_for_vllm(headcount: Run, tmp_path: Path) -> None:
    out = tmp_path / "users.jsonl"
    ran = headcount("workload", "generate", "chat", out, "--users", 20, "--duration", "30min", "--to", "vllm")
    assert (ran.code, ran.out) == (0, "")
    written, *lost, replay = ran.err.splitlines()
    table = load_trace(out).table
    assert written == f"wrote {table.num_requests:,} requests to {out} (mooncake)"
    told = [text.removeprefix("headcount: not held by mooncake: ") for text in lost]
    assert [text.partition(":")[0] for text in told] == ["sessions", "times", "content within a block"]
    assert told[0].startswith("sessions: a turn comes a think time after")
    assert re.fullmatch(r"times: [\d,]+ of [\d,]+ are rounded to 1 ns", told[1])
    assert replay.startswith("replay: vllm bench serve --dataset-name timed_trace")
    assert table.arrival_s.max() <= 1800


def test_the_same_seed_writes_the_same_file(headcount: Run, tmp_path: Path) -> None:
    texts = []
    for name, seed in (("a.csv", 1), ("b.csv", 1), ("c.csv", 2)):
        headcount("workload", "generate", "chat", tmp_path / name, "--rate", 3, "--num-requests", 100, "--seed", seed)
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].count("\n") == 101


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "give --users with --duration, or --rate with --num-requests"),
        (("--users", 5, "--rate", 1), "give --users with --duration, or --rate with --num-requests"),
        (("--users", 5), "--users needs --duration, such as 1h"),
        (("--users", 5, "--duration", "1h", "--arrivals", "poisson"), "--arrivals go with --rate"),
        (("--rate", 5, "--duration", "1h"), "--duration goes with --users"),
        (("--rate", 0), "the rate is 0.0 requests/s; it must be from 1e-09"),
    ],
)
def test_what_does_not_go_together_is_refused(
    headcount: Run, tmp_path: Path, options: tuple[Any, ...], message: str
) -> None:
    ran = headcount("workload", "generate", "chat", tmp_path / "out.csv", *options)
    assert (ran.code, (tmp_path / "out.csv").exists()) == (2, False)
    assert message in ran.err


def test_a_trace_is_not_drawn_from(headcount: Run, tmp_path: Path) -> None:
    ran = headcount("workload", "generate", write(tmp_path, "a.csv", AZURE), tmp_path / "b.csv", "--rate", 1)
    assert "is a trace, not a population; write it with 'headcount workload convert'" in ran.err


def test_lines_are_json_with_ids(headcount: Run, tmp_path: Path) -> None:
    out = tmp_path / "o.jsonl"
    headcount("workload", "generate", "chat", out, "--rate", 3, "--num-requests", 50, "--block-size", 128)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert all(len(line["hash_ids"]) == -(-line["input_length"] // 128) for line in lines)
    assert len({line["hash_ids"][0] for line in lines}) == 1


def test_users_without_think_time_send_at_a_rate(headcount: Run, tmp_path: Path) -> None:
    out = tmp_path / "o.csv"
    assert headcount("workload", "generate", "batch", out, "--rate", 3, "--num-requests", 50).code == 0
    assert load_trace(out).num_requests == 50
