"""`headcount plan --pools`: engines that compute prompts apart from answers, beside servers that do both."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import headcount as hc
from simulator.fleet.pool_sizes import PoolChoices

GIVEN: dict[str, Any] = {
    "gpu": "h100-sxm", "users": 120, "tensor_parallel_size": 1, "ttft_s": 2.0, "replications": 2, "store": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("prefill,decode", {"prefill": (), "decode": ()}),
        ("decode=TP1/tp2, prefill=tp4", {"decode": (1, 2), "prefill": (4,)}),
    ],
)
def test_pools_to_choose_from_are_read(text: str, found: dict[str, tuple[int, ...]]) -> None:
    assert PoolChoices().read(text) == found
    assert PoolChoices().read(found) == found


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"pools": "prefill=2"}, "'prefill=2' lacks a pool; give both: prefill,decode"),
        ({"pools": "prefill=2x,decode"}, "'2x' is no tensor-parallel size; give such as tp2"),
        ({"pools": "prefil,decode"}, "no pool 'prefil'; did you mean 'prefill'?"),
        ({"pools": "prefill,decode", "spare": 1}, "--spare is not searched for prefill and decode apart"),
        ({"kv_transfer_rate": 5.0}, "--kv-transfer-rate lies between two pools; give --pools prefill,decode"),
        ({"pools": "prefill,decode", "vllm_version": "0.33.0"}, "simulated by the rules of vLLM 0.32 alone"),
        ({"pools": "prefill,decode", "engine": "sglang"}, "prefill and decode apart is not simulated with SGLang"),
    ],
)
def test_what_cannot_be_is_one_clear_error(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        hc.plan("llama-3.1-8b", **GIVEN, **more)


@pytest.mark.slow
def test_both_ways_stand_in_the_table_with_the_lines_that_start_each_pool(tmp_path: Path) -> None:
    answer = hc.plan("llama-3.1-8b", pools={"prefill": [1], "decode": [1]}, tpot_s=0.011, explain=True, **GIVEN)
    found = json.loads(json.dumps(answer.to_json()))
    both, apart = sorted(found["fleets"], key=lambda row: row["prefill_tp"] is not None)
    assert both["prefill_servers"] is None
    prefill, decode = apart["prefill_servers"], apart["servers"] - apart["prefill_servers"]
    assert f"{prefill} × TP1 prefill + {decode} × TP1 decode" in str(answer)
    assert apart["gpus"] == apart["servers"]
    assert min(row["users_low"] for row in (both, apart)) >= 120
    assert '"kv_role": "kv_producer"' in apart["prefill_serve_line"]
    assert '"kv_role": "kv_consumer"' in apart["serve_line"]
    assert f"h100-sxm, prefill and decode apart: {apart['gpus']} GPU" in str(answer)
    assert found["best"] == found["fleets"][0]
    assert found["best"]["usd_per_month"] == min(both["usd_per_month"], apart["usd_per_month"])
    answer.report(tmp_path / "report.md")
    assert "1 × TP1 prefill" in (tmp_path / "report.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_where_neither_way_serves_the_users_the_target_is_missed_for_the_reasons_of_both() -> None:
    answer = hc.plan("llama-3.1-8b", pools="prefill,decode", tpot_s=0.001, **GIVEN)
    assert answer.verdict is hc.Verdict.TARGET_MISSED
    assert {row.kind for row in answer.fleets} == {"h100-sxm", "h100-sxm, prefill and decode apart"}
    assert all(row.reason for row in answer.fleets)
