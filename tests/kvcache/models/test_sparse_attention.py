"""Models whose indexer keeps a cache of its own are refused, not read as something smaller."""

from typing import Any

import pytest

from kvcache.models.catalog import load_model
from kvcache.models.config.reader import from_config

LATENT: dict[str, Any] = {
    "num_hidden_layers": 4, "hidden_size": 1024, "vocab_size": 32000, "num_attention_heads": 16,
    "intermediate_size": 4096, "max_position_embeddings": 8192, "kv_lora_rank": 512, "q_lora_rank": 1536,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip


@pytest.mark.parametrize(
    ("model_type", "more"),
    [
        ("deepseek_v32", {"index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128}),
        ("deepseek_v32", {}),
        ("deepseek_v4", {"compress_ratios": [1, 4]}),
        ("glm_moe_dsa", {"index_topk": 2048}),
        ("minimax_m3_vl_text", {"sparse_attention_config": {}}),
        ("deepseek_v3", {"index_topk": 2048}),  # the sign counts, as in vLLM
    ],
)
def test_sparse_attention_is_refused_with_what_is_missing(model_type: str, more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="its indexer keeps a cache of its own") as caught:
        from_config({**LATENT, "model_type": model_type, **more}, name="sparse")
    assert model_type in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_attention_layers_in_one_are_refused() -> None:
    with pytest.raises(ValueError, match="two attention layers in each layer"):
        from_config({**LATENT, "model_type": "longcat_flash"}, name="cat")


def test_latent_attention_without_an_indexer_is_read() -> None:
    config = {**LATENT, "model_type": "deepseek_v3", "index_topk": None, "n_routed_experts": 0}
    assert from_config(config, name="dense").is_mla
    assert load_model("deepseek-v3").is_mla
