"""Ling 2.6 and 3.0: lightning attention, or Kimi delta attention, between layers of latent attention."""

from typing import Any

import pytest

from kvcache.gpus.gpu import find_gpu
from kvcache.layout.kv_layout import kv_layout
from kvcache.layout.state_content import state_bytes
from kvcache.models.catalog import load_model
from kvcache.models.config.reader import from_config
from kvcache.models.drafters import find_drafter
from kvcache.parallelism import Parallelism
from kvcache.shape.architecture import Architecture, with_state_dtype
from kvcache.shape.parameters import active_parameters, parameter_counts, stage_tensors, total_parameters

FLASH_3, FLASH_2 = "inclusionAI/Ling-3.0-flash", "inclusionAI/Ling-2.6-flash"
SMALL: dict[str, Any] = {
    "model_type": "bailing_hybrid", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 8,
    "layer_group_size": 3, "num_attention_heads": 4, "head_dim": 64, "vocab_size": 1000, "q_lora_rank": None,
    "short_conv_kernel_size": 4,
}  # fmt: skip


def attending(arch: Architecture) -> list[int]:
    return [index for index, layer in enumerate(arch.layers) if layer.attention]


def test_ling_3_has_its_published_parameters_to_the_last_with_its_draft_layer() -> None:
    arch = load_model(FLASH_3)
    drafter = find_drafter(arch, "mtp")
    assert drafter is not None
    layer = sum(
        tensor.parameters
        for tensor in drafter.tensors(Parallelism(pad_vocabulary_to=1))
        if tensor.component not in ("embedding", "lm_head")
    )
    norms = 2 * arch.hidden_size  # of the two states that it joins
    assert total_parameters(arch) + layer + norms == 127_486_405_600
    assert active_parameters(arch) / 1e9 == pytest.approx(5.5, rel=0.01)  # vllm-project/recipes


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [(FLASH_2, 104, 7.4), ("inclusionAI/Ling-2.6-1T", 1012, 63), ("inclusionAI/Ring-2.6-1T", 1012, 63)],
)
def test_ling_2_6_has_the_parameters_that_its_cards_say(name: str, total: float, active: float) -> None:
    arch = load_model(name)
    assert total_parameters(arch) / 1e9 == pytest.approx(total, rel=0.003)
    assert active_parameters(arch) / 1e9 == pytest.approx(active, rel=0.01)


def test_the_last_layer_of_each_group_attends() -> None:
    assert attending(load_model(FLASH_3)) == [5, 11, 17, 23, 29, 35, 41]
    assert attending(load_model(FLASH_2)) == [7, 15, 23, 31]


def test_layers_behind_the_last_whole_group_attend_in_ling_3_alone() -> None:
    assert attending(from_config({**SMALL, "no_kda_lora": True}, name="3.0")) == [2, 5, 6, 7]
    assert attending(from_config({**SMALL, "group_norm_size": 4}, name="2.6")) == [2, 5]
    with pytest.raises(ValueError, match="layer_group_size is 0, must be positive"):
        from_config({**SMALL, "layer_group_size": 0}, name="2.6")


def test_states_are_those_of_vllms_layers() -> None:
    """vLLM 0.33 MambaStateShapeCalculator: three tokens' inputs and a state in fp32; a state alone in 16 bits."""
    delta, lightning = load_model(FLASH_3).state_space, load_model(FLASH_2).state_space
    assert delta is not None
    assert lightning is not None
    assert state_bytes(delta, "bfloat16", 4) == 2 * 3 * 3 * 32 // 4 * 128 + 4 * 32 // 4 * 128 * 128
    assert state_bytes(lightning, "bfloat16", 4, 3) == 2 * 32 // 4 * 128 * 128


@pytest.mark.parametrize("name", [FLASH_3, FLASH_2])
def test_no_kernel_of_theirs_writes_states_on_its_way(name: str) -> None:
    layout = kv_layout(load_model(name), tensor_parallel_size=2, gpu=find_gpu("h200"), vllm_version="0.33.0")
    assert {group.states_per_request for group in layout.groups if group.is_state} == {2}


def test_states_keep_the_dtype_that_vllm_gives_them() -> None:
    with pytest.raises(ValueError, match="is float32 alone"):
        with_state_dtype(load_model(FLASH_3), "bfloat16")
    assert with_state_dtype(load_model(FLASH_2), "float32") == load_model(FLASH_2)


def test_ling_3_s_gates_are_of_each_head_or_of_each_element() -> None:
    def attention(kind: str | None) -> int:
        config = {**SMALL, "no_kda_lora": True, "gated_attention_proj_granularity_type": kind, "v_head_dim": 32}
        return parameter_counts(from_config(config, name="test"))["attention"]

    assert attention("head_wise") - attention(None) == 4 * 4 * 256
    assert attention("element_wise") - attention(None) == 4 * 4 * 32 * 256


def test_ling_2_6_is_split_where_its_norm_is() -> None:
    with pytest.raises(ValueError, match="tensor_parallel_size 8 does not divide the 4 groups that linear attention"):
        list(stage_tensors(load_model(FLASH_2), Parallelism(tensor_parallel_size=8), 0))


def test_shared_experts_in_blocks_of_fp8_are_padded_until_every_rank_has_whole_blocks() -> None:
    """vLLM 0.33 _get_block_fp8_mlp_padded_intermediate_size: 768 columns become 1,024 for four ranks."""

    def shared(name: str, ranks: int) -> int:
        tensors = stage_tensors(load_model(name), Parallelism(tensor_parallel_size=ranks), 0)
        return sum(tensor.parameters for tensor in tensors if tensor.component == "shared_experts")

    whole = 40 * 3 * 2560 * 768
    assert [shared(f"{FLASH_3}-fp8", ranks) * ranks for ranks in (1, 2, 4)] == [whole, whole, whole // 3 * 4]
    assert shared(FLASH_3, 4) * 4 == whole
