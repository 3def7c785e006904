"""How much room vLLM leaves for KV blocks."""

import csv
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcache.errors import DoesNotFitError
from kvcache.memory.budget import MemoryBudget
from kvcache.memory.terms import GIB, gib_text
from kvcache.models.catalog import find_gpu, load_model
from simulator.engines.memory import memory_budget, require_fit
from simulator.engines.vllm.arguments import EngineArgs

MEASURED = Path(__file__).parents[4] / "shared" / "data" / "measured" / "kv_capacity.csv"
needs_measurements = pytest.mark.skipif(not MEASURED.is_file(), reason="the folder of public measurements is absent")


def budget(model: str = "llama-3.1-8b", gpu: str = "h100-sxm", **settings_: Any) -> MemoryBudget:
    return memory_budget(load_model(model), find_gpu(gpu), **settings_)


def test_the_waterfall_adds_up_to_what_was_requested() -> None:
    b = budget(max_model_len=8192)
    spent = b.weights_bytes + b.activation_peak_bytes + b.non_torch_bytes + b.cuda_graph_bytes + b.available_kv_bytes
    assert spent == b.requested_bytes
    assert b.num_gpu_blocks == b.available_kv_bytes // (16 * 128 * 1024)


def measured_rows() -> list[tuple[dict[str, str], MemoryBudget]]:
    rows = []
    for row in csv.DictReader(MEASURED.open(encoding="utf-8")):
        if row["confidence"] != "full log":
            continue
        name = row["model"].split("/")[-1].lower().replace("meta-llama", "llama")
        formats = {"-quantized.w8a8": "int8", "-quantized.w4a16": "gptq", "-fp8-dynamic": "fp8"}
        ending = next((end for end in formats if name.endswith(end)), "")
        b = budget(
            name.removesuffix(ending),
            tensor_parallel_size=int(row["tp"]),
            quantization=formats.get(ending),
            gpu_memory_utilization=float(row["gpu_memory_utilization"]),
            max_model_len=int(row["max_model_len"]),
            vllm_version=row["vllm_version"],
        )
        rows.append((row, b))
    return rows


@needs_measurements
def test_kv_tokens_match_what_vllm_logged_on_h100() -> None:
    errors = [abs(b.kv_cache_tokens / float(row["kv_tokens"]) - 1) for row, b in measured_rows()]
    assert len(errors) >= 25
    assert max(errors) < 0.02
    assert sum(errors) / len(errors) < 0.005


@needs_measurements
def test_max_concurrency_matches_what_vllm_logged_on_h100() -> None:
    for row, b in measured_rows():
        assert b.max_concurrency == pytest.approx(float(row["max_concurrency"]), rel=0.02, abs=0.01), b.model


@needs_measurements
def test_weights_match_what_vllm_logged_on_h100() -> None:
    for row, b in measured_rows():
        assert b.weights_bytes / 2**30 == pytest.approx(float(row["weights_gib"]), rel=0.005, abs=0.45), b.model


def test_kv_cache_size_of_later_versions_is_concurrency_times_length() -> None:
    old, new = (budget("gemma-3-27b", max_model_len=8192, vllm_version=version) for version in ("0.19.0", "0.32.0"))
    assert old.kv_cache_tokens == old.num_gpu_blocks // 7 * 16
    assert new.kv_cache_tokens == int(new.max_concurrency * 8192)


def test_cuda_graphs_are_set_aside_since_0_21_unless_eager() -> None:
    assert budget(vllm_version="0.20.2").cuda_graph_bytes == 0
    assert budget(vllm_version="0.21.0").cuda_graph_bytes > 0
    assert budget(enforce_eager=True).cuda_graph_bytes == 0


@pytest.mark.parametrize(
    ("gpu", "gib"),
    [("h100-sxm", 64.38), ("a100-80gb", 65.97)],  # vLLM issues 33155 (Triton), 23278 (Marlin, as on Ampere)
)
def test_gpt_oss_120b_is_padded_for_its_kernels(gpu: str, gib: float) -> None:
    weights = budget("gpt-oss-120b", gpu, max_model_len=8192).weights_bytes
    assert weights / 2**30 == pytest.approx(gib, rel=0.005)


def test_an_override_wins() -> None:
    b = budget(num_gpu_blocks_override=100, max_model_len=1024)
    assert b.num_gpu_blocks == 100
    assert b.kv_cache_tokens == 1600
    assert b.fits
    assert not budget(num_gpu_blocks_override=64, max_model_len=1024).fits  # one block is the null block


@given(tp=st.sampled_from([1, 2, 4, 8]), low=st.floats(0.3, 0.9), more=st.floats(0.001, 0.1))
@settings(max_examples=30)
def test_more_memory_never_means_fewer_blocks(tp: int, low: float, more: float) -> None:
    small, large = (budget(tensor_parallel_size=tp, gpu_memory_utilization=share) for share in (low, low + more))
    assert small.num_gpu_blocks <= large.num_gpu_blocks


@given(length=st.integers(1, 131072), tp=st.sampled_from([1, 2, 4, 8]))
@settings(max_examples=30)
def test_a_model_that_fits_admits_one_whole_request(length: int, tp: int) -> None:
    b = budget("gpt-oss-120b", tensor_parallel_size=tp, max_model_len=length)
    assert b.fits == (b.num_gpu_blocks - 1 >= b.layout.blocks_per_request(length, b.max_num_batched_tokens * 2))


