"""Layers that keep unequal caches get pages of one size, groups and blocks as in vLLM."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.models import with_attention
from kvcache.gpus.gpu import find_gpu
from kvcache.layout.attention_backend import attention_backend
from kvcache.layout.kv_content import kv_bytes_per_token_per_layer
from kvcache.layout.kv_layout import KVLayout, kv_layout
from kvcache.layout.state_content import state_bytes
from kvcache.models.catalog import load_model
from kvcache.models.config.reader import from_config
from kvcache.shape.architecture import Architecture
from kvcache.shape.layer import Layer, StateSpace
from simulator.engines.memory import memory_budget
from tests.kvcache.hybrid_models import CONFIGS, architecture

QWEN, GRANITE = "Qwen/Qwen3-Next-80B-A3B-Instruct", "ibm-granite/granite-4.0-h-small"
FALCON, LFM2 = "tiiuae/Falcon-H1-7B-Instruct", "LiquidAI/LFM2-1.2B"
KIMI, GEMMA_4 = "moonshotai/Kimi-Linear-48B-A3B-Instruct", "google/gemma-4-31b-it"
GEMMA_4_SMALL, GEMMA_3N = "google/gemma-4-E2B-it", "google/gemma-3n-E2B-it"


def held_layers(layout: KVLayout, *, states: bool) -> list[int]:
    return sorted(layer for group in layout.groups if group.is_state is states for layer in group.layers)


# What vLLM 0.32 logs as "Setting attention block size to ... tokens", at TP 1 on H100.
@pytest.mark.parametrize(
    ("name", "block_size"),
    [
        (QWEN, 544),
        (GRANITE, 528),
        ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", 1312),
        (FALCON, 1568),
        (LFM2, 16),
        ("ai21labs/AI21-Jamba-Mini-1.6", 80),
        (KIMI, 1920),
    ],
)
def test_a_block_of_attention_holds_a_state(name: str, block_size: int) -> None:
    arch = architecture(name)
    layout = kv_layout(arch, vllm_version="0.32.0")
    assert arch.state_space is not None
    assert layout.block_size == block_size
    assert layout.page_size_bytes >= state_bytes(arch.state_space, "bfloat16")
    assert layout.page_size_bytes == block_size * kv_bytes_per_token_per_layer(arch)


def test_a_given_block_size_grows_until_a_state_fits() -> None:
    sizes = {"0.32.0": (544, 1024, 640), "0.33.0": (576, 1024, 640)}
    for release, grown in sizes.items():
        layouts = [kv_layout(architecture(QWEN), block_size=given, vllm_version=release) for given in (32, 1024, 128)]
        assert tuple(layout.block_size for layout in layouts) == grown


@pytest.mark.parametrize(
    ("gpu", "release", "caching", "leaves"),
    [
        ("h100-sxm", "0.33.0", True, True),
        ("b200-sxm", "0.33.0", True, True),
        ("rtx-pro-6000", "0.33.0", True, True),
        ("h100-sxm", "0.32.0", True, False),
        ("h100-sxm", "0.33.0", False, False),
        ("a100-80gb", "0.33.0", True, False),
        ("mi300x", "0.33.0", True, False),
    ],
)
def test_a_prefill_leaves_states_on_its_way_where_its_kernel_can(
    gpu: str, release: str, caching: bool, leaves: bool
) -> None:
    arch, device = architecture(QWEN), find_gpu(gpu)
    layout = kv_layout(arch, gpu=device, vllm_version=release, enable_prefix_caching=caching)
    states = [group for group in layout.groups if group.is_state]
    assert {group.keeps_checkpoints for group in states} == {leaves}
    assert {group.states_per_request for group in states} == {1 + caching + leaves}
    kernel = attention_backend(arch, device).block_sizes[0]
    assert arch.state_space is not None
    smallest = -(-state_bytes(arch.state_space, "bfloat16") // kv_bytes_per_token_per_layer(arch))
    unit = 64 if leaves else kernel
    assert layout.block_size == -(-smallest // unit) * unit


@pytest.mark.parametrize("name", list(CONFIGS))
def test_every_layer_with_a_cache_of_its_own_is_in_one_group_of_its_kind(name: str) -> None:
    arch, layout = architecture(name), kv_layout(architecture(name))
    assert held_layers(layout, states=False) == [index for index, layer in enumerate(arch.layers) if layer.caches_kv]
    assert held_layers(layout, states=True) == [index for index, layer in enumerate(arch.layers) if layer.state]


def test_a_layer_with_attention_beside_a_state_is_in_two_groups() -> None:
    attention, states = kv_layout(architecture(FALCON)).groups
    assert attention.layers == states.layers == tuple(range(44))
    assert (attention.is_state, states.is_state) == (False, True)


def test_layers_that_share_a_cache_cost_nothing() -> None:
    arch = architecture(GEMMA_3N)
    alone = with_attention(arch, kv_owner=None)
    assert kv_layout(arch).bytes_per_token * 30 == kv_layout(alone).bytes_per_token * 20


def test_fewer_bytes_per_token_mean_more_tokens_in_a_block() -> None:
    windowed, full = kv_layout(architecture(GEMMA_4)).groups[0], kv_layout(architecture(GEMMA_4)).groups[-1]
    assert (windowed.window, windowed.block_size) == (1024, None)
    assert (full.window, full.block_size) == (None, 32)  # 4 heads of 512 are half of 16 heads of 256
    small = kv_layout(architecture(GEMMA_4_SMALL))
    assert [group.block_size for group in small.groups] == [32, 32, 32, 32, None]


def test_pages_that_do_not_divide_the_largest_are_padded() -> None:
    config = {**CONFIGS[GEMMA_4], "global_head_dim": 320, "num_global_key_value_heads": 8}
    layout = kv_layout(from_config(config, name=GEMMA_4))
    assert layout.page_size_bytes == 16 * 16 * 2 * 256 * 2
    assert {group.block_size for group in layout.groups} == {None}
    full = next(group for group in layout.groups if group.window is None)
    assert layout.bytes_per_token == 50 * 16384 + len(full.layers) * 8 * 2 * 320 * 2  # the padding is no token's


def test_with_prefix_caching_states_are_kept_at_block_ends() -> None:
    settings: dict[str, Any] = {"vllm_version": "0.32.0"}
    aligned, plain = (kv_layout(architecture(QWEN), enable_prefix_caching=flag, **settings) for flag in (True, False))
    assert (aligned.mamba_cache_mode, plain.mamba_cache_mode) == ("align", "none")
    assert {group.states_per_request for group in aligned.groups if group.is_state} == {2}
    assert {group.states_per_request for group in plain.groups if group.is_state} == {1}
    assert aligned.state_bytes_per_request == 2 * plain.state_bytes_per_request == 2 * 36 * 1114112
    assert kv_layout(load_model("qwen3-8b")).mamba_cache_mode is None


def test_mamba_2_needs_a_block_more_for_a_state_within_a_prefill() -> None:
    states = [group for group in kv_layout(architecture(GRANITE)).groups if group.is_state]
    assert {group.states_per_request for group in states} == {3}
    assert all(group.blocks_per_request(131072, 16384, 528) == 3 for group in states)


def test_drafted_tokens_need_a_state_each() -> None:
    layout = kv_layout(architecture(QWEN), enable_prefix_caching=False, num_speculative_tokens=3)
    assert {group.states_per_request for group in layout.groups if group.is_state} == {4}


def test_without_any_attention_states_are_not_cached() -> None:
    arch = architecture(GRANITE)
    bare = replace(arch, layers=(Layer(state=arch.state_space),) * 40)
    layout = kv_layout(bare)
    assert (layout.mamba_cache_mode, layout.block_size, layout.bytes_per_token) == ("none", 16, 0)
    assert layout.blocks_per_request(131072, 16384) == 1


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_a_convolution_without_a_group_for_each_rank_repeats_them(tp: int) -> None:
    space = StateSpace(kind="mamba2", conv_kernel=4, num_heads=128, head_dim=64, num_groups=1, state_size=128)
    conv = (128 * 64 + 2 * tp * 128) // tp * 3
    assert state_bytes(space, "bfloat16", tp) == 2 * (conv + 128 // tp * 64 * 128)


def test_a_recurrent_state_may_be_wider_than_the_model() -> None:
    space = StateSpace(kind="mamba2", conv_kernel=4, num_heads=8, head_dim=64, num_groups=8, state_size=128)
    recurrent = 8 * 64 * 128
    assert state_bytes(replace(space, state_dtype="float32"), "bfloat16") - state_bytes(space, "bfloat16") == (
        2 * recurrent
    )


def test_a_split_or_a_dtype_that_cannot_be_is_refused() -> None:
    space = StateSpace(kind="short_conv", conv_kernel=3, intermediate_size=100)
    with pytest.raises(ValueError, match=r"tensor_parallel_size 8 does not divide the width of the .* layers, 100"):
        state_bytes(space, "bfloat16", 8)
    with pytest.raises(ValueError, match="SSM state of dtype 'int8' is not known"):
        state_bytes(replace(space, kind="mamba1", state_dtype="int8"), "bfloat16")
    with pytest.raises(ValueError, match="no kind of state 'rwkv'"):
        state_bytes(replace(space, kind="rwkv"), "bfloat16")


def test_a_pipeline_stage_without_a_cache_is_refused() -> None:
    arch = architecture(GEMMA_3N)
    with pytest.raises(ValueError, match="no layer of stage 2 keeps anything"):
        kv_layout(arch, pipeline_parallel_size=3)


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_latent_attention_beside_states_has_blocks_of_whole_128_tokens(tp: int) -> None:
    sizes = {name: kv_layout(architecture(name), tensor_parallel_size=tp).block_size for name in (KIMI, GRANITE)}
    assert sizes[KIMI] % 128 == 0
    assert sizes[GRANITE] % 128 != 0


@given(st.sampled_from(list(CONFIGS)), st.sampled_from([1, 2, 4]), st.sampled_from(["auto", "fp8"]), st.booleans())
def test_all_groups_have_pages_of_one_size(name: str, tp: int, kv_cache_dtype: str, caching: bool) -> None:
    arch = architecture(name)
    layout = kv_layout(arch, tensor_parallel_size=tp, kv_cache_dtype=kv_cache_dtype, enable_prefix_caching=caching)
    for group in layout.groups:
        if group.is_state:
            assert arch.state_space is not None
            assert layout.page_size_bytes >= state_bytes(arch.state_space, arch.dtype, tp)
            continue
        per_token = kv_bytes_per_token_per_layer(arch, tp, kv_cache_dtype, arch.layers[group.layers[0]].attention)
        assert (group.block_size or layout.block_size) * per_token <= layout.page_size_bytes


@given(st.sampled_from(list(CONFIGS)), st.integers(1, 300_000))
def test_longer_requests_never_need_fewer_blocks(name: str, length: int) -> None:
    layout = kv_layout(architecture(name))
    assert layout.blocks_per_request(length, 8192) <= layout.blocks_per_request(length + 1, 8192)


def without_states(arch: Architecture) -> Architecture:
    return replace(arch, layers=tuple(Layer(attention=arch.attention) for _ in arch.layers))


def test_the_memory_budget_counts_states_apart() -> None:
    arch, gpu = architecture(QWEN), find_gpu("h100-sxm")
    settings = {"tensor_parallel_size": 4, "max_model_len": 32768, "num_gpu_blocks_override": 4000}
    layout = kv_layout(arch, tensor_parallel_size=4)
    budget = memory_budget(without_states(arch), gpu, **settings)
    assert budget.state_bytes_per_request == 0
    budget = memory_budget(arch, gpu, **settings)
    assert budget.kv_bytes_per_token == 12 * 2 * 2 * 256 * 2
    assert budget.state_bytes_per_request == layout.state_bytes_per_request
    assert budget.block_size == layout.block_size
    assert budget.max_concurrency == 4000 / layout.blocks_per_request(32768, 2 * budget.max_num_batched_tokens)
    assert budget.kv_cache_tokens == int(budget.max_concurrency * 32768)
    assert ("SSM / linear-attention state cache", "mode align: at most 3 per request and layer") in [
        row[:2] for row in budget.assumptions
    ]
    same_blocks = {**settings, "block_size": budget.block_size}
    plain = memory_budget(arch, gpu, **same_blocks, enable_prefix_caching=False)
    assert plain.max_concurrency > budget.max_concurrency
