"""What a weight format costs."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache.errors import SplitError
from kvcache.formats.quantization import quantization_names, resolve_quantization, weight_bytes
from kvcache.models.catalog import find_gpu, find_quantization, load_model
from kvcache.models.config.reader import from_config
from kvcache.parallelism import Parallelism
from kvcache.shape.architecture import with_dtype
from kvcache.shape.parameters import stage_tensors, total_parameters
from simulator.engines.memory import memory_budget


def whole(model: str, scheme: str) -> int:
    arch = load_model(model)
    return weight_bytes(find_quantization(scheme), stage_tensors(arch, Parallelism(), 0), arch.dtype)


@pytest.mark.parametrize(
    ("name", "bits"), [("awq", 4.15625), ("gptq", 4.15625), ("nf4", 4.5), ("mxfp4", 4.25), ("nvfp4", 4.5), ("bf16", 16)]
)
def test_bits_per_weight_include_group_scales(name: str, bits: float) -> None:
    assert find_quantization(name).bits_per_weight == bits


def test_16_bit_weights_take_two_bytes_each() -> None:
    parameters = total_parameters(load_model("llama-3.1-8b"))
    assert 2 * parameters <= whole("llama-3.1-8b", "none") <= 2 * parameters * 1.003  # allocator steps of 2 MiB
    assert whole("llama-3.1-8b", "fp32") == pytest.approx(4 * parameters, rel=0.003)


def test_awq_leaves_embeddings_in_16_bits() -> None:
    packed = total_parameters(load_model("llama-3.1-8b")) - 2 * 128256 * 4096
    assert whole("llama-3.1-8b", "awq") == pytest.approx(packed * 4.15625 / 8 + 2 * 2 * 128256 * 4096, rel=0.005)


def test_mxfp4_packs_experts_only() -> None:
    assert whole("gpt-oss-120b", "mxfp4") / 2**30 == pytest.approx(60.8, rel=0.02)  # OpenAI's model card: 60.8 GiB
    assert whole("llama-3.1-8b", "mxfp4") == whole("llama-3.1-8b", "none")


def test_the_checkpoints_own_format_is_the_default() -> None:
    assert resolve_quantization(None, "fp8").name == "fp8"
    assert resolve_quantization("awq", "fp8").name == "awq"
    assert resolve_quantization(None, None).name == "none"


def test_fp8_without_fp8_tensor_cores_becomes_weight_only() -> None:
    fp8, nvfp4, awq = (find_quantization(name) for name in ("fp8", "nvfp4", "awq"))
    assert fp8.gemm_dtype_on(find_gpu("h100-sxm")) == "fp8"
    assert fp8.gemm_dtype_on(find_gpu("a100-80gb")) == "bf16"
    assert nvfp4.gemm_dtype_on(find_gpu("h100-sxm")) == "bf16"
    assert nvfp4.gemm_dtype_on(find_gpu("b200-sxm")) == "fp4"
    assert awq.gemm_dtype_on(find_gpu("b200-sxm")) == "bf16"


@given(st.sampled_from(sorted(set(quantization_names()) - {"fp32"})), st.integers(1, 64), st.integers(1, 64))
def test_no_format_takes_more_than_16_bits_with_its_scales(name: str, rows: int, groups: int) -> None:
    cols = groups * 128
    assert find_quantization(name).linear_weight_bytes(rows, cols) <= rows * cols * 2


SMALL: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 1, "num_attention_heads": 8,
    "num_key_value_heads": 4, "intermediate_size": 2048, "vocab_size": 1024, "max_position_embeddings": 512,
}  # fmt: skip


@pytest.mark.parametrize(
    ("scheme", "built", "scales_apart"),
    # Bytes of the parameters that vLLM 0.32 builds for SMALL, by the checkpoint's quantization_config. Beside ours it
    # has scales for the KV cache, shapes of packed matrices, and a scale for each part of those that it fuses.
    [
        ("fp8-tensor", 13_637_696, 32),
        ("fp8-block", 13_639_944, 8),
        ("fp8", 13_670_418, 18),
        ("int8", 13_670_418, 18),
        ("w4a16", 9_066_578, 82),
        ("gptq", 9_103_360, 0),
        ("awq", 9_103_360, 0),
    ],
)
def test_a_format_takes_the_bytes_that_vllm_builds(scheme: str, built: int, scales_apart: int) -> None:
    tensors = stage_tensors(from_config(SMALL, name="small"), Parallelism(), 0)
    assert built - weight_bytes(find_quantization(scheme), tensors, "bfloat16") == scales_apart


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("gptq-g32", 4.625), ("awq-g64", 4.3125), ("w4a16-g32", 4.5), ("w8a16-g128", 8.125), ("gptq-8bit", 8.1875),
        ("nf4-double", 4 + 8.125 / 64), ("fp8-block", 8 + 32 / 128**2), ("mxfp8", 8.25), ("gguf-q4_k_m", 4.8944),
    ],
)  # fmt: skip
def test_variants_and_blocks_have_their_bits(name: str, bits: float) -> None:
    assert find_quantization(name).bits_per_weight == pytest.approx(bits, abs=1e-9)


def test_act_order_costs_one_index_per_input_column() -> None:
    plain, ordered = find_quantization("gptq"), find_quantization("gptq-actorder")
    assert ordered.linear_weight_bytes(512, 4096) - plain.linear_weight_bytes(512, 4096) == 4 * 4096


def test_gguf_packs_embeddings_too() -> None:
    parameters = total_parameters(load_model("llama-3.1-8b"))
    # llama.cpp tools/quantize/README.md: 4.58 GiB for Llama-3.1-8B in Q4_K_M.
    assert whole("llama-3.1-8b", "gguf-q4_k_m") / 2**30 == pytest.approx(4.58, rel=0.005)
    assert whole("llama-3.1-8b", "gguf-q8_0") >= parameters * 8.5 / 8


@pytest.mark.parametrize(
    ("ignore", "spared", "plain"),  # `plain`: parameters; a layer has 3,145,728 of attention, 6,291,456 of its MLP
    [
        (["lm_head"], (), 0),
        (["re:.*self_attn.*", "re:.*lm_head"], ("attention",), 16 * 3_145_728),
        (["model.layers.0.self_attn", "lm_head"], (), 3_145_728),  # one layer of many
        ([f"model.layers.{layer}.self_attn" for layer in range(16)], ("attention",), 16 * 3_145_728),
        (["model.layers.1*"], (), 7 * (3_145_728 + 6_291_456)),  # layers 1, 10 to 15
        (["*.mlp.*"], ("mlp",), 16 * 6_291_456),
        (["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"], ("mlp",), 16 * 6_291_456),
        (["self_attn.q_proj"], (), 16 * 2_097_152),  # the output projection stays packed
        (["re:["], (), 0),
    ],
)
def test_modules_that_the_checkpoint_leaves_alone_stay_in_16_bits(
    ignore: list[str], spared: tuple[str, ...], plain: int
) -> None:
    quantization = {"quant_method": "fp8", "modules_to_not_convert": ignore}
    config = {**SMALL, "num_hidden_layers": 16, "quantization_config": quantization}
    arch = from_config(config, name="small")
    assert arch.unquantized == spared
    own = resolve_quantization(None, arch.native_quantization, spared=arch.unquantized)
    assert own.spared == spared
    tensors = list(stage_tensors(arch, Parallelism(), 0))
    packed = weight_bytes(find_quantization("fp8-tensor"), tensors, arch.dtype)
    assert weight_bytes(own, tensors, arch.dtype) - packed == pytest.approx(plain, rel=1e-4)


def test_another_format_than_the_checkpoint_s_spares_nothing() -> None:
    assert resolve_quantization("awq", "fp8-tensor", spared=("attention",)).spared == ()


@pytest.mark.parametrize(
    ("model", "settings", "words"),
    [
        ("qwen3-235b-a22b-fp8", {"tensor_parallel_size": 8}, "192 inputs does not hold whole groups of 128"),
        ("llama-2-7b", {"quantization": "awq", "dtype": "float32"}, "give --dtype float16 or bfloat16"),
        ("llama-2-7b", {"dtype": "int4"}, "allowed: auto, half"),
        ("llama-2-7b", {"quantization": "nf4", "vllm_version": "0.32.0"}, "not in vLLM 0.32.0"),
        ("llama-2-7b", {"quantization": "nf4", "vllm_version": "0.33.0"}, "not in vLLM 0.33.0"),
        ("llama-2-7b", {"quantization": "gptq-actorder"}, "not in vLLM 0.33.0"),
        ("llama-2-7b", {"quantization": "fp8-g32"}, "fp8 has no variants"),
        ("llama-2-7b", {"quantization": "awq-actorder"}, "awq has no variants"),
        ("llama-2-7b", {"quantization": "mxfp4"}, "packs experts only"),
    ],
)
def test_a_format_that_the_model_cannot_have_is_one_clear_error(model: str, settings: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        memory_budget(load_model(model), find_gpu("h200-sxm"), **settings)
    assert "\n" not in str(caught.value)


def test_a_share_without_whole_groups_is_a_refused_split() -> None:
    packed = replace(load_model("llama-2-7b"), native_quantization="awq")
    with pytest.raises(SplitError, match="2752 inputs does not hold whole groups"):
        memory_budget(packed, find_gpu("h200-sxm"), tensor_parallel_size=4)
    whole_experts = {"tensor_parallel_size": 8, "enable_expert_parallel": True}
    assert memory_budget(load_model("qwen3-235b-a22b-fp8"), find_gpu("h200-sxm"), **whole_experts).fits


def test_a_format_that_the_checkpoint_is_yet_to_have_is_taken_to_be_widened() -> None:
    gpu = find_gpu("h200-sxm")
    found = memory_budget(load_model("llama-2-7b"), gpu, quantization="awq", tensor_parallel_size=4)
    assert ("awq groups", "matrices widened to whole groups of 128") in {row[:2] for row in found.assumptions}
    whole = memory_budget(load_model("llama-2-7b"), gpu, quantization="awq", tensor_parallel_size=2)
    assert not any(row[0] == "awq groups" for row in whole.assumptions)


@pytest.mark.parametrize(
    ("asked", "native", "meant"),
    [
        ("fp4", "mxfp4", "mxfp4"), ("fp4", "int4-experts", "int4-experts"), ("fp4", None, "nvfp4"),
        ("fp4", "fp8-block", "nvfp4"), ("int4", "int4-experts", "int4-experts"), ("INT4", None, "w4a16"),
        ("int4", "gptq-g32", "gptq-g32"), ("int4", "gptq-8bit", "w4a16"), ("int4", "mxfp4", "w4a16"),
        ("fp8", "fp8-block", "fp8-block"), ("fp8", None, "fp8"), ("awq", "awq-g64", "awq-g64"), ("awq", "gptq", "awq"),
        ("gptq", "gptq-8bit", "gptq-8bit"), ("awq_marlin", None, "awq"), ("gptq_marlin", "gptq-g32", "gptq-g32"),
        ("gpt_oss_mxfp4", "mxfp4", "mxfp4"), ("nvfp4", "mxfp4", "nvfp4"), ("int8", None, "int8"),
        ("modelopt_fp4", "nvfp4", "nvfp4"), ("compressed-tensors", "w4a16", "w4a16"),
        ("fp8_per_block", None, "fp8-block"), ("bitsandbytes", None, "nf4"),
    ],
)  # fmt: skip
def test_a_loose_name_is_the_checkpoint_s_own_format_where_it_has_one_of_that_kind(
    asked: str, native: str | None, meant: str
) -> None:
    found = resolve_quantization(asked, native)
    assert (found.name, found.is_native) == (meant, meant == native)
    assert found.asked_as == (None if asked == meant else asked)


def test_a_loose_name_is_said_beside_the_format_that_it_was_read_as() -> None:
    found = memory_budget(load_model("gpt-oss-20b"), find_gpu("h100-sxm"), quantization="fp4")
    assert found.quantization == "mxfp4"
    assert ("weight format", "fp4: mxfp4", "the checkpoint's own format of that kind") in found.assumptions


def test_float32_doubles_weights_and_keys() -> None:
    arch, gpu = load_model("llama-3.1-8b"), find_gpu("h100-sxm")
    half, full = (memory_budget(arch, gpu, dtype=dtype) for dtype in ("auto", "float32"))
    assert (half.dtype, full.dtype, full.quantization) == ("bfloat16", "float32", "fp32")
    assert full.weights_bytes == pytest.approx(2 * half.weights_bytes, rel=0.04)  # but for the rotary table
    assert full.kv_bytes_per_token == 2 * half.kv_bytes_per_token
    assert memory_budget(arch, gpu, dtype="half").weights_bytes == half.weights_bytes


def test_what_a_format_does_not_pack_is_in_the_dtype() -> None:
    arch = load_model("llama-3.1-8b")
    assert with_dtype(arch, "auto") is arch
    assert with_dtype(arch, "half").dtype == "float16"