def test_a_weak_pipeline_stage_limits_the_replica() -> None:
    b = budget("llama-3.1-70b", tensor_parallel_size=2, pipeline_parallel_size=2, max_model_len=8192)
    assert b.fits
    assert b.weights_bytes < budget("llama-3.1-70b", tensor_parallel_size=2, max_model_len=8192).weights_bytes
    assert b.kv_bytes_per_token == 320 * 1024
    assert b.kv_bytes_per_token_per_gpu == 80 * 1024  # half of the heads, in half of the layers


def test_what_does_not_fit_says_by_how_much_and_what_would() -> None:
    with pytest.raises(DoesNotFitError) as caught:
        require_fit(load_model("llama-3.1-70b"), find_gpu("h100-sxm"), max_model_len=8192)
    text = str(caught.value)
    assert "\n" not in text
    assert "GiB short per GPU" in text
    assert "--tensor-parallel-size 4" in text or "--tensor-parallel-size 2" in text
    assert "--quantization" in text
    assert not budget("llama-3.1-70b", max_model_len=8192).fits


def test_a_little_that_is_missing_is_said_in_mib() -> None:
    """A request of 32 tokens more than the KV cache holds, far less than 0.1 GiB."""
    longest = budget("qwen3-32b", max_model_len=8192).kv_cache_tokens
    with pytest.raises(DoesNotFitError, match=r": [1-9]\d? MiB short per GPU; "):
        require_fit(load_model("qwen3-32b"), find_gpu("h100-sxm"), max_model_len=longest + 32)
    assert [gib_text(count) for count in (0, 1, 100 * 2**20, GIB)] == ["0.0 GiB", "1 MiB", "100 MiB", "1.0 GiB"]


def test_too_long_a_request_is_answered_with_the_length_that_surely_fits() -> None:
    with pytest.raises(DoesNotFitError, match=r"--max-model-len \d+") as caught:
        require_fit(load_model("llama-3.1-8b"), find_gpu("rtx-4090"))
    length = int(str(caught.value).rsplit(" ", 1)[1])
    for asked, surely in ((length, True), (length + 1024, False)):
        assert (budget(gpu="rtx-4090", max_model_len=asked).kv_cache_tokens_low >= asked) == surely


def test_what_no_gpu_count_can_hold_says_so() -> None:
    with pytest.raises(DoesNotFitError, match="take a larger GPU"):
        require_fit(load_model("kimi-k2.5"), find_gpu("l4"), gpu_memory_utilization=0.3, max_num_seqs=256)


def test_where_no_single_change_helps_more_gpus_with_a_shorter_context_may() -> None:
    with pytest.raises(DoesNotFitError, match=r"--tensor-parallel-size 4 --max-model-len \d+$") as caught:
        require_fit(load_model("llama-4-scout"), find_gpu("rtx-pro-6000"))
    length = int(str(caught.value).rsplit(" ", 1)[1])
    on_four = {"gpu": "rtx-pro-6000", "tensor_parallel_size": 4}
    for asked, surely in ((length, True), (length + 1024, False)):
        assert (budget("llama-4-scout", **on_four, max_model_len=asked).kv_cache_tokens_low >= asked) == surely
    assert not budget("llama-4-scout", gpu="rtx-pro-6000", tensor_parallel_size=2, max_model_len=1024).fits


@pytest.mark.parametrize(
    ("settings_", "words"),
    [
        ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization is 1.5"),
        ({"gpu_memory_utilization": 0.0}, "gpu_memory_utilization is 0.0"),
        ({"max_model_len": 0}, "max_model_len is 0"),
        ({"tensor_parallel_size": 0}, "tensor_parallel_size is 0"),
        ({"tensor_parallel_size": 3}, "tensor_parallel_size 3"),
        ({"pipeline_parallel_size": 64}, "exceeds the model's 32 layers"),
        ({"vllm_version": "latest"}, "is not a release number"),
        ({"num_gpu_blocks_override": 0}, "num_gpu_blocks_override is 0"),
        ({"quantization": "int2"}, "no quantization 'int2'"),
    ],
)
def test_settings_that_vllm_refuses_are_refused(settings_: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        budget(**settings_)


@pytest.mark.parametrize(
    ("gpu", "version", "tokens", "seqs"),
    [
        ("h100-sxm", "0.32.0", 8192, 1024),
        ("h200-sxm", "0.32.0", 8192, 1024),
        ("b200-sxm", "0.32.0", 16384, 1024),
        ("b200-sxm", "0.26.0", 8192, 1024),
        ("a100-80gb", "0.32.0", 2048, 256),
        ("l4", "0.32.0", 2048, 256),
        ("rtx-pro-6000", "0.32.0", 8192, 1024),
    ],
)
def test_engine_defaults_follow_the_gpu(gpu: str, version: str, tokens: int, seqs: int) -> None:
    defaults = EngineArgs(vllm_version=version).filled(load_model("llama-3.1-8b"), find_gpu(gpu))
    assert (defaults.max_num_batched_tokens, defaults.max_num_seqs) == (tokens, seqs)
    assert defaults.gpu_memory_utilization == 0.92


def test_every_fitted_figure_carries_its_source() -> None:
    rows = budget(gpu="l4", max_model_len=2048).assumptions
    assert all(source.strip() for _, _, source in rows)
    assert any("no start-up log of this GPU" in source for _, _, source in rows)


def test_a_release_newer_than_any_known_is_said_to_go_by_the_newest_known() -> None:
    rows = {
        version: [value for name, value, _ in budget.assumptions if name == "vLLM release"]
        for version in ("0.32.0", "0.40.1")
        for budget in [memory_budget(load_model("llama-3.1-8b"), find_gpu("h100-sxm"), vllm_version=version)]
    }
    assert rows == {"0.32.0": [], "0.40.1": ["0.33.0"]}
