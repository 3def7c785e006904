"""What a GPU holds beside weights or KV blocks, and how it grows."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcache.memory.terms import activation_peak_bytes, cuda_graph_bytes, non_torch_bytes
from kvcache.models.catalog import find_gpu, load_model
from kvcache.models.config.reader import from_config
from kvcache.parallelism import Parallelism
from simulator.engines.memory import memory_budget
from simulator.engines.vllm.arguments import EngineArgs

GIB = 2**30
VERSIONS = ["0.6.0", "0.15.0", "0.19.0", "0.26.0", "0.32.0", "0.33.0"]
MODELS = ["llama-3.1-8b", "gemma-3-27b", "mixtral-8x7b", "deepseek-v2-lite", "phi-2"]


def activation(model: str = "llama-3.1-70b", tp: int = 1, tokens: int = 8192, seqs: int = 1024, **more: Any) -> int:
    settings_ = {"samples": True, "vllm_version": "0.19.0", **more}
    return activation_peak_bytes(
        load_model(model),
        Parallelism(tensor_parallel_size=tp),
        max_num_batched_tokens=tokens,
        max_num_seqs=seqs,
        **settings_,
    )


@given(
    model=st.sampled_from(MODELS),
    version=st.sampled_from(VERSIONS),
    tokens=st.integers(64, 32768),
    seqs=st.integers(1, 2048),
    more=st.integers(1, 4096),
)
@settings(max_examples=60)
def test_larger_batches_never_take_less(model: str, version: str, tokens: int, seqs: int, more: int) -> None:
    here = activation(model, tokens=tokens, seqs=seqs, vllm_version=version)
    assert here <= activation(model, tokens=tokens + more, seqs=seqs, vllm_version=version)
    assert here <= activation(model, tokens=tokens, seqs=seqs + more, vllm_version=version)


def test_the_widest_layer_shrinks_with_tensor_parallelism_and_the_sampler_does_not() -> None:
    assert activation(tp=1, eight_bit=True) == pytest.approx(2.25 * GIB, rel=0.05)  # logged, w8a8 Llama-3.3-70B
    assert activation(tp=2, eight_bit=True) == pytest.approx(1.96 * GIB, rel=0.01)  # logged; so at TP 4
    assert activation(tp=2, eight_bit=True) == activation(tp=4, eight_bit=True)
    assert activation(tp=1, seqs=8) > activation(tp=2, seqs=8) > activation(tp=8, seqs=8)


def test_model_runner_v2_profiles_no_sampler_beyond_the_logits() -> None:
    old, new = (activation("llama-3.1-8b", vllm_version=version) for version in ("0.24.0", "0.25.1"))
    assert old - new > 0.8 * GIB
    mixture = [activation("mixtral-8x7b", vllm_version=version) for version in ("0.28.0", "0.29.0", "0.30.0")]
    assert mixture[1] < mixture[0]  # no token reached an expert
    assert mixture[1] < mixture[2]


def test_buffers_of_nvlink_all_reduces_belong_to_hopper_or_later() -> None:
    two = Parallelism(tensor_parallel_size=2)
    by_gpu = {name: non_torch_bytes(two, "0.19.0", find_gpu(name)) / GIB for name in ("h100-sxm", "a100-80gb", "l40s")}
    assert by_gpu["h100-sxm"] == pytest.approx(2.09)
    assert by_gpu["a100-80gb"] == by_gpu["l40s"] == pytest.approx(0.55)
    assert non_torch_bytes(two, "0.17.0", find_gpu("h100-sxm")) == pytest.approx(0.55 * GIB)


@pytest.mark.parametrize(
    ("model", "tp", "estimate_gib"),  # "Estimated CUDA graph memory" of vLLM 0.19 on H100
    [("qwen3-8b", 1, 0.84), ("llama-3.3-70b", 4, 1.70), ("deepseek-v2-lite", 1, 1.39),
     ("kimi-dev-72b", 2, 1.63), ("mixtral-8x7b", 2, 0.82)],
)  # fmt: skip
def test_graph_estimates_are_near_those_logged(model: str, tp: int, estimate_gib: float) -> None:
    arch = load_model(model)
    found = cuda_graph_bytes(
        arch,
        find_gpu("h100-sxm"),
        Parallelism(tensor_parallel_size=tp),
        num_layers=arch.num_hidden_layers,
        max_num_seqs=1024,
        is_eager=False,
        vllm_version="0.24.0",
    )
    assert found / GIB == pytest.approx(estimate_gib, rel=0.25)


@pytest.mark.parametrize(("version", "is_set_aside"), [("0.24.0", True), ("0.26.0", False), ("0.29.0", True)])
def test_model_runner_v2_set_nothing_aside_for_graphs_before_0_29(version: str, is_set_aside: bool) -> None:
    b = memory_budget(load_model("llama-3.1-8b"), find_gpu("h100-sxm"), max_model_len=8192, vllm_version=version)
    assert bool(b.cuda_graph_bytes) == is_set_aside


def test_a_quantized_mistral_splits_its_encoder() -> None:
    model, gpu = load_model("mistral-small-3.1-24b"), find_gpu("h100-sxm")
    settings_: dict[str, Any] = {"tensor_parallel_size": 2, "max_model_len": 8192, "vllm_version": "0.19.0"}
    packed = memory_budget(model, gpu, quantization="int8", **settings_)
    assert packed.weights_bytes / GIB == pytest.approx(12.11, rel=0.005)
    assert memory_budget(model, gpu, **settings_).weights_bytes / GIB == pytest.approx(22.80, rel=0.002)


def test_engine_v0_batched_whole_prompts() -> None:
    tokens = {}
    for length in (1024, 8192, 131072):
        args = EngineArgs(vllm_version="0.6.5", max_model_len=length)
        filled = args.filled(load_model("llama-3.1-8b"), find_gpu("h100-sxm"))
        tokens[length] = filled.max_num_batched_tokens
        assert filled.max_num_seqs == 256
    assert tokens == {1024: 2048, 8192: 8192, 131072: 2048}


def test_linear_rope_scaling_makes_longer_rotary_tables() -> None:
    longer = {name: load_model(name).longer_rotary_tables for name in ("gemma-3-12b", "gemma-2-27b", "llama-3.1-8b")}
    assert longer == {"gemma-3-12b": 7, "gemma-2-27b": 0, "llama-3.1-8b": 0}
    b = memory_budget(load_model("gemma-3-12b"), find_gpu("h100-sxm"), max_model_len=8192)
    assert b.weights_bytes / GIB == pytest.approx(23.31, rel=0.001)  # logged


@pytest.mark.parametrize(
    ("scaling", "longer"),
    [
        ({"rope_type": "linear", "factor": 4.0}, 3),
        ({"type": "linear", "factor": 2}, 1),
        ({"full_attention": {"rope_type": "linear", "factor": 8.0}, "sliding_attention": {"rope_type": "default"}}, 7),
        ({"rope_type": "yarn", "factor": 4.0}, 0),
        (None, 0),
    ],
)
def test_rope_scaling_is_read_in_either_form(scaling: object, longer: int) -> None:
    config = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 128, "max_position_embeddings": 64,
        "rope_scaling": scaling,
    }  # fmt: skip
    assert from_config(config, name="small").longer_rotary_tables == longer


@pytest.mark.parametrize(("tokens", "profiled_gib"), [(2048, 2.21), (3072, 2.32), (4096, 2.42), (8192, 2.84)])
def test_the_encoders_largest_image_is_part_of_the_profiled_peak(tokens: int, profiled_gib: float) -> None:
    # A hybrid of 16 attention, 48 GDN layers on RTX 5090: vLLM issue 52872, 2026-08.
    peak = activation("qwen3.6-27b", tokens=tokens, seqs=8, vllm_version="0.26.0")
    assert peak / GIB == pytest.approx(profiled_gib, rel=0.11)


@pytest.mark.parametrize(
    ("model", "gpu", "settings_", "pool_gib"),
    [  # Available KV cache memory per GPU in public logs
        ("nvidia/Qwen3.6-35B-A3B-NVFP4", "rtx-5090", {"vllm_version": "0.24.0", "max_num_seqs": 1}, 6.01),
        ("qwen3.6-27b", "rtx-3090",
         {"quantization": "fp8-block", "tensor_parallel_size": 2, "vllm_version": "0.28.0", "max_num_seqs": 2}, 4.99),
    ],
)  # fmt: skip
def test_hybrids_with_an_encoder_leave_what_small_gpus_logged(
    model: str, gpu: str, settings_: dict[str, Any], pool_gib: float
) -> None:
    limits = {"kv_cache_dtype": "fp8", "max_model_len": 131_072, "max_num_batched_tokens": 8192}
    budget = memory_budget(load_model(model), find_gpu(gpu), gpu_memory_utilization=0.92, **limits, **settings_)
    assert budget.available_kv_bytes / GIB == pytest.approx(pool_gib, rel=0.06)
    text_only = memory_budget(
        load_model(model), find_gpu(gpu), gpu_memory_utilization=0.92, language_model_only=True, **limits, **settings_
    )
    assert text_only.available_kv_bytes > budget.available_kv_bytes + GIB
