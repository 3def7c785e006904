"""From a Hugging Face `config.json` to the shape of a model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from msgspec import Meta

from files.documents import Json
from files.errors import HeadcountError
from files.schema import typed
from kvcache.models.config.checkpoint_format import (
    declared_kv_cache,
    native_quantization,
    quantization_config,
)
from kvcache.models.config.extra_tensors import read_extra_tensors
from kvcache.models.config.families import FALLBACK, family_of
from kvcache.models.config.fields import Factor, Fields, Table, Word
from kvcache.models.config.image_encoder import image_encoder
from kvcache.models.config.images import image_rule, undivided_items
from kvcache.models.config.layers import read_layers
from kvcache.models.config.module_formats import module_formats
from kvcache.models.config.refusals import refuse_unread
from kvcache.models.config.vision import (
    encoder_pass,
    knows_encoder,
    modalities,
    vision_parameters,
    vision_size,
    whole_parameters,
)
from kvcache.shape.architecture import Architecture
from kvcache.shape.layer import Layer

Assumption = tuple[str, str, str]
Part = Annotated[float, Meta(gt=0, le=1, description="a number above 0, at most 1")]
_SAME_LAYERS = {"gemma4_unified_text": "gemma4_text"}  # vLLM 0.33 models/gemma4_unified.py
# Read for the classes of vLLM 0.33's MODELS_CONFIG_MAP alone, so that states of these have the model's dtype.
_STATE_DTYPES = ("mamba_ssm_dtype", "mamba_ssm_cache_dtype")
_WITHOUT_STATE_DTYPE = ("intern_s2_preview", "minicpmv4_6", "NemotronH_Nano_Omni_Reasoning_V3")
_CONTEXT = ("max_position_embeddings", "n_positions", "seq_length", "model_max_length")  # what configs call it
_GRANULARITY = "gated_attention_proj_granularity_type"  # Ling 3.0
Dtype: Any = Literal[
    "auto", "float32", "float", "float16", "half", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2"
]


def from_config(config: Mapping[str, object], *, name: str) -> Architecture:
    """The shape that a `config.json` describes; the nested `text_config` of multimodal models is read where present.

    Raises `ValueError` on missing or contradictory fields.
    """
    outer = Fields(config, name, FALLBACK)
    nested = outer.value(Table, "text_config", "llm_config")
    text = {**config, **(nested or {})}
    if outer.model_type in _WITHOUT_STATE_DTYPE:
        text |= dict.fromkeys(_STATE_DTYPES, "auto")
    text |= _first(text)
    text["model_type"] = _layers_of(text)
    fields = Fields(text, name, family_of(Fields(text, name, FALLBACK).model_type))
    refuse_unread(fields, outer.model_type)
    layers = read_layers(fields)
    is_latent = any(layer.attention and layer.attention.latent for layer in layers)
    quantization, is_outer = quantization_config(config), config.get("quantization_config") is not None
    formats = module_formats(quantization, layers, fields.model_type)
    return Architecture(
        name=name,
        model_type=fields.model_type or "unknown",
        outer_type=outer.model_type,
        layers=tuple(replace(layer, formats=own) for layer, own in zip(layers, formats.layers, strict=True)),
        hidden_size=fields.hidden_size,
        vocab_size=fields.integer("vocab_size"),
        max_position_embeddings=fields.integer(*_CONTEXT, default=2048),
        tie_word_embeddings=_tied(outer, fields),
        **_attention_traits(fields),
        **_mlp_traits(fields),
        **_positions(fields, layers),
        residual_streams=fields.integer("hc_mult") if fields.family.compresses else 1,
        extra_tensors=read_extra_tensors(fields, len(layers)),
        dtype=_dtype(fields),
        native_quantization=native_quantization(quantization),
        declared_kv_cache=declared_kv_cache(quantization, is_outer=is_outer, is_latent=is_latent),
        unquantized=formats.unquantized,
        lm_head_format=formats.lm_head,
        vision_parameters=vision_parameters(config),
        vision_size=vision_size(config),
        vision_whole=whole_parameters(config),
        **encoder_pass(config),
        modalities=modalities(config),
        image_rule=image_rule(config),
        undivided_items=undivided_items(config),
        image_encoder=image_encoder(config),
        vision_split=family_of(outer.model_type).vision_split,
        assumptions=tuple(_assumptions(fields, config)),
    )


def _layers_of(text: Json) -> object:
    """The type whose layers a model has: Ling 2.6 and 3.0 call theirs alike, of which the latter has KDA."""
    given = text.get("model_type")
    if given == "bailing_hybrid" and text.get("no_kda_lora") is True:
        return "bailing_moe_v3"
    return _SAME_LAYERS.get(str(given), given)


def _first(text: Json) -> Json:
    """ERNIE 4.5 VL lists what its experts of words have, then what those of images have; Hunyuan, every layer's."""
    if text.get("model_type") == "hunyuan_v1_moe":
        return _alike(text)
    listed = {key: value for key, value in text.items() if key.startswith("moe_") and isinstance(value, list) and value}
    is_such = str(text.get("model_type")) in ("ernie4_5_moe_vl", "ernie4_5_vl_moe_text")
    seen = {f"vision_{key}": value[-1] for key, value in listed.items()}
    return {key: value[0] for key, value in listed.items()} | seen if is_such else {}


