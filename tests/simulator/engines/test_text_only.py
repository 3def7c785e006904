"""Multimodal models that serve text alone, and KV caches that are given in bytes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache.errors import DoesNotFitError
from kvcache.memory.budget import MemoryBudget
from kvcache.models.catalog import find_gpu, load_model
from simulator.engines.memory import memory_budget, require_fit

H100, L40S = find_gpu("h100-sxm"), find_gpu("l40s")
NONE = {"image": 0, "video": 0}


def budget(model: str = "qwen3-vl-8b", **settings: Any) -> MemoryBudget:
    return memory_budget(load_model(model), H100, max_model_len=4096, **settings)


@pytest.mark.parametrize(
    ("model", "limits", "is_left_out"),
    [
        ("qwen3-vl-8b", NONE, True),
        ("qwen3-vl-8b", {"image": 0}, False),
        ("qwen3-vl-8b", {"image": 0, "video": 1}, False),
        ("gemma-3-12b", {"image": 0}, True),
        ("gemma-3n-e4b", {"image": 0}, False),  # it hears
        ("gemma-3n-e4b", {"image": 0, "audio": 0}, True),
        ("mistral-small-3.1-24b", {"image": 0}, True),
        ("kimi-vl-a3b", {"image": 0}, True),
        ("llama-3.1-8b", NONE, False),
    ],
)
def test_an_encoder_is_left_out_if_nothing_that_it_reads_is_allowed(
    model: str, limits: dict[str, int], is_left_out: bool
) -> None:
    sees, reads = budget(model), budget(model, limit_mm_per_prompt=limits)
    assert (reads.weights_bytes < sees.weights_bytes) == is_left_out
    assert (reads.activation_peak_bytes < sees.activation_peak_bytes) == is_left_out


@pytest.mark.parametrize("release", ["0.15.0", "0.19.0", "0.26.0", "0.33.0"])
def test_both_ways_are_the_same_and_leave_the_model_runner(release: str) -> None:
    limited = budget(limit_mm_per_prompt=NONE, vllm_version=release)
    assert limited.cuda_graph_bytes == budget(vllm_version=release).cuda_graph_bytes
    if release != "0.15.0":
        assert budget(language_model_only=True, vllm_version=release) == limited


def test_older_releases_load_the_encoder_and_lack_the_switch() -> None:
    assert budget(limit_mm_per_prompt=NONE, vllm_version="0.14.1") == budget(vllm_version="0.14.1")
    with pytest.raises(ValueError, match=r"vLLM has --language-model-only from 0\.17 on; leave it out"):
        budget(language_model_only=True, vllm_version="0.16.0")


def test_text_alone_is_a_remedy_where_the_encoder_is_what_does_not_fit() -> None:
    model = load_model("qwen3-vl-32b")
    with pytest.raises(DoesNotFitError, match=r"fits with .*--language-model-only( or|$)"):
        require_fit(model, L40S, quantization="fp8", max_model_len=18_000)
    assert memory_budget(model, L40S, quantization="fp8", max_model_len=18_000, language_model_only=True).fits


def test_data_mode_keeps_the_whole_encoder_on_each_gpu() -> None:
    encoder = 2 * load_model("qwen3-vl-8b").vision_parameters
    split, whole = (budget(tensor_parallel_size=4, mm_encoder_tp_mode=mode) for mode in ("weights", "data"))
    assert whole.weights_bytes - split.weights_bytes == pytest.approx(encoder * 3 / 4, rel=0.01)


@given(gib=st.integers(1, 50), share=st.sampled_from([0.5, 0.9]))
def test_a_given_kv_cache_is_cut_into_blocks_whatever_the_memory_share(gib: int, share: float) -> None:
    found = budget("llama-3.1-8b", kv_cache_memory_bytes=gib * 2**30, gpu_memory_utilization=share)
    assert found.num_gpu_blocks == found.num_gpu_blocks_low == gib * 2**30 // (16 * 128 * 1024)
    assert found.requested_bytes <= found.total_bytes


def test_more_kv_cache_than_a_gpu_has_left_is_refused_with_what_it_has() -> None:
    with pytest.raises(DoesNotFitError, match=r"kv_cache_memory_bytes is 70\.0 GiB.*give at most (\d+)G") as caught:
        budget("llama-3.1-8b", kv_cache_memory_bytes=70 * 2**30)
    most = int(str(caught.value).rsplit(" ", 1)[1].rstrip("G"))
    assert budget("llama-3.1-8b", kv_cache_memory_bytes=most * 2**30).fits
    with pytest.raises(DoesNotFitError):
        budget("llama-3.1-8b", kv_cache_memory_bytes=(most + 1) * 2**30)
