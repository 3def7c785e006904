"""What a config says of layers with a state, shared caches or heads of their own."""

from typing import Any

import pytest

from kvcache.errors import SplitError
from kvcache.models.config.reader import from_config
from kvcache.parallelism import Parallelism
from kvcache.shape.architecture import Architecture
from kvcache.shape.parameters import COMPONENTS, active_parameters, parameter_counts, stage_tensors, total_parameters

# Facts of each public config.json, without what equals the class's default.
QWEN3_NEXT: dict[str, Any] = {
    "model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 16,
    "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 151936, "intermediate_size": 5120, "num_experts": 512,
    "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "full_attention_interval": 4, "max_position_embeddings": 262144,
}  # fmt: skip
KIMI_LINEAR: dict[str, Any] = {
    "model_type": "kimi_linear", "hidden_size": 2304, "num_hidden_layers": 27, "num_attention_heads": 32,
    "intermediate_size": 9216, "moe_intermediate_size": 1024, "num_experts": 256, "num_experts_per_token": 8,
    "num_shared_experts": 1, "first_k_dense_replace": 1, "kv_lora_rank": 512, "q_lora_rank": None,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 163840,
    "model_max_length": 1048576,
    "linear_attn_config": {
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4,
        "kda_layers": [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26],
    },
}  # fmt: skip
JAMBA: dict[str, Any] = {
    "model_type": "jamba", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 65536, "num_experts": 16,
    "num_experts_per_tok": 2, "attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2,
    "expert_layer_offset": 1, "mamba_d_conv": 4, "mamba_d_state": 16, "mamba_dt_rank": 256, "mamba_expand": 2,
}  # fmt: skip
LFM2: dict[str, Any] = {
    "model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
    "num_key_value_heads": 8, "block_ff_dim": 12288, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256,
    "conv_L_cache": 3, "full_attn_idxs": [2, 5, 8, 10, 12, 14], "vocab_size": 65536, "tie_embedding": True,
}  # fmt: skip
GRANITE: dict[str, Any] = {
    "model_type": "granitemoehybrid", "hidden_size": 1536, "num_hidden_layers": 40, "num_attention_heads": 12,
    "num_key_value_heads": 4, "intermediate_size": 512, "shared_intermediate_size": 1024, "num_local_experts": 64,
    "num_experts_per_tok": 6, "mamba_n_heads": 48, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1,
    "vocab_size": 100352, "tie_word_embeddings": True, "position_embedding_type": "nope",
    "layer_types": ["attention" if layer in (5, 15, 25, 35) else "mamba" for layer in range(40)],
}  # fmt: skip
GRANITE_SMALL = {
    **GRANITE, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 768,
    "shared_intermediate_size": 1536, "num_local_experts": 72, "num_experts_per_tok": 10, "mamba_n_heads": 128,
}  # fmt: skip
NEMOTRON: dict[str, Any] = {
    "model_type": "nemotron_h", "hidden_size": 4480, "num_hidden_layers": 56, "num_attention_heads": 40,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 15680, "mamba_num_heads": 128,
    "mamba_head_dim": 80, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4, "vocab_size": 131072,
    "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
}  # fmt: skip
FALCON: dict[str, Any] = {
    "model_type": "falcon_h1", "hidden_size": 5120, "num_hidden_layers": 72, "num_attention_heads": 20,
    "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 21504, "vocab_size": 261120, "mamba_d_ssm": 4096,
    "mamba_n_heads": 32, "mamba_d_head": 128, "mamba_n_groups": 2, "mamba_d_state": 256,
}  # fmt: skip
GEMMA3N = {"model_type": "gemma3n_text", "num_hidden_layers": 35, "hidden_size": 2048}
GEMMA4: dict[str, Any] = {
    "model_type": "gemma4_text", "hidden_size": 2816, "num_hidden_layers": 30, "num_attention_heads": 16,
    "num_key_value_heads": 8, "num_global_key_value_heads": 2, "attention_k_eq_v": True, "intermediate_size": 2112,
    "enable_moe_block": True, "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704,
    "hidden_size_per_layer_input": 0,
}  # fmt: skip
MAMBA2 = {"model_type": "mamba2", "hidden_size": 4096, "num_hidden_layers": 64, "vocab_size": 32768}


def read(config: dict[str, Any], **changes: Any) -> Architecture:
    return from_config({key: value for key, value in {**config, **changes}.items() if value != "absent"}, name="test")


def attending(config: dict[str, Any]) -> list[int]:
    return [index for index, layer in enumerate(read(config).layers) if layer.attention]