def _alike(text: Json) -> Json:
    """The number that is listed for every layer; transformers reads none for its experts' widths but the dense one."""
    every = {key: value for key, value in text.items() if isinstance(value, list) and len(set(map(str, value))) == 1}
    return {key: value[0] for key, value in every.items()} | {"moe_intermediate_size": text.get("intermediate_size")}


def _attention_traits(fields: Fields) -> Json:
    family = fields.family
    bias = fields.flag("attention_bias", "qkv_bias", "use_qkv_bias", *_biases(fields))
    if family.qkv_bias is not None:
        bias = family.qkv_bias
    return {
        "attention_bias": bias,
        "attention_output_bias": fields.flag(
            "attention_out_bias", default=bias if family.output_bias is None else family.output_bias
        ),
        "qk_norm": family.qk_norm_weights and fields.flag("use_qk_norm", default=family.qk_norm),
        "qk_norm_whole_projection": family.qk_norm_whole_projection,
        "attention_output_gate": fields.flag("mla_use_output_gate")
        or fields.raw(_GRANULARITY) == "element_wise"
        or (family.attention_output_gate and fields.flag("attn_output_gate", default=True)),
        "attention_head_gate": fields.raw(_GRANULARITY) == "head_wise"
        or (
            family.attention_head_gate
            and fields.raw("gating") in (None, True, "per-head")
            and fields.flag("use_head_wise_attn_gate", default=True)
        ),
        "attention_element_gate": family.attention_element_gate
        or (family.attention_head_gate and fields.raw("gating") == "per-element"),
        "attention_sinks": family.attention_sinks,
        "sinks_in_windows_only": family.sinks_in_windows_only,
        "norms_per_layer": _norms_per_layer(fields),
        "norm_bias": family.norm_bias,
    }


def _mlp_traits(fields: Fields) -> Json:
    family = fields.family
    balanced = fields.raw("topk_method") == "noaux_tc" or fields.flag(
        "use_routing_bias", "moe_router_enable_expert_bias"
    )
    return {
        "gated_mlp": family.gated_mlp,
        "mlp_bias": family.mlp_bias or fields.flag("mlp_bias", *_biases(fields)),
        "expert_bias": family.expert_bias,
        "router_bias": family.router_bias or balanced,
        "router_fp32": family.router_fp32,
        "shared_expert_gate": family.shared_expert_gate,
        "pads_shared_experts": family.pads_shared_experts,
        "shared_experts_always_split": family.shared_experts_always_split,
        "lm_head_bias": family.lm_head_bias or fields.flag("lm_head_bias"),
    }


def _biases(fields: Fields) -> tuple[str, ...]:
    """Keys that stand for the biases of attention and MLP alike; in families with a state they are the state's."""
    return () if fields.family.state else ("use_bias", "bias")


def _norms_per_layer(fields: Fields) -> int:
    if fields.model_type == "gemma4_text" and fields.flag("enable_moe_block"):
        return 7
    # Falcon has one norm for both halves of a layer, or one for each where they run in turn or as in 40B and 180B.
    if not fields.flag("parallel_attn", default=True):
        return 2
    new = fields.flag("new_decoder_architecture")
    return fields.integer("num_ln_in_parallel_attn", default=2 if new else fields.family.norms_per_layer)


def _positions(fields: Fields, layers: Sequence[Layer]) -> Json:
    """The tables of positions that vLLM holds."""
    tables = fields.family.num_rotary_tables
    if (
        fields.family.compresses
    ):  # one for layers with entries, one for those without (models/deepseek_v4/common/rope.py)
        tables = len(
            {
                bool(layer.attention.compressed.ratio)
                for layer in layers
                if layer.attention and layer.attention.compressed
            }
        )
    if fields.family.unequal_heads:  # of layers with a window, of others
        tables = len({layer.attention.window for layer in layers if layer.attention})
    # Granite 4: only "rope" builds one (vLLM models/granitemoehybrid.py).
    if fields.model_type == "granitemoehybrid" and fields.raw("position_embedding_type") != "rope":
        tables = 0
    return {
        "num_rotary_tables": tables,
        "rotary_width": _rotary_width(fields, layers),
        "longer_rotary_tables": _longer_rotary_tables(fields),
        "learned_positions": _learned_positions(fields),
    }


