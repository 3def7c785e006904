"""How the KV pool is cut up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache.layout.kv_content import kv_bytes_per_token_per_layer
from kvcache.layout.kv_layout import KVGroup, cache_groups, kv_layout
from kvcache.layout.layer_caches import LayerCache
from kvcache.models.catalog import load_model


def groups_of(windows: list[int | None]) -> tuple[KVGroup, ...]:
    """Of layers that differ in their windows alone."""
    layers = [LayerCache(layer=i, window=each, block_size=1, page_size_bytes=1) for i, each in enumerate(windows)]
    return cache_groups(layers, block_size=1)


@pytest.mark.parametrize(
    ("name", "kib_per_token"),
    [("llama-3.1-8b", 128), ("llama-3.1-70b", 320), ("llama-2-7b", 512), ("qwen3-32b", 256), ("falcon-7b", 8)],
)
def test_a_token_costs_keys_with_values_of_every_kv_head_in_every_layer(name: str, kib_per_token: int) -> None:
    assert kv_layout(load_model(name)).bytes_per_token == kib_per_token * 1024


def test_mla_latent_is_whole_on_every_rank() -> None:
    arch = load_model("deepseek-v3")
    assert {kv_bytes_per_token_per_layer(arch, tp) for tp in (1, 2, 4, 8, 16)} == {(512 + 64) * 2}
    assert kv_bytes_per_token_per_layer(arch, 8, "fp8") == 576
    assert kv_bytes_per_token_per_layer(arch, 8, "fp8_ds_mla") == 656


def test_kv_heads_split_until_one_is_left() -> None:
    arch = load_model("llama-3.1-70b")
    assert [kv_bytes_per_token_per_layer(arch, tp) for tp in (1, 2, 8, 16)] == [4096, 2048, 512, 512]


def test_fp8_halves_the_cache() -> None:
    arch = load_model("llama-3.1-8b")
    assert 2 * kv_bytes_per_token_per_layer(arch, 1, "fp8_e4m3") == kv_bytes_per_token_per_layer(arch)


def test_an_unknown_kv_dtype_is_refused_with_the_allowed_ones() -> None:
    arch = load_model("llama-3.1-8b")
    with pytest.raises(ValueError, match="allowed: auto, bfloat16"):
        kv_bytes_per_token_per_layer(arch, 1, "int3")
    with pytest.raises(ValueError, match="needs latent attention"):
        kv_bytes_per_token_per_layer(arch, 1, "fp8_ds_mla")
    with pytest.raises(ValueError, match="block_size is 0"):
        kv_layout(arch, block_size=0)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("llama-3.1-8b", [32]),
        ("gpt-oss-120b", [18, 18]),
        ("gemma-2-27b", [23, 23]),
        ("gemma-3-27b", [9, 9, 9, 9, 8, 8, 10]),  # 52 windowed layers dealt into 6 groups, 10 full ones
        ("llama-4-scout", [12, 12, 12, 12]),
    ],
)
def test_hybrid_layers_are_grouped_as_vllm_groups_them(name: str, sizes: list[int]) -> None:
    assert [len(group.layers) for group in kv_layout(load_model(name)).groups] == sizes


def test_nearly_equal_kinds_share_the_larger_size() -> None:
    # vLLM's own example: gpt-oss-20b with a draft model, 12 windowed and 13 full layers.
    assert [len(group.layers) for group in groups_of([128] * 12 + [None] * 13)] == [12, 13]


@given(st.lists(st.sampled_from([None, 128, 4096]), min_size=1, max_size=80))
def test_groups_hold_each_layer_once(windows: list[int | None]) -> None:
    groups = groups_of(windows)
    assert sorted(layer for group in groups for layer in group.layers) == list(range(len(windows)))
    assert all(windows[layer] == group.window for group in groups for layer in group.layers)


def test_a_windowed_group_keeps_the_window_with_what_is_in_flight() -> None:
    full, windowed = groups_of([None, 1024])
    assert full.blocks_per_request(131072, 8192, 16) == 8192
    assert windowed.blocks_per_request(131072, 8192, 16) == -(-(1023 + 8192) // 16) + 1
    assert windowed.blocks_per_request(512, 8192, 16) == 33  # never more than the request, but one for misalignment


@given(st.integers(1, 200_000), st.sampled_from(["gpt-oss-20b", "gemma-3-12b", "llama-4-scout", "qwen3-8b"]))
def test_longer_requests_never_need_fewer_blocks(length: int, name: str) -> None:
    layout = kv_layout(load_model(name))
    assert layout.blocks_per_request(length, 8192) <= layout.blocks_per_request(length + 1, 8192)


def test_the_poorest_pipeline_stage_decides_the_pool() -> None:
    layout = kv_layout(load_model("llama-3.1-70b"), pipeline_parallel_size=4)
    one_block = layout.block_bytes(0)
    assert one_block == 20 * layout.page_size_bytes
    assert layout.num_blocks([100 * one_block, 50 * one_block, 70 * one_block, 90 * one_block]) == 50
    assert layout.num_blocks([-1, 50, 70, 90]) == 0
