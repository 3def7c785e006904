"""What a weight format costs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache.catalog import find_gpu, find_quantization, load_model
from kvcache.parallelism import Parallelism
from kvcache.parameters import stage_tensors, total_parameters
from kvcache.quantization import quantization_names, resolve_quantization, weight_bytes


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
