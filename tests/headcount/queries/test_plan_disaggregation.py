"""`plan --pools` and `compare --pools`: engines that compute prompts apart from answers, beside those that do both."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import headcount as hc
from headcount.queries.plan_rows import SIMULATED, FleetRow, estimates_text
from headcount.views.of.plan_text import disaggregated_text
from simulator.fleet.pool_sizes import PoolChoices
from tests.headcount.conftest import FOUR_AT_ONCE
from tests.headcount.told import summary_of

GIVEN: dict[str, Any] = {
    "gpu": "h100-sxm", "users": 120, "tensor_parallel_size": 1, "ttft_s": 2.0, "replications": 2, "store": False,
}  # fmt: skip


def test_fleets_of_as_many_gpus_are_told_apart() -> None:
    same: dict[str, Any] = {"gpu": "h100-sxm", "state": SIMULATED, "tp": 1, "gpus": 2, "servers": 2}
    both = FleetRow(**same, users_low=400, usd_per_month=5825.0)
    apart = FleetRow(**same, users_low=500, usd_per_month=5825.0, prefill_tp=1, prefill_servers=1)
    assert disaggregated_text(both, apart) == (
        "h100-sxm, disaggregated prefill/decode: 2 GPUs, as many, for the same cost; "
        "500 users at 95 % confidence instead of 400"
    )
    assert estimates_text([both, apart]) == (
        "2 × h100-sxm, 2 × TP1 (≈ $5,825 a month), 2 × h100-sxm, 1 × TP1 prefill + 1 × TP1 decode (≈ $5,825 a month)"
    )
    assert estimates_text([both]) == "2 × h100-sxm (≈ $5,825 a month)"


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
        ({"decider": "isl_bounding"}, "--decider needs two pools; give --pools prefill,decode"),
        ({"pools": "prefill,decode", "decider": "isl_bound"}, "no decider 'isl_bound'; did you mean 'isl_bounding'?"),
        ({"kv_transfer_rate": 5.0}, "--kv-transfer-rate needs two pools; give --pools prefill,decode"),
        ({"pools": "prefill,decode", "vllm_version": "0.31.0"}, "simulated by the rules of vLLM 0.32"),
        ({"pools": "prefill,decode", "engine": "sglang"}, "disaggregated prefill/decode is not simulated with SGLang"),
    ],
)
def test_what_cannot_be_is_one_clear_error(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        hc.plan("llama-3.1-8b", **GIVEN, **more)


@pytest.mark.slow
def test_both_ways_stand_in_the_table_with_the_lines_that_start_each_pool(tmp_path: Path) -> None:
    answer = hc.plan("llama-3.1-8b", pools={"prefill": [1], "decode": [1]}, tpot_s=0.01, explain=True, **GIVEN)
    found = json.loads(json.dumps(answer.to_json()))
    both, disaggregated = sorted(found["fleets"], key=lambda row: row["prefill_tp"] is not None)
    assert both["prefill_servers"] is None
    prefill, decode = disaggregated["prefill_servers"], disaggregated["servers"] - disaggregated["prefill_servers"]
    assert f"{prefill} × TP1 prefill + {decode} × TP1 decode" in str(answer)
    assert disaggregated["gpus"] == disaggregated["servers"]
    assert min(row["users_low"] for row in (both, disaggregated)) >= 120
    assert '"kv_role": "kv_producer"' in disaggregated["prefill_serve_line"]
    assert '"kv_role": "kv_consumer"' in disaggregated["serve_line"]
    assert f"h100-sxm, disaggregated prefill/decode: {disaggregated['gpus']} GPU" in str(answer)
    assert found["best"] == found["fleets"][0]
    assert found["best"]["usd_per_month"] == min(both["usd_per_month"], disaggregated["usd_per_month"])
    answer.report(tmp_path / "report.md")
    assert "1 × TP1 prefill" in (tmp_path / "report.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_each_pool_has_its_spare_engine_and_a_decider_leaves_few_prompts_to_prefill_engines() -> None:
    leaves_nothing = "prefix-based-pd-decider"  # without its threshold
    pools = {"prefill": [1], "decode": [1]}
    answer = hc.plan("llama-3.1-8b", pools=pools, decider=leaves_nothing, spare=1, tpot_s=0.011, **GIVEN)
    row = _disaggregated_of(answer)
    assert (row["prefill_servers"], row["spare_servers"]) == (2, 2)  # one of each is spare
    assert row["gpus"] == row["servers"] >= 4
    assert row["users_low"] >= 120
    both = next(each for each in answer.to_json()["fleets"] if each["prefill_tp"] is None)
    assert both["spare_servers"] == 1


def _disaggregated_of(answer: hc.PlanResult) -> dict[str, Any]:
    return next(row for row in answer.to_json()["fleets"] if row["prefill_tp"] is not None)


@pytest.mark.slow
def test_where_neither_way_serves_the_users_the_target_is_missed_for_the_reasons_of_both() -> None:
    answer = hc.plan("llama-3.1-8b", pools="prefill,decode", tpot_s=0.001, **GIVEN)
    assert answer.verdict is hc.Verdict.TARGET_MISSED
    assert {row.kind for row in answer.fleets} == {"h100-sxm", "h100-sxm, disaggregated prefill/decode"}
    assert all(row.reason for row in answer.fleets)


@pytest.mark.slow
def test_ratios_are_compared_paired_with_each_other_and_with_engines_that_do_both() -> None:
    pools = ["prefill=1,decode=1", "together", "prefill=1,decode=2"]
    answer = hc.compare("llama-3.1-8b", "h100-sxm", gpus=2, pools=pools, sort="users", **FOUR_AT_ONCE)
    rows = {row["pools"]: row for row in answer.to_json()["layouts"]}
    assert {name: row["gpus"] for name, row in rows.items()} == dict(zip(pools, (2, 2, 3), strict=True))
    one, two = rows["prefill=1,decode=1"], rows["prefill=1,decode=2"]
    assert 2 * one["users"] <= two["users"] < 3 * one["users"]  # answers bind; two queues together waste less
    assert answer.best is not None
    best = answer.best.users_over(answer.best)
    assert best is not None
    assert (best.mean, best.low, best.high) == (1, 1, 1)
    ratio = one["users_over_best"]
    most = max(row["users"] for row in rows.values())
    assert ratio["mean"] == pytest.approx(one["users"] / most, rel=0.03)
    assert ratio["low"] < ratio["mean"] < ratio["high"] < 0.6
    assert "1 × TP1 prefill + 2 × TP1 decode" in str(answer)
    assert answer.attribution is not None
    assert [each.what for each in answer.attribution.chain] == [answer.best.name]


@pytest.mark.slow
def test_pools_compared_alone_serve_as_many_as_capacity_says() -> None:
    answer = hc.compare("llama-3.1-8b", "h100-sxm", pools="prefill=1,decode=2", **FOUR_AT_ONCE)
    compared = answer.to_json()["layouts"][0]
    alone = hc.disaggregated_capacity("llama-3.1-8b", "h100-sxm", "prefill=1,decode=2", **FOUR_AT_ONCE)
    assert compared["users"] == pytest.approx(alone.users, rel=0.03)
    assert compared["gpus"] == 3
    assert "while it is down, nobody is served" in summary_of(answer).risk  # engines that depend on each other


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"pools": ["prefill=1"]}, "'prefill=1' lacks a pool"),
        ({"pools": ["together", "prefill=1,decode=1"], "gpus": [1, 2]}, "--gpus is a list, and --pools says how many"),
        ({"pools": ["together"], "dispatch_s": 0.1}, "--dispatch needs two pools; give --pools"),
    ],
)
def test_what_cannot_be_compared_is_one_clear_error(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        hc.compare("llama-3.1-8b", "h100-sxm", **FOUR_AT_ONCE, **more)
