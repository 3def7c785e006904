"""Pools that compute prompts and answers apart: how they are asked for, and what the answers say of them."""

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import headcount as hc
from headcount.cli.main import cli
from simulator.fleet.pool_sizes import Part, PoolSizes

ASKED = {"vllm_version": "0.32.0", "latency_model": "constant", "step_s": 0.01, "store": False}
LOAD = {"input_len": 1000, "output_len": 20, "rate": 5.0, "num_requests": 60}


def simulated(pools: str | None, **more: object) -> hc.SimulateResult:
    asked = {name: value for name, value in ASKED.items() if name != "store"}
    return hc.simulate("llama-3.1-8b", "h100-sxm", pools=pools, **{**asked, **LOAD, **more})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("prefill=2,decode=6", {"prefill": Part(engines=2), "decode": Part(engines=6)}),
        (
            "decode=2xTP4, prefill=8xtp1",
            {
                "decode": Part(engines=2, tensor_parallel_size=4),
                "prefill": Part(engines=8, tensor_parallel_size=1),
            },
        ),
    ],
)
def test_pools_are_read(text: str, found: dict[str, Part]) -> None:
    assert PoolSizes().read(text) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prefill=2", "'prefill=2' lacks a pool; give both, such as prefill=2,decode=6"),
        ("prefill=0,decode=1", "'0' is no number of engines; give such as 6, or 2xtp4"),
        ("prefill=1xtp0,decode=1", "'1xtp0' is no number of engines"),
        ("prefill=1,prefill=2,decode=1", "gives a pool twice"),
        ("prefill=1,decoder=1", "no pool 'decoder'; did you mean 'decode'?"),
    ],
)
def test_what_is_no_pair_of_pools_is_one_clear_error(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        PoolSizes().read(text)


def test_a_load_on_both_pools_tells_of_each_and_of_handovers() -> None:
    answer = simulated("prefill=1,decode=2xtp2")
    found = answer.to_json()
    assert [(row["role"], row["engines"], row["tp"], row["gpus"]) for row in found["pools"]] == [
        ("prefill", 1, 1, 1), ("decode", 2, 2, 4),
    ]  # fmt: skip
    assert found["num_finished"] == 60
    assert all(row["busy"] > 0 for row in found["pools"])
    assert 0.025 + 0.01 < found["handover_s"]["p50"] < 0.2
    assert "1 × TP1 prefill + 2 × TP2 decode" in str(answer)


def test_a_slower_network_and_a_longer_dispatch_delay_the_first_token() -> None:
    base, slow, late = (
        simulated("prefill=1,decode=1", **more).to_json()["ttft_s"]["p50"]
        for more in ({}, {"kv_transfer_rate": 1.0}, {"dispatch_s": 0.225})
    )
    assert slow > base + 0.09
    assert late == pytest.approx(base + 0.2, abs=0.02)


def test_pushed_kv_saves_the_dispatch_and_the_answer_names_the_connector() -> None:
    pulled, pushed = (simulated("prefill=1,decode=1", kv_transfer=each) for each in ("pull", "push"))
    found = pushed.to_json()
    assert (found["kv_transfer"], found["dispatch_s"], found["lost_requests"]) == ("push", 0.0, 0)
    assert pulled.to_json()["ttft_s"]["p50"] - found["ttft_s"]["p50"] == pytest.approx(0.025, abs=0.02)
    assert [json.loads(shlex.split(line)[-1])["kv_connector"] for line in pushed.disaggregated.serve_lines] == 2 * [
        "NixlPushConnector"
    ]


def test_kv_that_never_comes_is_told() -> None:
    """Clients leave while their prompts are computed, of which each takes a hundred steps."""
    more = {"input_len": 8000, "max_num_batched_tokens": 80, "step_s": 0.05, "rate": 0.2, "traffic": {"patience": "1s"}}
    answer = simulated("prefill=1,decode=1", kv_transfer="push", **more)
    assert answer.to_json()["lost_requests"] > 0
    assert "requests hold blocks in decode engines, but their KV never arrives" in str(answer)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"kv_transfer": "pusch"}, "no KV transfer 'pusch'; did you mean 'push'?"),
        ({"kv_transfer": "push", "dispatch_s": 0.1}, "a request goes to both its engines at once; leave it out"),
        ({"kv_transfer": "push", "pools": None}, "--kv-transfer needs two pools; give --pools"),
        ({"kv_transfer": "push", "decider": "isl_bounding"}, "leave --decider out, or give --kv-transfer pull"),
        ({"replicas": 2}, "--replicas and --pools both say how many engines there are"),
        ({"vllm_version": "0.31.0"}, "by the rules of vLLM 0.32 and later; give --vllm-version 0.32.0"),
        ({"kv_transfer_rate": 0.0}, "--kv-transfer-rate is 0 GB/s; it must be above 0"),
        ({"pools": None, "dispatch_s": 0.1}, "--dispatch needs two pools; give --pools"),
        ({"data_parallel_size": 2}, "disaggregated prefill/decode is not simulated with --data-parallel-size"),
        ({"engine": "sglang", "vllm_version": None}, "disaggregated prefill/decode is not simulated with SGLang"),
    ],
)
def test_what_does_not_go_with_pools_is_one_clear_error(more: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        simulated(**{"pools": "prefill=1,decode=1", **more})


def test_models_with_states_are_refused() -> None:
    with pytest.raises(ValueError, match="models with SSM states; let each engine do both"):
        hc.simulate("qwen3.5-4b", "h100-sxm", pools="prefill=1,decode=1", vllm_version="0.32.0", **LOAD)


def test_a_model_with_windows_is_answered() -> None:
    """Half of gpt-oss-20b's layers attend to 128 tokens."""
    long = {**LOAD, "input_len": 4096}
    found = hc.simulate("gpt-oss-20b", "h100-sxm", pools="prefill=1,decode=1", vllm_version="0.32.0", **long)
    assert found.to_json()["num_finished"] == LOAD["num_requests"]


@pytest.mark.slow
def test_capacity_of_pools_is_an_answer_with_an_interval_and_both_pools() -> None:
    command = (
        "capacity --model llama-3.1-8b --gpu h100-sxm --pools prefill=1,decode=1 --vllm-version 0.32.0 "
        "--latency-model constant --step-s 0.02 --replications 2 --no-store --json"
    )
    result = CliRunner().invoke(cli, command.split())
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert 0 < found["users_low"] <= found["users"] <= found["users_high"]
    assert found["gpus"] == 2
    assert [row["role"] for row in found["pools"]] == ["prefill", "decode"]


def test_the_report_shows_both_pools_and_what_a_handover_takes(tmp_path: Path) -> None:
    simulated("prefill=1,decode=2xtp2").report(tmp_path / "report.md")
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "Disaggregated prefill/decode" in page
    assert "2 × TP2" in page
    assert "25 ms of dispatch" in page