def _rotary_width(fields: Fields, layers: Sequence[Layer]) -> int:
    """Columns of a rotary table where only a part of each head turns; 0 where all of it does."""
    if fields.model_type == "gemma4_text":  # the mean of its two tables
        return (fields.integer("head_dim") + fields.integer("global_head_dim")) // 2
    if fields.family.compresses:  # in fp32
        return 2 * fields.integer("qk_rope_head_dim")
    if fields.optional("rotary_dim"):
        return fields.integer("rotary_dim")
    if fields.family.unequal_heads:
        return _mean_rotary_width(fields, layers)
    nested = fields.raw("rope_parameters", "rope_scaling")
    given = nested.get("partial_rotary_factor") if isinstance(nested, Mapping) else None
    if given is None:
        given = fields.raw("partial_rotary_factor", "rotary_pct")
    if given is None:
        return 0
    factor = typed(given, Part, fields.where, "partial_rotary_factor")
    head_dim = fields.optional("head_dim") or (
        fields.hidden_size // max(1, fields.integer("num_attention_heads", "n_head", "num_heads", "n_heads"))
    )
    return int(head_dim * factor)


def _mean_rotary_width(fields: Fields, layers: Sequence[Layer]) -> int:
    """The mean of the tables; Step 3.5 lists the part of a head that turns by layer, Laguna names it by kind."""
    listed = fields.value(list[Part], "partial_rotary_factors")
    if not listed:
        kinds = {"sliding" if layer.attention.window else "full" for layer in layers if layer.attention}
        keys = (f"rope_parameters.{kind}_attention.partial_rotary_factor" for kind in sorted(kinds))
        listed = [fields.value(Part, key, "partial_rotary_factor") or 1.0 for key in keys]
    factors = set(listed)
    return int(fields.integer("head_dim") * sum(factors) / len(factors))


def _longer_rotary_tables(fields: Fields) -> int:
    """How many tables' worth of rows linear rope scaling adds: vLLM stores `factor` times the positions (Gemma 3)."""
    scaling = fields.value(Table, "rope_scaling", "rope_parameters") or {}
    if isinstance(scaling.get("full_attention"), Mapping):
        scaling = scaling["full_attention"]
    given = scaling.get("factor")
    factor = typed(1.0 if given is None else given, Factor, fields.where, "rope_scaling.factor")
    if scaling.get("rope_type", scaling.get("type")) != "linear":
        return 0
    return max(0, round(factor) - 1)


def _learned_positions(fields: Fields) -> int:
    offset = fields.family.learned_position_offset
    if offset is None:
        return 0
    hidden = fields.hidden_size
    if fields.integer("word_embed_proj_dim", default=hidden) != hidden or fields.raw("do_layer_norm_before") is False:
        raise HeadcountError(
            f"model {fields.name!r}: OPT with embeddings narrower than its layers, or norms behind them "
            "(word_embed_proj_dim, do_layer_norm_before: OPT-350m), is not modelled"
        )
    return fields.integer(*_CONTEXT) + offset


def _tied(outer: Fields, fields: Fields) -> bool:
    # A multimodal config keeps the flag at either level; the outer one wins in transformers.
    return outer.flag("tie_embedding", "tie_word_embeddings", default=fields.flag("tie_word_embeddings"))


def _dtype(fields: Fields) -> str:
    given = (fields.value(Word, "torch_dtype", "dtype") or "bfloat16").removeprefix("torch.")
    dtype: str = typed(given, Dtype, fields.where, "torch_dtype")
    return "bfloat16" if dtype == "float32" else dtype  # vLLM's `--dtype auto` serves fp32 checkpoints in 16 bits


def _assumptions(fields: Fields, config: Mapping[str, object]) -> list[Assumption]:
    found = []
    if fields.family is FALLBACK:
        why = f"model_type {fields.model_type!r} is not known; read like a Llama"
        found.append(("architecture", "llama-like: gated MLP, no biases, two norms per layer", why))
    if config.get("vision_config") and not knows_encoder(config):
        why = f"the encoder of {str(config.get('model_type'))!r} is not known; read like SigLIP, 0 without its widths"
        found.append(("vision encoder", f"{vision_parameters(config):,} parameters", why))
    return found