@pytest.mark.parametrize(
    ("config", "published"),
    # Totals as Hugging Face lists them for the safetensors; Qwen3-Next's list has a prediction layer beside.
    [
        (KIMI_LINEAR, 49_122_681_728),
        (JAMBA, 51_570_323_328),
        (LFM2, 1_170_340_608),
        (GRANITE, 6_939_037_248),
        (GRANITE_SMALL, 32_207_337_984),
    ],
)
def test_total_parameters_equal_the_published_count(config: dict[str, Any], published: int) -> None:
    assert total_parameters(read(config)) == published


@pytest.mark.parametrize(
    ("config", "billions"),
    [(QWEN3_NEXT, 80), (KIMI_LINEAR, 48), (NEMOTRON, 8.9), (FALCON, 33.6), (GEMMA4, 25.2)],  # model cards
)
def test_total_parameters_are_about_what_the_model_card_says(config: dict[str, Any], billions: float) -> None:
    assert total_parameters(read(config)) / 1e9 == pytest.approx(billions, rel=0.025)


def test_gemma_3n_with_its_encoders_has_the_published_count_but_for_unused_keys() -> None:
    # google/gemma-3n-E4B-it: 7,849,978,192, of which 15 layers' keys, values and key norms are never loaded.
    arch = from_config({"model_type": "gemma3n", "text_config": GEMMA3N, "vision_config": {}}, name="E4B")
    assert total_parameters(arch) == 7_849_978_192 - 15 * (2 * 512 * 2048 + 256)
    assert not arch.assumptions


def test_each_family_s_way_of_listing_layers_is_read() -> None:
    assert attending(QWEN3_NEXT) == list(range(3, 48, 4))
    assert attending(KIMI_LINEAR) == [3, 7, 11, 15, 19, 23, 26]
    assert attending(JAMBA) == [4, 12, 20, 28]
    assert attending(LFM2) == [2, 5, 8, 10, 12, 14]
    assert attending(GRANITE) == [5, 15, 25, 35]
    assert attending(NEMOTRON) == [14, 21, 30, 39]
    assert len(read(FALCON).layers) == 72
    assert all(layer.attention and layer.state for layer in read(FALCON).layers)
    assert len(read(MAMBA2).layers) == 64
    assert not any(layer.attention or layer.intermediate_size for layer in read(MAMBA2).layers)


def test_a_list_of_layers_wins_over_a_rule() -> None:
    listed = ["full_attention", "linear_attention"] * 24
    assert [layer.state is not None for layer in read(QWEN3_NEXT, layer_types=listed).layers] == [False, True] * 24


def test_nemotron_h_may_list_its_layers_by_name_without_their_number() -> None:
    names = {"M": "mamba", "*": "attention", "-": "mlp"}
    listed = [names[letter] for letter in NEMOTRON["hybrid_override_pattern"]]
    by_name = read(NEMOTRON, hybrid_override_pattern="absent", layers_block_type=listed, num_hidden_layers="absent")
    assert by_name == read(NEMOTRON)
    assert not any(layer.intermediate_size and layer.state for layer in by_name.layers)


@pytest.mark.parametrize(
    ("config", "changes", "dtype"),
    # vLLM 0.32, models/config.py, mamba_utils.py: what an "auto" mamba_ssm_cache_dtype becomes.
    [
        (QWEN3_NEXT, {}, "auto"),
        (QWEN3_NEXT, {"model_type": "qwen3_5_moe_text", "mamba_ssm_dtype": "float32"}, "float32"),
        (QWEN3_NEXT, {"mamba_ssm_dtype": "float32"}, "auto"),
        (KIMI_LINEAR, {}, "float32"),
        (NEMOTRON, {}, "float32"),
        (NEMOTRON, {"mamba_ssm_cache_dtype": "float16"}, "float16"),
        (GRANITE, {}, "auto"),
        (JAMBA, {}, "auto"),
        (LFM2, {}, "auto"),
    ],
)
def test_the_state_has_the_dtype_that_vllm_gives_it(config: dict[str, Any], changes: Any, dtype: str) -> None:
    state = read(config, **changes).state_space
    assert state is not None
    assert state.state_dtype == dtype


def test_gemma_3n_s_last_layers_read_the_cache_of_the_last_of_their_kind() -> None:
    attention = [layer.attention for layer in read(GEMMA3N).layers]
    assert [each.kv_owner for each in attention[:20]] == [None] * 20
    assert [each.kv_owner for each in attention[20:25]] == [18, 18, 18, 18, 19]
    assert [each.window for each in attention[18:20]] == [512, None]


