"""`headcount compare` under one number of users, and beside `headcount capacity`."""

import json
from pathlib import Path
from typing import Any

import pytest

import headcount as hc
from tests.headcount.queries.test_compare import QUICK


def test_latencies_are_those_of_the_users_that_are_asked_for() -> None:
    """Of every layout alike, whatever it serves; without --users each has its own load."""
    args: dict[str, Any] = {"max_num_seqs": [2, 8], "users": 10, **QUICK}
    asked = hc.compare("qwen3-0.6b", "h100-sxm", gpus=1, **args)
    assert [row["at_users_to_serve"]["in_flight"] > 0 for row in asked.rows()] == [True, True]
    for layout in asked.layouts:
        assert layout.under is not None and layout.row is not None and layout.row.safe_point is not None
        assert layout.under.size == 10 != layout.row.safe_point.size
        assert f"{100 * layout.under.attainment.mean:.4g}" in str(asked)
    assert "with 10 users each" in str(asked)
    assert asked.figures()["users"] == 10
    own = hc.compare("qwen3-0.6b", "h100-sxm", gpus=1, max_num_seqs=2, **QUICK)
    assert own.rows()[0]["at_users_to_serve"] is None


def test_users_that_are_asked_for_are_refused_beside_a_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    row = {"input_length": 100, "output_length": 10, "hash_ids": [0]}
    trace.write_text("".join(f"{json.dumps({'timestamp': 1000 * n, **row})}\n" for n in range(50)))
    with pytest.raises(ValueError, match="--users cannot be set for a trace"):
        hc.compare("qwen3-0.6b", "h100-sxm", gpus=1, workload=str(trace), users=10)


@pytest.mark.slow
def test_the_first_row_is_what_capacity_finds() -> None:
    """From few replications TP 2 leads; confirmed, TP 1 does."""
    (row,) = hc.capacity("llama-3.1-8b", "h100-sxm", gpus=[4]).rows()
    best = hc.compare("llama-3.1-8b", "h100-sxm", gpus=4, tensor_parallel_size=[1, 2, 4]).best
    assert best is not None and best.row is not None
    assert (best.row.tp, best.row.users_low, best.row.users) == (row["tp"], row["users_low"], row["users"])
