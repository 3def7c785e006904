"""KV in host memory in what people read: what it holds, what it finds, what it gains, and whether it is offered."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headcount as hc
from headcount.diagnostics import Facts
from headcount.diagnostics.shipped import host_link_assumed
from headcount.inputs.reading.variations import value_text
from headcount.queries.sweeps.candidates import candidates
from kvcache.models.catalog import find_gpu
from simulator.study import loads
from tests.headcount.conftest import figures

ASKED: dict[str, Any] = {  # 1,500 blocks hold few of the conversations that come back
    "workload": "chat", "num_gpu_blocks_override": 1500, "max_model_len": 8192, "replications": 3, "store": False,
}  # fmt: skip
GAINS: dict[str, Any] = {"gpus": 2, "tensor_parallel_size": 2, "replications": 3, "store": False}
LINE = (
    "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--workload", "chat", "--users", "40",
    "--num-gpu-blocks-override", "1500", "--max-model-len", "8192",
)  # fmt: skip


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer requests than a user's question: what is shown here differs by far more than their noise."""
    monkeypatch.setattr(loads, "REQUESTS_PER_REPLICATION", 1500)


def test_memory_shows_what_the_host_holds(headcount: Callable[..., Any]) -> None:
    line = ("memory", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--kv-offloading-size", "16")
    text = headcount(*line).out
    assert (
        "CPU KV-cache offloading: 131,072 tokens of KV in 8,192 chunks, 16.0 GiB; copied at 50 GB/s one way per GPU"
        in text
    )
    found = json.loads(headcount(*line, "--json").out)
    assert (found["host_kv_tokens"], found["host_kv_chunks"], found["host_kv_bytes"]) == (131_072, 8_192, 16 * 2**30)
    assert "host_kv_tokens" not in json.loads(headcount(*line[:-2], "--json").out)


def test_of_layers_with_windows_a_prompt_keeps_its_last_tokens_besides(headcount: Callable[..., Any]) -> None:
    line = ("memory", "--model", "gemma-3-12b", "--gpu", "h100-sxm", "--kv-offloading-size", "64")
    found = json.loads(headcount(*line, "--json").out)
    assert (found["host_kv_tokens"], found["host_kv_chunks"]) == (1_048_576, 65_536)  # 1 of 6 groups has no window
    assert "up to 1,048,576 tokens of KV in 65,536 chunks, 64.0 GiB" in headcount(*line).out


def test_every_data_parallel_rank_has_its_own() -> None:
    answer = hc.memory("llama-3.1-8b", "h100-sxm", kv_offloading_size=16, data_parallel_size=4).to_json()
    assert answer["host_kv_bytes_per_server"] == 4 * answer["host_kv_bytes"]


def test_memory_shows_what_a_shared_store_holds_and_how_fast_it_is(headcount: Callable[..., Any]) -> None:
    line = ("memory", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--kv-store-size", "16", "--kv-store-rate", "100")
    held = "131,072 tokens of KV in 8,192 chunks, 16.0 GiB; read and written at 35.5 GB/s one way per GPU, 100 GB/s"
    assert f"Remote KV cache of all servers: {held} in all" in headcount(*line).out
    found = json.loads(headcount(*line, "--json").out)
    assert (found["kv_store_tokens"], found["kv_store_bytes"]) == (131_072, 16 * 2**30)
    assert (found["kv_store_copy_bytes_per_s"], found["kv_store_bytes_per_s"]) == (35.5e9, 100e9)
    assert "host_kv_tokens" not in found
    assert any(item["name"] == "policy of the remote KV cache" for item in found["assumptions"])


@pytest.mark.slow
def test_behind_round_robin_a_store_serves_more_than_the_same_memory_of_each_server_s_own() -> None:
    asked = GAINS | {"gpus": 4, "router": "round-robin"}
    shared = hc.compare("qwen3-32b", "h100-sxm", kv_store_size=[0, 512], **asked)
    own = hc.compare("qwen3-32b", "h100-sxm", kv_offloading_size=[None, 256], **asked)
    assert shared.best is not None and own.best is not None
    assert shared.best.choice == {"kv_store_size": 512}
    users = [answer.best.users for answer in (shared, own)]
    assert users[0] > 1.5 * users[1]


@pytest.mark.slow
def test_a_store_that_is_too_slow_is_what_binds() -> None:
    asked = ASKED | {"gpus": [2], "kv_store_size": 64, "router": "round-robin"}
    binding = {}
    for rate in (0.5, 100.0):
        binding[rate] = hc.capacity("llama-3.1-8b", "h100-sxm", kv_store_rate=rate, **asked).best.binding
    assert binding[0.5] == "TTFT: KV loads" != binding[100.0]


@pytest.mark.slow
def test_simulate_shows_hits_by_where_they_were_found(headcount: Callable[..., Any], tmp_path: Path) -> None:
    report = tmp_path / "load.md"
    text = headcount("simulate", *LINE, "--kv-offloading-size", "8", "--report", str(report)).out
    assert re.search(r"prefix hits +\d+\.\d% of prompt tokens in GPU memory, [1-9]\d?\.\d% offloaded\n", text)
    assert "CPU KV-cache offloading: 65,536 tokens of KV" in text
    assert re.search(r"found in the cache of the GPU and \d+% in the offloaded KV cache", report.read_text())
    without = headcount("simulate", *LINE).out
    assert "offload" not in without


@pytest.mark.slow
def test_a_pasted_line_and_a_config_take_it(headcount: Callable[..., Any], tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text("kv-offloading-size = 8\n")
    answers = [
        figures(headcount("simulate", *LINE, *more, "--json").out)
        for more in (
            ("--kv-offloading-size", "8"),
            ("--config", str(config)),
            ("--vllm-args", "llama-3.1-8b --kv_offloading_size=8 --kv-offloading-backend native"),
        )
    ]
    assert answers[0]["host_hit_rate"] > 0.05
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.slow
def test_compare_takes_a_list_and_shows_the_hits_of_both_tiers() -> None:
    answer = hc.compare("qwen3-32b", "h100-sxm", kv_offloading_size=[None, 256], **(GAINS | {"replications": 8}))
    assert answer.best is not None and answer.best.choice == {"kv_offloading_size": 256}
    text = str(answer)
    assert "prefix hits" in text and re.search(r"\d+ % GPU \+ \d+ % offloaded", text)
    with_tier, without = (layout.to_json(None)["at_users"] for layout in answer.layouts)
    assert with_tier["host_hit_rate"] > 0.1 and "host_hit_rate" not in without
    assert "prefix hits" not in str(hc.compare("qwen3-32b", "h100-sxm", max_num_seqs=[256, 512], **GAINS))


@pytest.mark.slow
def test_compare_lays_eviction_policies_side_by_side() -> None:
    arc = {"kv_connector_extra_config": {"eviction_policy": "arc"}}
    answer = hc.compare("qwen3-32b", "h100-sxm", kv_offloading_size=128, kv_transfer_config=[None, arc], **GAINS)
    assert {layout.name for layout in answer.layouts} == {
        "offloading with LRU eviction",
        "offloading with ARC eviction",
    }
    assert all(layout.to_json(None)["at_users"]["host_hit_rate"] > 0.1 for layout in answer.layouts)


@pytest.mark.slow
def test_host_memory_is_offered_where_prompts_miss_the_cache_and_gains_there() -> None:
    formats = {"quantization": "fp8", "kv_cache_dtype": "fp8"}  # what else would gain most
    answer = hc.capacity("qwen3-32b", "h100-sxm", suggest=True, **(GAINS | formats | {"gpus": [2], "replications": 8}))
    found = {lift.change: lift for lift in answer.suggestions or ()}
    assert found["--kv-offloading-size 256"].gains
    assert "suggestions on" in str(answer) and "--kv-offloading-size 256" in str(answer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "is_offered"),
    [
        ({}, True),
        ({"kv_offloading_size": 32, "max_num_seqs": 2}, False),
        ({"enable_prefix_caching": False}, False),
        ({"num_gpu_blocks_override": 40_000, "max_num_seqs": 2}, False),  # nothing is dropped
    ],
)
def test_it_is_offered_only_where_a_larger_cache_would_find_more(given: dict[str, Any], is_offered: bool) -> None:
    answer = hc.capacity("llama-3.1-8b", "h100-sxm", gpus=[1], **(ASKED | given))
    row = answer.best
    assert row.plan is not None
    offered = [name for name, _ in candidates(answer.question, row, row.plan)]
    assert ("kv_offloading_size" in offered) is is_offered


def test_a_gpu_without_a_known_link_carries_a_note() -> None:
    gpu = replace(find_gpu("h100-sxm"), host_link_bytes_per_s=None)
    plans = [hc.resolve("llama-3.1-8b", each, kv_offloading_size=8) for each in (gpu, find_gpu("h100-sxm"))]
    said = [list(host_link_assumed(Facts(plans=[plan]))) for plan in plans]
    assert said[1] == [] and "PCIe Gen4 x16, since the host link of h100-sxm is not known" in said[0][0][1]
    assert list(host_link_assumed(Facts(plans=[hc.resolve("llama-3.1-8b", gpu)]))) == []


@pytest.mark.parametrize("given", ["0", "-3", "1e9", "nan", "inf", "x", "", "8,9", "8GiB"])
def test_a_size_that_is_none_is_refused_in_a_line(given: str, headcount: Callable[..., Any]) -> None:
    done = headcount("memory", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--kv-offloading-size", given)
    assert done.code == 2
    assert len(done.err.strip().splitlines()) == 1
    assert "--kv-offloading-size" in done.err and "Traceback" not in done.err


def test_a_layout_is_named_by_its_host_memory() -> None:
    assert value_text("kv_offloading_size", None) == "no CPU KV-cache offloading"
    assert value_text("kv_store_size", 512.0) == "remote KV cache, 512 GiB"
    assert value_text("kv_offloading_size", 1024.0) == "CPU KV-cache offloading, 1,024 GiB"