def test_gemma_4_s_full_attention_has_heads_of_its_own() -> None:
    windowed, full = (read(GEMMA4).layers[index].attention for index in (4, 5))
    assert (full.window, full.num_kv_heads, full.head_dim) == (None, 2, 512)
    assert (windowed.window, windowed.num_kv_heads, windowed.head_dim) == (512, 8, 256)
    plain = read(GEMMA4, attention_k_eq_v=False, global_head_dim=256)
    assert {(layer.attention.num_kv_heads, layer.attention.head_dim) for layer in plain.layers} == {(8, 256)}


def test_keys_that_serve_as_values_are_counted_once_but_held_twice() -> None:
    arch = read(GEMMA4)
    held = sum(tensor.elements for tensor in stage_tensors(arch, Parallelism(pad_vocabulary_to=1), 0))
    assert held - total_parameters(arch) == 5 * 2 * 512 * 2816  # the five full-attention layers' second copy


@pytest.mark.parametrize(
    ("config", "changes", "words"),
    [
        (QWEN3_NEXT, {"layer_types": ["full_attention"] * 4}, "4 layers listed for 48 hidden layers"),
        (QWEN3_NEXT, {"layer_types": ["rwkv"] * 48}, "layers of kind rwkv are not modelled"),
        (QWEN3_NEXT, {"linear_num_key_heads": 12}, "32 heads of its state-space layers are not a multiple"),
        (QWEN3_NEXT, {"linear_conv_kernel_dim": 0}, "conv_kernel of its state-space layers is 0"),
        (QWEN3_NEXT, {"layer_types": "linear"}, "layer_types is 'linear'; it must be a list"),
        (KIMI_LINEAR, {"num_hidden_layers": 28}, "must name each of the layers 1–28 once"),
        (NEMOTRON, {"num_hidden_layers": 52}, "56 layers listed for 52 hidden layers"),
        (NEMOTRON, {"hybrid_override_pattern": "M*X"}, "must be made of M"),
        (NEMOTRON, {"intermediate_size": [15680, 7840]}, "MLPs of different widths are not modelled"),
        (JAMBA, {"attn_layer_offset": 8}, "attn_layer_offset 8 must be below attn_layer_period 8"),
        (GRANITE, {"mamba_d_head": 32}, "48 state-space heads of 32 do not make up the width 3072"),
        (GRANITE, {"mamba_expand": "wide"}, "mamba_expand is 'wide'; it must be a number above 0"),
        (LFM2, {"full_attn_idxs": [16]}, "names layer 16 of 16 hidden layers"),
        (GEMMA3N, {"num_kv_shared_layers": 35}, "leaves no earlier full_attention layer to share"),
        (GEMMA3N, {"intermediate_size": [16384] * 30}, "lists 30 widths for 35 hidden layers"),
        (GEMMA4, {"layer_types": ["full_attention"] * 3}, "3 attention layers listed for 30 hidden layers"),
        (GEMMA4, {"num_global_key_value_heads": 3}, "not a multiple of num_key_value_heads 3"),
        (QWEN3_NEXT, {"model_type": "minimax"}, "lightning attention, which vLLM has not run since 0.23"),
        (GRANITE, {"model_type": "zamba2"}, "shared attention beside Mamba"),
        (QWEN3_NEXT, {"model_type": "new"}, "not modelled for model_type 'new'"),
        (QWEN3_NEXT, {"is_encoder_decoder": True}, "is_encoder_decoder"),
        (GEMMA3N, {"model_type": "new", "num_attention_heads": 8, "num_kv_shared_layers": 2}, "that differ"),
    ],
)
def test_a_contradiction_is_one_line_that_names_the_field(config: dict[str, Any], changes: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        read(config, **changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("config", [QWEN3_NEXT, KIMI_LINEAR, JAMBA, LFM2, GRANITE, NEMOTRON, GEMMA3N, GEMMA4, MAMBA2])
def test_ranks_hold_at_least_the_whole_model_together(config: dict[str, Any]) -> None:
    arch = read(config)
    for tp in (2, 4):
        held = sum(tensor.elements for tensor in stage_tensors(arch, Parallelism(tensor_parallel_size=tp), 0))
        assert total_parameters(arch) <= held * tp <= total_parameters(arch) * 1.12


@pytest.mark.parametrize(
    ("config", "tp", "words"),
    # vLLM 0.32 mamba_mixer2.py asserts the first; linear.py the others.
    [(FALCON, 4, "2 state-space groups"), (QWEN3_NEXT, 32, "key heads"), (GRANITE, 5, "state-space heads 48")],
)
def test_a_split_of_states_that_vllm_refuses_is_refused(config: dict[str, Any], tp: int, words: str) -> None:
    with pytest.raises(SplitError, match=words):
        list(stage_tensors(read(config), Parallelism(tensor_parallel_size=tp), 0))


def test_one_group_of_a_state_is_copied_to_every_rank() -> None:
    arch = read(GRANITE)
    rows = [
        next(tensor.rows for tensor in stage_tensors(arch, Parallelism(tensor_parallel_size=tp), 0)
             if tensor.component == "state_space" and tensor.quantizable)
        for tp in (1, 2)
    ]  # fmt: skip
    assert rows == [2 * 3072 + 2 * 128 + 48, (2 * 3072 + 48) // 2 + 2 * 128]


def test_routed_experts_alone_are_inactive() -> None:
    arch = read(QWEN3_NEXT)
    assert active_parameters(arch) / 1e9 == pytest.approx(3.9, abs=0.1)  # the model card's 3B leaves embeddings out
    assert set(parameter_counts(arch)) == set(COMPONENTS)


@pytest.mark.parametrize(("outer", "text"), [("qwen3_5_moe", "qwen3_5_moe_text"), ("gemma4", "gemma4_text")])
def test_encoders_are_counted_without_assumptions(outer: str, text: str) -> None:
    config = {**(GEMMA4 if outer == "gemma4" else QWEN3_NEXT), "model_type": text}
    arch = from_config({"model_type": outer, "text_config": config, "vision_config": {}}, name=outer)
    assert not arch.assumptions
    assert arch.vision_parameters > 10**8


STEP = {
    "model_type": "step3p5",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_nextn_predict_layers": 2,
    "num_attention_heads": 4,
    "num_attention_groups": 2,
    "head_dim": 16,
    "attention_other_setting": {"num_attention_heads": 6, "num_attention_groups": 2, "head_dim": 16},
    "sliding_window": 8,
    "layer_types": ["full_attention", *["sliding_attention"] * 3, *["full_attention"] * 2],  # the last of drafts
    "moe_layers_enum": "2,3",
    "moe_num_experts": 8,
    "moe_top_k": 2,
    "moe_intermediate_size": 32,
    "share_expert_dim": 32,
    "vocab_size": 100,
}


def test_layers_with_a_window_may_have_query_heads_of_their_own() -> None:
    arch = from_config(STEP, name="test")
    attentions = [layer.attention for layer in arch.layers]
    assert [(each.num_heads, each.num_kv_heads) for each in attentions if each] == [(4, 2), (6, 2), (6, 2), (6, 2)]
    assert [layer.experts is not None for layer in arch.layers] == [False, False, True, True]


def test_key_and_value_heads_of_their_own_are_refused() -> None:
    other = {"num_attention_heads": 6, "num_attention_groups": 1}
    with pytest.raises(ValueError, match="num_attention_groups is 1, not 2"):
        from_config({**STEP, "attention_other_setting": other}, name="test")


def test_query_heads_may_be_listed_by_layer() -> None:
    config = {**STEP, "model_type": "laguna", "attention_other_setting": None, "moe_layers_enum": None}
    config |= {"num_attention_heads_per_layer": [4, 6, 6, 4], "mlp_layer_types": ["dense", *["sparse"] * 3]}
    arch = from_config(config, name="test")
    assert [layer.attention.num_heads for layer in arch.layers if layer.attention] == [4, 6, 6, 4]
    with pytest.raises(ValueError, match="lists 1 layers for 4"):
        from_config({**config, "num_attention_heads_per_layer": [4]}, name="test")


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ({"mlp_layer_types": ["dense"]}, "mlp_layer_types lists 1 layers for 4 hidden layers"),
        ({"mlp_layer_types": ["dense"] * 5}, "mlp_layer_types lists 5 layers for 4 hidden layers"),
        ({"mlp_layer_types": ["dense", "moe", "sparse", "sparse"]}, "mlp_layer_types has 'moe'; known: dense, sparse"),
        ({"moe_layers_enum": "2,3,4"}, "moe_layers_enum names layer 4 of 4 hidden layers, counted from 0"),
        ({"moe_layers_enum": "2;3"}, "moe_layers_enum is '2;3'"),
    ],
)
def test_lists_of_experts_that_are_not_of_these_layers_are_refused(listed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_config({**STEP, **listed}, name="test")


def test_draft_layers_may_be_listed_behind() -> None:
    listed = ["dense", "dense", "sparse", "sparse", *["dense"] * STEP["num_nextn_predict_layers"]]
    arch = from_config({**STEP, "mlp_layer_types": listed}, name="test")
    assert [layer.experts is not None for layer in arch.layers] == [False, False, True, True]
