"""From a Hugging Face `config.json` to the fields of an `Architecture`."""

from collections.abc import Mapping
from typing import Any

from kvcache.models.config.checkpoint_format import native_quantization
from kvcache.models.config.checks import check_config
from kvcache.models.config.declared_kv_cache import declared_kv_cache
from kvcache.models.config.families import FALLBACK, family_of
from kvcache.models.config.family import Family
from kvcache.models.config.fields import Fields
from kvcache.models.config.gemma import gemma_fields
from kvcache.models.config.sparse_attention import refuse_sparse_attention
from kvcache.models.config.state_space_reader import num_hidden_layers, state_space_fields
from kvcache.models.config.unquantized import unquantized_components
from kvcache.models.vision import knows_encoder, vision_parameters

Assumption = tuple[str, str, str]


def architecture_fields(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Keyword arguments for `Architecture`. Raises `ValueError` on missing or contradictory fields."""
    if not isinstance(config, Mapping):
        raise ValueError(f"model {name!r}: config.json must hold an object, not {type(config).__name__}")
    check_config(config, name)
    nested = config.get("text_config", config.get("llm_config"))
    text: Mapping[str, Any] = {**config, **nested} if isinstance(nested, Mapping) else config
    model_type = str(text.get("model_type", ""))
    family = family_of(model_type)
    fields = Fields(text, name, family)
    refuse_sparse_attention(fields)
    num_layers = num_hidden_layers(fields)
    unequal = {**state_space_fields(fields, num_layers), **gemma_fields(fields, num_layers)}
    _refuse_unequal_caches(fields, unequal)
    shape = {
        "name": name,
        "model_type": model_type or "unknown",
        "num_hidden_layers": num_layers,
        "hidden_size": fields.integer("hidden_size", "n_embd", "d_model"),
        "vocab_size": fields.integer("vocab_size"),
        "longer_rotary_tables": _longer_rotary_tables(fields),
        "max_position_embeddings": fields.integer(
            "max_position_embeddings", "n_positions", "seq_length", "model_max_length", default=2048
        ),
        "tie_word_embeddings": bool(_tied(config, fields)),
        "dtype": _dtype(text),
        "native_quantization": native_quantization(config),
        "declared_kv_cache": declared_kv_cache(config, is_latent=bool(fields.optional("kv_lora_rank"))),
        "vision_parameters": vision_parameters(config),
        "vision_split": family_of(str(config.get("model_type"))).vision_split,
        "num_rotary_tables": _num_rotary_tables(fields),
        "learned_positions": _learned_positions(fields),
        "assumptions": (*_assumptions(family, model_type), *_vision_assumptions(config)),
    }
    windows = {} if "layer_windows" in unequal else _windows(fields, num_layers)
    mlp = _mlp(fields, num_layers, unequal)
    shape["rotary_width"] = _rotary_width(fields)
    read = {**shape, **_heads(fields, unequal), **windows, **_biases(fields, unequal), **unequal, **mlp}
    return {**read, "unquantized": unquantized_components(config, _component_layers(read, num_layers))}


def _component_layers(read: Mapping[str, Any], num_layers: int) -> dict[str, list[int]]:
    """The layers that each component is in."""

    def having(key: str, default: bool) -> list[int]:
        flags = read.get(key) or (default,) * num_layers
        return [layer for layer, flag in enumerate(flags[:num_layers]) if flag]

    experts = having("moe_layers", default=False)
    mlp = having("mlp_layers", default=True)
    return {
        "attention": having("attention_layers", default=True),
        "state_space": having("state_layers", default=False),
        "mlp": [layer for layer in mlp if layer not in experts or read.get("dense_beside_experts")],
        "experts": experts,
        "shared_experts": experts if read.get("shared_expert_intermediate_size") else [],
    }


def _refuse_unequal_caches(fields: Fields, unequal: Mapping[str, Any]) -> None:
    """Layers that keep more, less or other keys and values than the rest, in families that are not read here."""
    strange = [] if "kv_shared_with" in unequal else _unequal_caches(fields)
    if fields.raw("is_encoder_decoder"):
        strange.append("is_encoder_decoder")
    if strange:
        raise ValueError(
            f"model {fields.name!r}: {', '.join(strange)}: KV caches that differ between layers are not modelled "
            f"for model_type {fields.raw('model_type')!r}"
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


def _num_rotary_tables(fields: Fields) -> int:
    # Granite 4: only "rope" builds one (vLLM models/granitemoehybrid.py).
    if fields.raw("model_type") == "granitemoehybrid" and fields.raw("position_embedding_type") != "rope":
        return 0
    return fields.family.num_rotary_tables


def _rotary_width(fields: Fields) -> int:
    """Columns of a rotary table where only a part of each head turns; 0 where all of it does."""
    if fields.optional("rotary_dim"):
        return fields.integer("rotary_dim")
    nested = fields.raw("rope_parameters", "rope_scaling")
    given = nested.get("partial_rotary_factor") if isinstance(nested, Mapping) else None
    factor = fields.raw("partial_rotary_factor", "rotary_pct") if given is None else given
    if factor is None:
        return 0
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= 1:
        raise fields.error(f"partial_rotary_factor is {factor!r}, must lie in (0, 1]")
    head_dim = fields.optional("head_dim") or (
        fields.integer("hidden_size", "n_embd", "d_model")
        // max(1, fields.integer("num_attention_heads", "n_head", "num_heads", "n_heads"))
    )
    return int(head_dim * factor)


def _tied(config: Mapping[str, Any], fields: Fields) -> bool:
    # A multimodal config keeps the flag at either level; the outer one wins in transformers.
    outer = config.get("tie_embedding", config.get("tie_word_embeddings"))  # LFM2 calls it tie_embedding
    return fields.flag("tie_word_embeddings", default=False) if outer is None else bool(outer)


def _longer_rotary_tables(fields: Fields) -> int:
    """How many tables' worth of rows linear rope scaling adds: vLLM stores `factor` times the positions (Gemma 3)."""
    scaling = fields.raw("rope_scaling", "rope_parameters")
    if isinstance(scaling, Mapping) and isinstance(scaling.get("full_attention"), Mapping):
        scaling = scaling["full_attention"]
    if not isinstance(scaling, Mapping) or scaling.get("rope_type", scaling.get("type")) != "linear":
        return 0
    factor = scaling.get("factor")
    return max(0, round(factor) - 1) if isinstance(factor, int | float) else 0


def _dtype(text: Mapping[str, Any]) -> str:
    dtype = str(text.get("torch_dtype") or text.get("dtype") or "bfloat16").removeprefix("torch.")
    return "bfloat16" if dtype == "float32" else dtype  # vLLM's `--dtype auto` serves fp32 checkpoints in 16 bits


def _learned_positions(fields: Fields) -> int:
    offset = fields.family.learned_position_offset
    if offset is None:
        return 0
    hidden = fields.integer("hidden_size")
    if fields.integer("word_embed_proj_dim", default=hidden) != hidden or fields.raw("do_layer_norm_before") is False:
        raise ValueError(
            f"model {fields.name!r}: OPT with embeddings narrower than its layers, or norms behind them "
            "(word_embed_proj_dim, do_layer_norm_before: OPT-350m), is not modelled"
        )
    return fields.integer("max_position_embeddings") + offset


def _assumptions(family: Family, model_type: str) -> tuple[Assumption, ...]:
    if family is not FALLBACK:
        return ()
    why = f"model_type {model_type!r} is not known; read like a Llama"
    return (("architecture", "llama-like: gated MLP, no biases, two norms per layer", why),)


def _vision_assumptions(config: Mapping[str, Any]) -> tuple[Assumption, ...]:
    if not config.get("vision_config") or knows_encoder(config):
        return ()
    why = f"the encoder of {str(config.get('model_type'))!r} is not known; read like SigLIP, 0 without its widths"
    return (("vision encoder", f"{vision_parameters(config):,} parameters", why),)


def _heads(fields: Fields, unequal: Mapping[str, Any]) -> dict[str, Any]:
    if not any(unequal.get("attention_layers") or (True,)):
        return {"num_attention_heads": 0, "num_key_value_heads": 0, "head_dim": 0}
    hidden = fields.integer("hidden_size", "n_embd", "d_model")
    heads = fields.integer("num_attention_heads", "n_head", "num_heads", "n_heads")
    if heads <= 0:
        raise ValueError(
            f"model {fields.name!r}: num_attention_heads is {heads}, must be positive; correct its config.json"
        )
    latent = fields.optional("kv_lora_rank")
    if latent:
        nope, rope = fields.integer("qk_nope_head_dim"), fields.integer("qk_rope_head_dim")
        return {
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "head_dim": nope + rope,
            "kv_lora_rank": latent,
            "q_lora_rank": fields.optional("q_lora_rank"),
            "qk_nope_head_dim": nope,
            "qk_rope_head_dim": rope,
            "v_head_dim": fields.integer("v_head_dim"),
        }
    head_dim = fields.optional("head_dim")
    if head_dim is None:
        if hidden % heads:
            raise ValueError(
                f"model {fields.name!r}: hidden_size {hidden} is not a multiple of num_attention_heads {heads}; "
                "give head_dim in its config.json"
            )
        head_dim = hidden // heads
    return {"num_attention_heads": heads, "num_key_value_heads": _kv_heads(fields, heads), "head_dim": head_dim}


def _kv_heads(fields: Fields, heads: int) -> int:
    # Falcon: `new_decoder_architecture` reads num_kv_heads; before it, `multi_query` shares one head.
    if fields.raw("new_decoder_architecture"):
        return fields.integer("num_kv_heads", default=heads)
    if fields.raw("multi_query") is not None:
        return 1 if fields.raw("multi_query") else heads
    return fields.integer("num_key_value_heads", "num_kv_heads", "n_head_kv", default=heads)


def _windows(fields: Fields, num_layers: int) -> dict[str, Any]:
    """Each layer's window: from `layer_types`, else from the family's pattern, else one for all layers."""
    chunk = fields.optional("attention_chunk_size")
    window = chunk or fields.optional("sliding_window")
    if fields.raw("use_sliding_window") is False:
        window = None
    kinds = fields.raw("layer_types")
    if kinds is not None and any(kind != "full_attention" for kind in kinds) and window is None:
        raise ValueError(f"model {fields.name!r}: layer_types lists windows but sliding_window is missing; add it")
    if kinds is not None:
        windows = tuple(None if kind == "full_attention" else window for kind in kinds)
    elif window is None:
        windows = (None,) * num_layers
    elif chunk is not None:
        # Llama 4: `no_rope_layers` holds 0 where a layer attends to everything; by default every fourth does.
        local = fields.raw("no_rope_layers") or [(layer + 1) % 4 for layer in range(num_layers)]
        windows = tuple(window if flag else None for flag in local)
    else:
        pattern = fields.optional("sliding_window_pattern", "_sliding_window_pattern")
        windows = tuple(None if pattern and (layer + 1) % pattern == 0 else window for layer in range(num_layers))
        first_full = fields.optional("max_window_layers")
        if first_full is not None:  # Qwen2: the first `max_window_layers` layers attend to everything
            windows = tuple(None if layer < first_full else window for layer in range(num_layers))
    return {"layer_windows": windows, "chunked_attention": chunk is not None}


def _mlp(fields: Fields, num_layers: int, unequal: Mapping[str, Any]) -> dict[str, Any]:
    num_experts = fields.integer("num_experts", "n_routed_experts", "num_local_experts", default=0)
    layers = unequal.get("moe_layers") or _moe_layers(fields, num_layers)
    if num_experts <= 1 or not any(layers):
        return {"intermediate_size": _dense_width(fields, unequal), "moe_layers": ()}
    if all(unequal.get("mlp_layers") or (True,)):
        dense = fields.optional("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")
    else:
        dense = _listed_width(fields)
    moe = fields.integer("moe_intermediate_size", default=dense)
    if fields.family.dense_width_key and fields.raw(fields.family.dense_width_key) is not None:
        dense = fields.integer(fields.family.dense_width_key)
    shared = fields.optional("shared_expert_intermediate_size", "shared_intermediate_size")
    if shared is None:
        shared = fields.integer("moe_shared_expert_intermediate_size", default=moe) * fields.integer(
            "n_shared_experts", "num_shared_experts", default=0
        )
    return {
        "intermediate_size": 0 if all(layers) and not unequal.get("dense_beside_experts") else (dense or 0),
        "num_experts": num_experts,
        "num_experts_per_tok": fields.integer(
            "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts"
        ),
        "moe_intermediate_size": moe,
        "shared_expert_intermediate_size": shared,
        "moe_layers": layers,
    }


def _dense_width(fields: Fields, unequal: Mapping[str, Any]) -> int:
    """The MLP width of a model without experts; 0 where no layer has an MLP."""
    if not any(unequal.get("mlp_layers") or (True,)):
        return 0
    if unequal.get("mlp_widths"):
        return int(max(unequal["mlp_widths"]))
    if fields.raw("model_type") == "granitemoehybrid":  # without experts, the shared MLP is the only one
        return fields.integer("shared_intermediate_size")
    dense = _listed_width(fields)
    if dense is None and fields.family.ffn_multiple is None:
        raise ValueError(f"model {fields.name!r}: config.json lacks 'intermediate_size'; add it")
    if dense is None:
        return fields.integer("hidden_size", "n_embd", "d_model") * (fields.family.ffn_multiple or 0)
    return _adjusted(fields, dense) if fields.raw("model_type") == "lfm2" else dense


def _listed_width(fields: Fields) -> int | None:
    keys = ("block_ff_dim", "intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")
    value = fields.raw(*keys)
    if isinstance(value, list | tuple):  # Nemotron-H may write one width for all as a list
        if len(set(value)) != 1:
            raise fields.error(f"intermediate_size {list(value)}: MLPs of different widths are not modelled")
        return fields.whole(value[0], "intermediate_size")
    return fields.optional(*keys)


def _adjusted(fields: Fields, width: int) -> int:
    """LFM2's rounding of its MLP width (transformers and vLLM models/lfm2, block_auto_adjust_ff_dim)."""
    if not fields.flag("block_auto_adjust_ff_dim", default=True):
        return width
    width = int(2 * width / 3)
    factor = fields.raw("block_ffn_dim_multiplier")
    if factor is not None:
        width = int(factor * width)
    unit = fields.integer("block_multiple_of")
    return -(-width // unit) * unit


def _moe_layers(fields: Fields, num_layers: int) -> tuple[bool, ...]:
    first = fields.integer("first_k_dense_replace", default=0)
    step = fields.integer("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step", default=1) or 1
    dense_only = set(fields.raw("mlp_only_layers") or ())
    sparse_only = fields.raw("moe_layers")
    if sparse_only:
        return tuple(layer in set(sparse_only) for layer in range(num_layers))
    # DeepSeek counts its frequency from layer 0, Qwen and Llama 4 from layer 1; they differ only for steps above 1.
    offset = 0 if fields.raw("moe_layer_freq") is not None else 1
    return tuple(
        layer >= first and (layer + offset) % step == 0 and layer not in dense_only for layer in range(num_layers)
    )


def _biases(fields: Fields, unequal: Mapping[str, Any]) -> dict[str, Any]:
    family = fields.family
    common = () if "state_layers" in unequal else ("use_bias", "bias")  # there, they are the state's
    attention = family.qkv_bias or fields.flag("attention_bias", "qkv_bias", "use_qkv_bias", *common, default=False)
    output = family.output_bias if family.output_bias is not None else attention
    return {
        "gated_mlp": family.gated_mlp,
        "attention_bias": attention,
        "attention_output_bias": fields.flag("attention_out_bias", default=output),
        "mlp_bias": family.mlp_bias or fields.flag("mlp_bias", *common, default=False),
        "qk_norm": fields.flag("use_qk_norm", default=family.qk_norm) if family.qk_norm_weights else False,
        "qk_norm_whole_projection": family.qk_norm_whole_projection,
        "norms_per_layer": _norms_per_layer(fields),
        "norm_bias": family.norm_bias,
        "attention_sinks": family.attention_sinks,
        "expert_bias": family.expert_bias,
        "router_bias": family.router_bias
        or fields.raw("topk_method") == "noaux_tc"
        or bool(fields.raw("use_routing_bias")),
        "shared_expert_gate": family.shared_expert_gate,
        "router_fp32": family.router_fp32,
        "shared_experts_always_split": family.shared_experts_always_split,
        "attention_output_gate": family.attention_output_gate and fields.flag("attn_output_gate", default=True),
        "lm_head_bias": family.lm_head_bias or fields.flag("lm_head_bias", default=False),
    }


def _norms_per_layer(fields: Fields) -> int:
    # Falcon has one norm for both halves of a layer, or one for each where they run in turn or as in 40B and 180B.
    if fields.raw("parallel_attn") is False:
        return 2
    new = bool(fields.raw("new_decoder_architecture"))
    return fields.integer("num_ln_in_parallel_attn", default=2 if new else fields.family.norms_per_layer)
