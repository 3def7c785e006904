"""Which configs describe layers or caches that are not modelled, and would be counted wrongly."""

from kvcache.models.config.families import families_with_states
from kvcache.models.config.fields import Fields, Names

# vLLM 0.32 takes attention for sparse where the config has index_topk (models/deepseek_v2.py, models/config.py).
_SPARSE_SIGNS = ("index_topk", "index_n_heads", "index_head_dim", "sparse_attention_config", "compress_ratios")
# Types that are sparse whatever else their config says: beginnings of their names.
_SPARSE = (
    "deepseek_v32", "deepseek_v4", "deepseek_v41", "glm_moe_dsa", "glm5_next", "hy_v4", "minimax_m3", "dots3_note",
)  # fmt: skip
_OTHERWISE = {
    "longcat_flash": "two attention layers in each layer",
    "inkling": "heads that differ between layers with a window and without",
    "qwen4_exp": "linear attention",
}
# Signs of a state in configs of families whose states are not read.
_STATE_SIGNS = (
    "ssm_state_size", "mamba_d_state", "linear_num_key_heads", "linear_attn_config", "conv_L_cache", "attn_type_list",
    "linear_attn_alpha_factor", "layer_group_size", "block_types", "rwkv_hidden_size", "slstm_at",
)  # fmt: skip
# Families with a state that no sign tells, or that deserve a reason.
_STATES = {
    **dict.fromkeys(
        ("minimax", "minimax_text_01", "minimax_m1"), "lightning attention, which vLLM has not run since 0.23"
    ),
    **dict.fromkeys(("zamba", "zamba2"), "shared attention beside Mamba"),
    **dict.fromkeys(("bailing_moe_linear", "bailing_hybrid"), "lightning attention"),
    **dict.fromkeys(("recurrent_gemma", "rwkv", "xlstm"), "recurrent"),
    "olmo_hybrid": "gated delta net",
    "plamo2": "Mamba",
    "zaya": "compressed convolutional attention",
}
_LAYER_NAMES = {"attention", "full_attention", "sliding_attention", "chunked_attention"}


def refuse_unread(fields: Fields) -> None:
    """Raises `ValueError` where the KV cache or the weights would be read wrongly."""
    _refuse_sparse(fields)
    if fields.family.state is None:
        _refuse_states(fields)
    found = [] if fields.family.unequal_caches else _unequal_caches(fields)
    if fields.raw("is_encoder_decoder"):
        found.append("is_encoder_decoder")
    if found:
        raise ValueError(
            f"model {fields.name!r}: {', '.join(found)}: KV caches that differ between layers are not modelled "
            f"for model_type {fields.model_type!r}"
        )


def _refuse_sparse(fields: Fields) -> None:
    signs = [key for key in _SPARSE_SIGNS if fields.config.get(key) is not None]
    if signs or fields.model_type.startswith(_SPARSE):
        told = f" ({', '.join(signs)})" if signs else ""
        raise ValueError(
            f"model {fields.name!r}: the sparse attention of model_type {fields.model_type!r}{told} is not modelled: "
            "its indexer keeps a cache of its own beside the latents, which is not counted; take a model without one"
        )
    other = next((why for beginning, why in _OTHERWISE.items() if fields.model_type.startswith(beginning)), None)
    if other is not None:
        raise ValueError(
            f"model {fields.name!r}: {other}, not modelled for model_type {fields.model_type!r}; take another model"
        )


def _refuse_states(fields: Fields) -> None:
    kinds = set(fields.value(Names, "layer_types", "layers_block_type") or ())
    strange = sorted(kinds - _LAYER_NAMES)
    signs = [key for key in _STATE_SIGNS if fields.config.get(key) is not None]
    known = _STATES.get(fields.model_type)
    if strange or signs or known:
        what = known or ", ".join(strange) or f"state-space ({', '.join(signs)})"
        raise ValueError(
            f"model {fields.name!r}: {what} layers are not modelled for model_type {fields.model_type!r}; "
            f"only attention layers are, or those of {', '.join(families_with_states())}"
        )


def _unequal_caches(fields: Fields) -> list[str]:
    found = [
        f"{key} {fields.raw(key)}"
        for key, usual in (("global_head_dim", "head_dim"), ("num_global_key_value_heads", "num_key_value_heads"))
        if fields.raw(key) is not None and fields.raw(key) != fields.raw(usual)
    ]
    if fields.raw("num_kv_shared_layers"):
        found.append(f"num_kv_shared_layers {fields.raw('num_kv_shared_layers')}")
    return found
