"""What a `config.json` says about a model."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvcache.models.catalog import load_model
from kvcache.models.config.reader import from_config
from kvcache.shape.parameters import total_parameters

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}


def packed(**weights: Any) -> dict[str, Any]:
    """A compressed-tensors config of packed whole numbers."""
    groups = {"g": {"weights": {"type": "int", **weights}, "input_activations": None}}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": groups}


def read(**changes: Any) -> Any:
    config = {key: value for key, value in {**LLAMA, **changes}.items() if value != "absent"}
    return from_config(config, name="test")


def windows_of(arch: Any) -> tuple[int | None, ...]:
    return tuple(layer.attention.window for layer in arch.layers)


def test_a_config_file_its_folder_and_the_catalog_name_give_the_same_shape(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    from_folder, from_file = load_model(str(tmp_path)), load_model(str(tmp_path / "config.json"))
    assert from_folder == from_file
    assert from_folder.head_dim == load_model("llama-3.1-8b").head_dim == 128


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_size": "absent"}, "hidden_size"),
        ({"num_attention_heads": "absent"}, "num_attention_heads"),
        ({"intermediate_size": "absent"}, "intermediate_size"),
        ({"num_key_value_heads": 5}, "not a multiple of num_key_value_heads 5"),
        ({"num_hidden_layers": -1}, "num_hidden_layers is -1"),
        ({"num_hidden_layers": 0}, "must be positive"),
        ({"num_attention_heads": 0}, "must be positive"),
        ({"vocab_size": "many"}, "must be a whole number"),
        ({"hidden_size": True}, "must be a whole number"),
        ({"num_attention_heads": 24}, "give head_dim"),
        ({"layer_types": ["full_attention"] * 3}, "3 attention layers listed for 32"),
        ({"layer_types": ["sliding_attention"] * 32}, "sliding_window is missing"),
        ({"layer_types": ["linear_attention"] * 32}, "linear_attention layers are not modelled for model_type 'llama'"),
        ({"num_experts": 8, "num_experts_per_tok": 9}, "must lie in 1–8"),
        ({"num_local_experts": 0, "num_experts_per_tok": 8}, "8 experts per token of 0 experts"),
        ({"kv_lora_rank": 512}, "qk_nope_head_dim"),
        ({"quantization_config": {"quant_method": "magic"}}, "'magic' is not modelled"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 3}}, "3 bits is not modelled"),
        ({"quantization_config": {"quantization": 5}}, "quantization is 5; it must be a table"),
        ({"quantization_config": {"quantization": {"exclude_modules": 5}}}, "exclude_modules is 5; it must be a list"),
        ({"quantization_config": {"quant_method": "compressed-tensors", "kv_cache_scheme": "a\nb"}}, "correct it"),
    ],
)
def test_a_bad_config_is_one_line_that_names_the_field(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        read(**changes)
    assert "\n" not in str(caught.value)


def test_broken_json_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match="is not JSON"):
        load_model(str(tmp_path))
    with pytest.raises(ValueError, match="holds no config"):
        load_model(str(tmp_path.parent))


def test_experts_that_are_counted_under_another_name_are_not_passed_over() -> None:
    """A model of 21B parameters was read as one of 3B: nothing said that it has experts."""
    with pytest.raises(ValueError, match="expert_slots is 64, and its experts are not read; give their number as num_"):
        read(model_type="new_moe", expert_slots=64)
    routed = read(model_type="new_moe", moe_num_experts=64, moe_k=6, moe_intermediate_size=1536)
    assert (routed.experts.num_experts, routed.experts.num_experts_per_tok) == (64, 6)


@pytest.mark.parametrize(
    ("name", "text_parameters"),  # of the models that transformers 5.19 builds from the same configs
    [("baidu/ERNIE-4.5-21B-A3B-PT", 21_825_437_888), ("mistralai/Ministral-3-8B-Reasoning-2512", 8_489_553_920)],
)
def test_families_of_autumn_are_read_without_assumptions(name: str, text_parameters: int) -> None:
    arch = load_model(name)
    assert total_parameters(arch) - arch.vision_parameters == text_parameters
    assert not arch.assumptions


def test_an_unknown_family_is_read_like_a_llama_with_a_named_assumption() -> None:
    arch = read(model_type="brand_new")
    assert arch.num_key_value_heads == 8
    assert arch.gated_mlp
    assert any("brand_new" in why for _, _, why in arch.assumptions)
    assert not read().assumptions


def test_text_config_of_a_multimodal_model_is_found() -> None:
    arch = from_config({"model_type": "mistral3", "text_config": {**LLAMA, "model_type": "mistral"}}, name="nested")
    assert arch.num_hidden_layers == 32
    assert arch.model_type == "mistral"


def test_gemma_3_attends_fully_in_every_sixth_layer() -> None:
    windows = windows_of(load_model("gemma-3-27b"))
    assert len(windows) == 62
    assert windows[:7] == (1024, 1024, 1024, 1024, 1024, None, 1024)
    assert sum(window is None for window in windows) == 10


def test_gpt_oss_alternates_a_window_of_128() -> None:
    arch = load_model("gpt-oss-120b")
    assert windows_of(arch) == (128, None) * 18
    assert arch.native_quantization == "mxfp4"


def test_llama_4_scout_attends_fully_in_every_fourth_layer() -> None:
    arch = load_model("llama-4-scout")
    assert arch.attention.chunked
    assert windows_of(arch) == (8192, 8192, 8192, None) * 12


def test_a_switched_off_window_is_no_window() -> None:
    assert set(windows_of(read(sliding_window=4096, use_sliding_window=False))) == {None}
    assert set(windows_of(read(sliding_window=4096))) == {4096}


def test_falcon_shares_one_kv_head_or_names_its_own() -> None:
    assert load_model("falcon-7b").num_key_value_heads == 1
    assert load_model("falcon-40b").num_key_value_heads == 8


def test_deepseek_v3_has_three_dense_layers_before_its_experts() -> None:
    arch = load_model("deepseek-r1")
    assert arch.is_mla
    assert [layer.experts is None for layer in arch.layers] == [True] * 3 + [False] * 58
    assert arch.native_quantization == "fp8-block"


@pytest.mark.parametrize(
    ("quantization", "scheme"),
    [
        ({"quant_method": "awq", "bits": 4}, "awq"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "nf4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 8, "type": "int"}}}},
            "int8",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            "fp8",
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 4, "type": "int"}}}},
            "w4a16",
        ),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True}, "gptq-g32-actorder"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "gptq-8bit-channel"),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, "awq-g64"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, "nf4-double"),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8-tensor"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8-tensor"),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, "mxfp8"),
        (packed(num_bits=8, strategy="channel"), "w8a16"),
        (packed(num_bits=8, strategy="group", group_size=64), "w8a16-g64"),
        (packed(num_bits=4, strategy="group", group_size=32), "w4a16-g32"),
        (packed(num_bits=4, strategy="group", group_size=128, symmetric=False), "awq"),
        (packed(num_bits=4, strategy="channel"), "w4a16-channel"),
    ],
)
def test_the_checkpoints_own_quantization_is_recognised(quantization: dict[str, Any], scheme: str) -> None:
    assert read(quantization_config=quantization).native_quantization == scheme


@pytest.mark.parametrize(
    ("model_type", "kv_heads", "head_dim"),
    # transformers 5.19, the config classes: what a nested text_config leaves out when it is saved.
    [("mistral", 8, 128), ("qwen2", 32, 128), ("qwen3", 32, 128), ("gemma", 16, 256), ("gpt_oss", 8, 64),
     ("llama", 32, 128)],
)  # fmt: skip
def test_a_field_that_is_left_out_has_the_family_s_default(model_type: str, kv_heads: int, head_dim: int) -> None:
    arch = read(model_type=model_type, num_key_value_heads="absent")
    assert (arch.num_key_value_heads, arch.head_dim) == (kv_heads, head_dim)


def test_a_field_that_is_null_is_not_the_family_s_default() -> None:
    assert windows_of(read(model_type="gemma2", sliding_window=None)) == (None,) * 32
    assert windows_of(read(model_type="gemma2")) == (4096, None) * 16
    assert read(model_type="mistral", num_key_value_heads=None).num_key_value_heads == 32


def test_latent_attention_is_seen_without_its_widths() -> None:
    latent = load_model("deepseek-v2-lite")
    arch = read(model_type="deepseek_v2", q_lora_rank=None, num_experts_per_tok=6, moe_intermediate_size=1408)
    assert arch.is_mla
    assert arch.attention.latent == replace(latent.attention.latent, q_lora_rank=None)


def test_falcon_s_norms_and_kv_heads_follow_its_three_switches() -> None:
    def falcon(**changes: Any) -> Any:
        return read(model_type="falcon", num_key_value_heads="absent", intermediate_size="absent", **changes)

    assert (falcon().norms_per_layer, falcon().num_key_value_heads) == (1, 1)
    assert falcon(parallel_attn=False).norms_per_layer == 2
    assert falcon(new_decoder_architecture=True, num_kv_heads=8).norms_per_layer == 2
    assert falcon(new_decoder_architecture=True, num_ln_in_parallel_attn=1).norms_per_layer == 1
    assert falcon(multi_query=False, num_kv_heads=8).num_key_value_heads == 32


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("global_head_dim", 512),
        ("num_global_key_value_heads", 2),
        ("num_kv_shared_layers", 10),
        ("is_encoder_decoder", True),
    ],
)
def test_kv_caches_that_differ_between_layers_are_refused(key: str, value: object) -> None:
    plain = {
        "model_type": "gemma3_text", "num_hidden_layers": 6, "hidden_size": 64, "num_attention_heads": 4,
        "num_key_value_heads": 4, "head_dim": 16, "intermediate_size": 128, "vocab_size": 1000,
    }  # fmt: skip
    from_config({**plain, "is_encoder_decoder": False, "num_kv_shared_layers": 0, "global_head_dim": 16}, name="m")
    with pytest.raises(ValueError, match=f"{key}.*differ between layers are not modelled"):
        from_config({**plain, key: value}, name="m")
