"""Hunyuan-A13B, whose config lists a number for every layer."""

from dataclasses import replace
from typing import Any

import pytest

from kvcache.models.catalog import load_model
from kvcache.models.config.reader import from_config
from kvcache.shape.parameters import active_parameters

NAME = "tencent/Hunyuan-A13B-Instruct"
CONFIG: dict[str, Any] = {
    "model_type": "hunyuan_v1_moe", "hidden_size": 4096, "intermediate_size": 3072, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128167, "num_experts": 64, "moe_topk": 8,
    "tie_word_embeddings": True, "max_position_embeddings": 32768,
}  # fmt: skip


def test_numbers_listed_for_every_layer_are_one_number() -> None:
    assert from_config(CONFIG, name=NAME) == load_model(NAME)
    assert active_parameters(load_model(NAME)) / 1e9 == pytest.approx(13, abs=0.3)  # its card


def test_every_layer_has_one_shared_expert_as_wide_as_the_dense_mlp_says() -> None:
    other = {
        **CONFIG,
        "num_shared_expert": [2] * 32,
        "moe_intermediate_size": [1024] * 32,
    }  # transformers reads neither
    assert replace(from_config(other, name=NAME), name=NAME) == load_model(NAME)


def test_experts_per_token_that_differ_between_layers_are_refused() -> None:
    with pytest.raises(ValueError, match="moe_topk"):
        from_config({**CONFIG, "moe_topk": [8] * 31 + [4]}, name=NAME)
