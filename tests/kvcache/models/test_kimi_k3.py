"""Kimi-K3: linear attention with a full-rank gate, experts on a narrower copy of the hidden state."""

import pytest

from kvcache.gpus.gpu import find_gpu
from kvcache.layout.kv_layout import KVLayout, kv_layout
from kvcache.models.catalog import load_model
from kvcache.shape.parameters import parameter_counts, total_parameters


def layout(model: str, gpu: str, release: str = "0.33.0") -> KVLayout:
    return kv_layout(load_model(model), tensor_parallel_size=8, gpu=find_gpu(gpu), vllm_version=release)


def states(found: KVLayout) -> set[int]:
    return {group.states_per_request for group in found.groups if group.is_state}


def test_it_has_the_parameters_that_its_recipe_says() -> None:
    """vllm-project/recipes: 2.8T. Kimi-Linear's, published to the last digit, are as they were."""
    assert total_parameters(load_model("kimi-k3")) / 2.8e12 == pytest.approx(1, abs=0.01)
    assert total_parameters(load_model("kimi-linear")) == 49_122_681_728


def test_its_projections_are_those_of_vllms_layers() -> None:
    """vLLM 0.33 models/kimi_k3: 92 layers with experts read 3,584 of 7,168; a gate as wide as the heads of all 93."""
    arch = load_model("kimi-k3")
    kinds = [layer.state is not None for layer in arch.layers]
    assert (len(kinds), sum(kinds)) == (93, 69)
    hidden, width = 7168, 96 * 128
    of_state = 69 * (hidden * (4 * width + 96 + 128) + 128 * width + width * hidden + 4 * 3 * width + width + 96 + 128)
    assert parameter_counts(arch)["state_space"] == of_state
    latents = 92 * (2 * hidden * 3584 + 3584)
    assert parameter_counts(arch)["mlp"] == latents + 3 * hidden * 33_792
    of_latent = hidden * (1536 + 576) + 1536 * 96 * 192 + 512 * 96 * 256 + 2 * hidden * 96 * 128
    assert parameter_counts(arch)["attention"] == 24 * of_latent


@pytest.mark.parametrize(
    ("model", "gpu", "release", "held"),
    [
        ("kimi-k3", "b300-sxm", "0.33.0", 3),
        ("kimi-k3", "mi355x", "0.33.0", 2),
        ("kimi-linear", "h100-sxm", "0.33.0", 2),
        ("qwen3-next-80b", "h100-sxm", "0.33.0", 3),
        ("qwen3-next-80b", "h100-sxm", "0.32.0", 2),
        ("qwen3-next-80b", "a100-80gb", "0.33.0", 2),
    ],
)
def test_a_kernel_that_writes_states_on_its_way_needs_a_block_for_one(
    model: str, gpu: str, release: str, held: int
) -> None:
    """vLLM 0.33: FlashKDA on NVIDIA's GPUs since Hopper, FlashInfer's gated delta net there."""
    tp = 8 if model == "kimi-k3" else 2
    found = kv_layout(load_model(model), tensor_parallel_size=tp, gpu=find_gpu(gpu), vllm_version=release)
    assert states(found) == {held}


def test_such_blocks_are_multiples_of_what_the_kernel_can_write_at() -> None:
    assert layout("kimi-k3", "b300-sxm").block_size % 128 == 0
    older, newer = (
        kv_layout(load_model("qwen3-next-80b"), tensor_parallel_size=2, gpu=find_gpu("h100-sxm"), vllm_version=release)
        for release in ("0.32.0", "0.33.0")
    )
    assert newer.block_size % 64 == 0
    assert newer.block_size - older.block_size in range(64)
