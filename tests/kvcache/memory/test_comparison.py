"""Sizes and formats side by side."""

import pytest

from kvcache.models.catalog import find_gpu, load_model, model_names
from simulator.engines.memory import memory_budget
from simulator.engines.vllm.comparison import compare, fewest_gpus, weight_formats

H100 = find_gpu("h100-sxm")


def test_every_combination_is_the_budget_that_it_would_have_alone() -> None:
    model = load_model("llama-3.1-70b")
    found = compare(model, H100, max_model_len=8192)
    assert len(found) == 3 * 2 * 4  # bf16 (its own), fp8, awq; KV auto, fp8; TP 1, 2, 4, 8
    for row in found:
        alone = memory_budget(
            model,
            H100,
            tensor_parallel_size=row.tensor_parallel_size,
            quantization=row.quantization,
            kv_cache_dtype=row.kv_cache_dtype,
            max_model_len=8192,
        )
        assert row.budget == alone


def test_the_fewest_gpus_are_those_of_the_first_size_that_fits() -> None:
    fewest = fewest_gpus(compare(load_model("llama-3.1-70b"), H100, max_model_len=8192))
    assert fewest[("none", "auto")] == 2
    assert fewest[("fp8", "auto")] == 2
    assert fewest[("awq", "auto")] == 1
    fewest = fewest_gpus(compare(load_model("deepseek-r1"), H100))
    assert {weights for weights, _ in fewest} == {"fp8-block", "bf16", "awq"}
    assert fewest[("fp8-block", "auto")] is None


@pytest.mark.parametrize("name", model_names())
def test_the_checkpoint_s_own_format_comes_first_and_none_comes_twice(name: str) -> None:
    model = load_model(name)
    formats = weight_formats(model)
    assert formats[0] is None
    assert model.native_quantization not in formats[1:]
    assert len(set(formats)) == len(formats)
    assert ("bf16" in formats) == (model.native_quantization is not None)
    assert ("awq" in formats) == (model.native_quantization in (None, "fp8", "fp8-block", "fp8-tensor"))


def test_a_split_that_vllm_refuses_is_kept_with_its_reason() -> None:
    found = compare(load_model("phi-4"), H100)  # 10 KV heads
    refused = [row for row in found if row.budget is None]
    assert {row.tensor_parallel_size for row in refused} == {4, 8}
    assert all("10 KV heads" in (row.refusal or "") for row in refused)


def test_where_all_are_refused_the_reason_is_raised() -> None:
    with pytest.raises(ValueError, match="10 KV heads"):
        compare(load_model("phi-4"), H100, tensor_parallel_sizes=(4,))


def test_fp8_keys_and_values_hold_twice_the_tokens() -> None:
    auto, fp8 = compare(load_model("llama-3.1-8b"), H100, tensor_parallel_sizes=(1,), quantizations=(None,))
    assert auto.budget is not None and fp8.budget is not None
    assert fp8.budget.num_gpu_blocks // auto.budget.num_gpu_blocks == 2
    assert fp8.budget.weights_bytes == auto.budget.weights_bytes
