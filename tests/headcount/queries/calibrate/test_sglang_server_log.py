"""An SGLang server's log of its batches says what `simulate` says of the same batches."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from calibrate.readers import find_format, read_measured
from tests.headcount.conftest import Ran

BEGIN, STEP_S, EVERY = datetime(2026, 8, 27, 3, 45, 20), 0.05, 40
SERVER = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm")
LOAD = ("--rate", "4", "--num-requests", "600", "--input-len", "700", "--output-len", "150", "--length-spread", "0.6")


def logged(steps: list[dict[str, Any]], pages: int, rank: str = " TP0") -> str:
    """What SGLang writes of these batches, each of STEP_S: every prefill, every 40th decode."""
    lines, generated, since, decodes, seen = [], 0, BEGIN, 0, set[str]()
    for number, step in enumerate(steps, start=1):
        now, use = BEGIN + timedelta(seconds=STEP_S * number), 1 - step["free_blocks"] / pages
        state = f"#running-req: {step['running']}, ", f"#queue-req: {step['waiting']}"
        new = {request: tokens for request, tokens in step["scheduled"].items() if request not in seen}
        seen |= new.keys()
        if new:
            lines.append(
                f"[{now:%F %T}{rank}] Prefill batch, #new-seq: {len(new)}, #new-token: {sum(new.values())}, "
                f"#cached-token: 0, token usage: {use:.2f}, {state[0]}{state[1]}, #pending-token: 0, "
                "cuda graph: False, input throughput (token/s): 559.53"
            )
            continue
        generated, decodes = generated + len(step["scheduled"]), decodes + 1
        if decodes % EVERY == 0:
            rate = generated / (now - since).total_seconds()
            lines += [
                f"[{now:%F %T}{rank}] Decode batch, {state[0]}#token: {pages - step['free_blocks']}, token usage: "
                f"{use:.2f}, cuda graph: True, gen throughput (token/s): {rate:.2f}, {state[1]}",
                f'[{now:%F %T}] INFO:     127.0.0.1:40052 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
            ]
            generated, since = 0, now
    return "\n".join(lines) + "\n"


@pytest.fixture
def served(headcount: Callable[..., Ran], tmp_path: Path) -> tuple[dict[str, Any], Path]:
    """A simulated server of a small pool: its figures, and the log that SGLang would have written."""
    out, log = tmp_path / "steps.jsonl", tmp_path / "server.log"
    pool = ("--engine", "sglang", "--max-total-num-tokens", "20000", "--latency-model", "constant", "--step-s", STEP_S)
    ran = headcount("simulate", *SERVER, *pool, *LOAD, "--steps-out", out, "--json")
    assert ran.code == 0, ran.err
    steps = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    log.write_text(logged(steps, 20_000), encoding="utf-8")
    return json.loads(ran.out), log


def test_a_log_s_figures_are_those_of_the_batches(served: tuple[dict[str, Any], Path]) -> None:
    figures, log = served
    assert find_format(log) == "sglang_log"
    (run,) = read_measured(log)
    found = run.aggregates
    assert found["output_tokens_per_s"] == pytest.approx(figures["output_tokens_per_s"], rel=0.03)
    assert found["running_mean"] == pytest.approx(figures["running_mean"], rel=0.05)
    assert found["kv_usage_mean"] == pytest.approx(figures["kv_usage_mean"], rel=0.05)
    assert found["kv_usage_max"] == pytest.approx(figures["kv_usage_max"], rel=0.1)
    assert found["prefix_hit_rate"] == found["num_preemptions"] == 0
    assert run.load["num_requests"] == 600
    assert run.load["rate"] == pytest.approx(4, rel=0.1)
    assert run.load["input_len"] == pytest.approx(560, rel=0.05)
    assert run.load["output_len"] == pytest.approx(120, rel=0.05)


def test_a_log_is_read_and_checked_and_not_fitted(
    headcount: Callable[..., Ran], served: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    log = served[1]
    ran = headcount("calibrate", "read", log)
    assert ran.code == 0, ran.err
    assert "mean running " in ran.out and "largest KV use " in ran.out
    assert "no request is logged: there are no latencies, so it can be checked, not fitted" in ran.out
    pool = ("--max-total-num-tokens", "20000", "--latency-model", "constant", "--step-s", STEP_S)
    ran = headcount("calibrate", "check", log, *SERVER, *pool, "--json")
    assert ran.code == 0, ran.err
    rows = json.loads(ran.out)["runs"][0]["figures"]
    assert abs(rows["output_tokens_per_s"]["error_percent"]) < 5
    assert abs(rows["running_mean"]["error_percent"]) < 20
    assert abs(rows["kv_usage_mean"]["error_percent"]) < 20
    ran = headcount("calibrate", "fit", log, *SERVER, "--out", tmp_path / "profile.toml")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "server.log has neither a TTFT nor a TPOT; leave it out" in ran.err


def test_ranks_add_up_and_older_lines_retractions_and_hybrid_pools_are_read(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "(Engine pid=35) [2025-10-31 03:45:20 DP0 TP0] Decode batch [51341], #running-req: 30, #token: 1, token usage: "
        "0.60, cuda graph: True, gen throughput (token/s): 100.0, #queue-req: 1,\n"
        "[2025-10-31 03:45:21 DP0 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 3, "
        "#new_tokens_gained: 9\n"
        "[2025-10-31 03:45:30 DP0 TP0] Decode batch. #running-req: 20, #token: 1, token usage: 0.40, gen throughput "
        "(token/s): 300.0, #queue-req: 3\n"
        "[2025-10-31 03:45:20 DP1 TP1] Decode batch, #running-req: 10, #full token: 5, full token usage: 0.20, mamba "
        "usage: 0.9, gen throughput (token/s): 7.0, #queue-req: 0\n"
        "[2025-10-31 03:45:30.250 DP1 TP1] Decode batch, #running-req: 10, #full token: 5, full token usage: 0.20, "
        "gen throughput (token/s): 50.0, #queue-req: 0\n"
        "[2025-10-31 03:45:30 DP1 TP1] Prefill batch, #new-seq: 5, #new-token: 300, #cached-token: 700, full token "
        "usage: 0.2, #running-req: 10, #queue-req: 0\n",
        encoding="utf-8",
    )
    (run,) = read_measured(log)
    assert run.aggregates == pytest.approx(
        {
            "running_mean": 35, "waiting_mean": 2, "kv_usage_mean": 0.35, "kv_usage_max": 0.6,
            "output_tokens_per_s": 350 + 5 / 10, "prefix_hit_rate": 0.7, "num_preemptions": 3,
        }
    )  # fmt: skip
    assert run.load == {"num_requests": 5}  # shared prefixes are not in the log, so it is no load


@pytest.mark.slow
def test_the_lines_are_those_that_sglang_writes(sglang_python: Path) -> None:
    """Its metrics reporter needs a GPU to run, so its source is asked."""
    folder = next(sglang_python.parents[1].glob("lib/python3*/site-packages/sglang/srt"))
    source = (folder / "managers/scheduler_components/metrics_reporter.py").read_text(encoding="utf-8")
    for part in (
        'f"Prefill batch{iter_msg}, "', 'f"#new-seq: {', 'f"#new-token: {', 'f"#cached-token: {', 'f"#queue-req: {',
        'f"Decode batch{iter_msg}, #running-req: {', 'f"gen throughput (token/s): {',
    ):  # fmt: skip
        assert part in source, part
    scheduler = (folder / "managers/scheduler.py").read_text(encoding="utf-8")
    assert '"KV cache pool is full. Retract requests. "' in scheduler and 'f"#retracted_reqs: {' in scheduler
