"""Which kernels vLLM picks decides the block size where none is given."""

from dataclasses import replace

import pytest

from kvcache.gpus.gpu import find_gpu
from kvcache.layout.attention_backend import AttentionBackend, attention_backend
from kvcache.layout.kv_layout import kv_layout
from kvcache.models.catalog import load_model
from simulator.engines.memory import memory_budget


@pytest.mark.parametrize(
    ("model", "gpu", "kv_cache_dtype", "name", "block_size"),
    [
        ("llama-3.1-8b", "h100-sxm", "auto", "FLASH_ATTN", 16),
        ("llama-3.1-8b", "a100-80gb", "fp8", "FLASHINFER", 16),
        ("llama-3.1-8b", "b200-sxm", "auto", "FLASHINFER", 16),
        ("phi-2", "b200-sxm", "auto", "FLASH_ATTN", 16),  # heads of 80, which FlashInfer lacks
        ("llama-3.1-8b", "h100-sxm", "fp8_per_token_head", "TRITON_ATTN", 16),
        ("llama-3.1-8b", "rtx-pro-6000", "nvfp4", "FLASHINFER", 16),
        ("llama-3.1-8b", "mi300x", "auto", "TRITON_ATTN", 16),
        ("deepseek-v3", "h100-sxm", "auto", "FLASH_ATTN_MLA", 16),
        ("deepseek-v3", "h100-sxm", "fp8", "FLASHMLA", 64),
        ("deepseek-v3", "b200-sxm", "auto", "FLASHINFER_MLA", 32),
        ("deepseek-v3", "a100-80gb", "fp8", "TRITON_MLA", 16),
        ("deepseek-v3", "rtx-pro-6000", "auto", "TRITON_MLA", 16),
    ],
)
def test_the_block_size_is_the_kernels(model: str, gpu: str, kv_cache_dtype: str, name: str, block_size: int) -> None:
    arch, device = load_model(model), find_gpu(gpu)
    assert attention_backend(arch, device, kv_cache_dtype).name == name
    assert kv_layout(arch, gpu=device, kv_cache_dtype=kv_cache_dtype).block_size == block_size
    budget = memory_budget(arch, device, kv_cache_dtype=kv_cache_dtype, tensor_parallel_size=1)
    assert budget.block_size == block_size
    assert kv_layout(arch, gpu=device, kv_cache_dtype=kv_cache_dtype, block_size=128).block_size == 128


def test_windowed_layers_take_the_largest_block_that_fits() -> None:
    exact = AttentionBackend(name="FLASHINFER", block_sizes=(16, 32, 64))
    assert [exact.windowed_block_size(size) for size in (16, 48, 64, 128)] == [16, 32, 64, 64]
    multiples = AttentionBackend(name="FLASH_ATTN", block_sizes=(16,), multiples=True)
    assert [multiples.windowed_block_size(size) for size in (8, 16, 48, 128)] == [16, 16, 48, 128]


@pytest.mark.parametrize(
    ("model", "gpu", "kv_cache_dtype", "why"),
    [
        ("phi-2", "h100-sxm", "nvfp4", "head size 80 .* only for 128, 256, 512"),
        ("gpt-oss-20b", "h100-sxm", "nvfp4", "head size 64"),
        ("llama-3.1-8b", "mi300x", "nvfp4", "no kernels on cdna3"),
        ("deepseek-v3", "h100-sxm", "fp8_ds_mla", "is for sparse attention"),
        ("deepseek-v3", "h100-sxm", "nvfp4", "not for latent attention"),
        ("llama-3.1-8b", "h100-sxm", "turboquant_k8v4", "not modelled: the first and last layers"),
        ("llama-3.1-8b", "h100-sxm", "int8", "no kv_cache_dtype 'int8'; allowed: auto"),
    ],
)
def test_formats_without_kernels_are_refused(model: str, gpu: str, kv_cache_dtype: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        kv_layout(load_model(model), gpu=find_gpu(gpu), kv_cache_dtype=kv_cache_dtype)


def test_sinks_cannot_be_read_from_an_nvfp4_cache_before_blackwell() -> None:
    arch = replace(load_model("llama-3.1-8b"), attention_sinks=True)
    with pytest.raises(ValueError, match="attention sinks"):
        kv_layout(arch, gpu=find_gpu("h100-sxm"), kv_cache_dtype="nvfp4")
    assert kv_layout(arch, gpu=find_gpu("b200-sxm"), kv_cache_dtype="nvfp4").bytes_per_token == 32 * 8 * 2 * 72


@pytest.mark.parametrize(
    ("kv_cache_dtype", "bytes_per_head"),
    [
        ("auto", 512), ("bfloat16", 512), ("fp8", 256), ("fp8_e5m2", 256), ("int8_per_token_head", 264),
        ("fp8_per_token_head", 264), ("int4_per_token_head", 136), ("nvfp4", 144), ("nvfp4_4over6", 144),
    ],
)  # fmt: skip
def test_a_head_of_128_takes_the_bytes_of_its_format(kv_cache_dtype: str, bytes_per_head: int) -> None:
    assert kv_layout(load_model("llama-3.1-8b"), kv_cache_dtype=kv_cache_dtype).bytes_per_token == (
        32 * 8 * bytes_per_head
    )
