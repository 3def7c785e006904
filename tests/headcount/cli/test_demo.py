"""The first command: an answer within seconds, that agrees with the questions it leads to."""

import os
import re
import subprocess
import sys
from pathlib import Path

import headcount as hc
from headcount.queries.demo import GPU, MODEL, demo


def run(folder: Path) -> str:
    command = [sys.executable, "-m", "headcount", "demo"]
    own = {**os.environ, "HEADCOUNT_CACHE_DIR": str(folder)}
    return subprocess.run(command, env=own, capture_output=True, text=True, check=True).stdout


def test_it_answers_without_compiling_the_simulation_core_and_explains_each_number(tmp_path: Path) -> None:
    shown = run(tmp_path)
    assert [path.name for path in tmp_path.rglob("simulator.*.kernel")] == []
    assert list(tmp_path.rglob("store.sqlite3")) == [], "nothing is simulated"
    figures = shown.partition("\n\n")[2].partition("\n\nUsers")[0]
    rows = [re.split(r" {2,}", line) for line in figures.splitlines() if line]
    assert len(rows) >= 10
    assert {len(row) for row in rows} == {3}, "a name, a number, what it means"
    assert all(re.search(r"\d", number) for _, number, _ in rows)


def test_its_memory_is_that_of_the_question_and_its_parts_add_up(tmp_path: Path) -> None:
    found = hc.memory(MODEL, GPU)
    assert demo().budget.kv_cache_tokens == found.budget.kv_cache_tokens
    total, weights, other, kv_cache = map(float, re.findall(r"([\d.]+) GiB", run(tmp_path)))
    assert abs(total - weights - other - kv_cache) <= 0.02
    assert f"{found.budget.kv_cache_tokens:,} tokens" in run(tmp_path)


def test_its_estimate_keeps_little_s_law_and_its_limits() -> None:
    found = demo()
    estimate = found.estimate
    assert estimate.ttft_s <= found.slo.ttft_s or estimate.tpot_s <= found.slo.tpot_s
    assert estimate.requests_per_s * found.think_time_s < estimate.size, "users think, or wait for an answer"
    assert estimate.in_flight < estimate.size
