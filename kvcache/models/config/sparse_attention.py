"""Which configs describe attention whose indexer keeps a cache of its own."""

from kvcache.models.config.fields import Fields

# vLLM 0.32 takes a model for sparse where its config has index_topk (models/deepseek_v2.py, models/config.py).
_SIGNS = ("index_topk", "index_n_heads", "index_head_dim", "sparse_attention_config", "compress_ratios")
# Types that are sparse, or cache otherwise, whatever else their config says.
_SPARSE = (
    "deepseek_v32",
    "deepseek_v4",
    "deepseek_v41",
    "glm_moe_dsa",
    "glm5_next",
    "hy_v4",
    "minimax_m3",
    "dots3_note",
)
_OTHERWISE = {
    "longcat_flash": "two attention layers in each layer",
    "inkling": "heads that differ between layers with a window and without",
    "qwen4_exp": "linear attention",
}


def refuse_sparse_attention(fields: Fields) -> None:
    """Raises `ValueError` where the KV cache would be read wrongly: too small without the indexer's part."""
    model_type = str(fields.raw("model_type"))
    signs = [key for key in _SIGNS if fields.config.get(key) is not None]
    if signs or model_type.startswith(_SPARSE):
        told = f" ({', '.join(signs)})" if signs else ""
        raise ValueError(
            f"model {fields.name!r}: the sparse attention of model_type {model_type!r}{told} is not modelled: its "
            "indexer keeps a cache of its own beside the latents, which is not counted; take a model without one"
        )
    other = next((why for beginning, why in _OTHERWISE.items() if model_type.startswith(beginning)), None)
    if other is not None:
        raise ValueError(
            f"model {fields.name!r}: {other}, not modelled for model_type {model_type!r}; take another model"
        )
