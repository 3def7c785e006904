"""Random small configs of every model family, for counts to be compared with transformers'."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, cast

Config = dict[str, Any]

OPTIONS = Path(__file__).parent / "parameter_options.json"
ABSENT = "absent"  # the config leaves the field out, so that the class's default counts
_FLAG = (True, False)
_WIDTH = (24, 40, 56)
_NO_KV_HEADS = ("falcon", "gpt2", "gpt_neox", "opt")  # these have no such field …
_WIDTH_KEYS = {"gpt2": "n_inner", "opt": "ffn_dim"}
_NO_DEFAULT_KV_HEADS = ("nemotron",)  # … without which transformers cannot build this one
# Text models that transformers builds within their multimodal model alone, with the options of another.
TEXT_LIKE = {
    "qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3", "qwen3_vl_moe_text": "qwen3_moe", "glm4v_text": "qwen2",
    "glm4v_moe_text": "glm4v_moe_text", "glm_ocr_text": "glm_ocr_text", "paddleocr_vl_text": "paddleocr_vl_text",
    "muse_glimmer_text": "muse_glimmer_text", "hunyuan_vl_text": "hunyuan_vl_text",
}  # fmt: skip


def model_types() -> tuple[str, ...]:
    """Every `model_type` that has random configs."""
    return (*_options()["text"], *_CASES, *_options()["multimodal"])


def random_config(seed: int, model_type: str, number: int) -> Config:
    """One small config, decided by its arguments alone."""
    rng = Random(f"{seed} {model_type} {number}")
    if model_type not in _options()["multimodal"]:
        return _text(rng, model_type)
    options = _options()["multimodal"][model_type]
    text = _text(rng, options["text"])
    tied = text.pop("tie_word_embeddings", rng.random() < 0.5)
    return {
        "model_type": model_type,
        "tie_word_embeddings": tied,  # of the outer config, as transformers writes it
        **_choose(rng, options["outer"]),
        "text_config": text,
        "vision_config": _choose(rng, options["vision"]),
    }


@cache
def _options() -> Mapping[str, Mapping[str, Any]]:
    """What a family's config can say of its tensors, beside the widths in `_shape`; of multimodal models, each part's.

    `nested`: of text models within their multimodal one alone.

    Latent attention goes without biases, since vLLM's has none (models/deepseek_v2.py); Llama 4 without a tied head,
    since transformers never ties it.
    """
    return cast(Mapping[str, Mapping[str, Any]], json.loads(OPTIONS.read_text(encoding="utf-8")))


def _text(rng: Random, model_type: str) -> Config:
    """The config of a text model; keys that are left out stand for the class's default."""
    if model_type in _CASES:
        return {"model_type": model_type, **_CASES[model_type](rng)}
    options = {**_options()["text"], **_options()["nested"]}[TEXT_LIKE.get(model_type, model_type)]
    return {"model_type": model_type, **_shape(rng, model_type), **_choose(rng, options)}


def _shape(rng: Random, model_type: str) -> Config:
    """The widths that every config has."""
    default_kv_heads = model_type not in _NO_DEFAULT_KV_HEADS and rng.random() < 0.2
    heads = 32 if default_kv_heads else rng.choice((4, 8, 12))  # 32 is a multiple of every class's default
    shape: Config = {
        "hidden_size": heads * rng.choice((4, 8, 12)),
        "num_hidden_layers": rng.choice((2, 3, 4)),
        "num_attention_heads": heads,
        "vocab_size": rng.choice((97, 128, 251)),
        "max_position_embeddings": 512,
        "pad_token_id": 0,
    }
    if not default_kv_heads and model_type not in _NO_KV_HEADS:
        shape["num_key_value_heads"] = rng.choice((1, 2, 4))
    if model_type != "falcon":  # it has `ffn_hidden_size`
        shape[_WIDTH_KEYS.get(model_type, "intermediate_size")] = rng.choice((48, 72, 104))
    if rng.random() < 0.7:
        shape["tie_word_embeddings"] = rng.random() < 0.5
    return shape


def _choose(rng: Random, options: Mapping[str, Sequence[Any]]) -> Config:
    picked = {key: rng.choice(values) for key, values in options.items()}
    return {key: value for key, value in picked.items() if value != ABSENT}


# Families whose layers are not all alike, each with what its numbers must have in common.


def _some(rng: Random, **options: Sequence[Any]) -> Config:
    """Each option, or nothing of it three times in ten."""
    return {key: rng.choice(values) for key, values in options.items() if rng.random() < 0.7}


def _one(rng: Random, **options: Sequence[Any]) -> Config:
    return {key: rng.choice(values) for key, values in options.items()}


def _base(rng: Random, *, heads_options: Sequence[int] = (4, 8)) -> Config:
    heads = rng.choice(heads_options)
    return {
        "hidden_size": heads * rng.choice((8, 16)),
        "num_hidden_layers": rng.choice((2, 3, 5, 6)),
        "num_attention_heads": heads,
        "num_key_value_heads": rng.choice((1, 2, 4)),
        "intermediate_size": rng.choice((48, 72, 104)),
        **_one(rng, vocab_size=(97, 128, 251), max_position_embeddings=(512,)),
        "pad_token_id": 0,
        **_some(rng, tie_word_embeddings=_FLAG),
    }


def _kinds(rng: Random, config: Config, *names: str) -> list[str]:
    return [rng.choice(names) for _ in range(config["num_hidden_layers"])]


def _delta_net(rng: Random) -> Config:
    key_heads = rng.choice((1, 2, 4))
    return {
        "linear_num_key_heads": key_heads,
        "linear_num_value_heads": key_heads * rng.choice((1, 2, 4)),
        **_some(rng, linear_key_head_dim=(4, 6), linear_value_head_dim=(4, 10), linear_conv_kernel_dim=(2, 4)),
    }


def _qwen(rng: Random, *, experts: bool, dense: bool) -> Config:
    config = {**_base(rng), **_delta_net(rng), **_some(rng, head_dim=(8, 12), attention_bias=_FLAG)}
    if rng.random() < 0.5:
        config |= _some(rng, full_attention_interval=(1, 2, 3, 4))
    else:
        config["layer_types"] = _kinds(rng, config, "linear_attention", "full_attention")
    if experts:
        config |= _one(rng, num_experts=(4, 6), num_experts_per_tok=(1, 2), moe_intermediate_size=_WIDTH)
        config |= _some(rng, shared_expert_intermediate_size=_WIDTH)
    if experts and dense:
        config |= _some(rng, mlp_only_layers=([], [0]), decoder_sparse_step=(1, 2))
    return config


def _listed_layers(rng: Random) -> Config:
    """Windows and experts where lists say so (Mellum)."""
    config = {**_base(rng), **_one(rng, head_dim=(4, 8, 20)), **_some(rng, attention_bias=_FLAG)}
    config["layer_types"] = _kinds(rng, config, "full_attention", "sliding_attention")
    if rng.random() < 0.7:
        config["mlp_layer_types"] = _kinds(rng, config, "dense", "sparse")
    return {**config, **_one(rng, num_experts=(4, 6), num_experts_per_tok=(1, 2), moe_intermediate_size=_WIDTH)}


def _laguna(rng: Random) -> Config:
    config = {**_listed_layers(rng), **_some(rng, gating=(True, "per-head", "per-element"))}
    if rng.random() < 0.7:
        config["num_attention_heads_per_layer"] = [rng.choice((4, 8)) for _ in config["layer_types"]]
    return {**config, **_some(rng, shared_expert_intermediate_size=_WIDTH)}


def _kimi_linear(rng: Random) -> Config:
    config = {**_base(rng), **_one(rng, num_experts=(4, 8), num_experts_per_token=(1, 2), moe_intermediate_size=_WIDTH)}
    config.pop("num_key_value_heads")
    config["tie_word_embeddings"] = False  # transformers never ties its head
    layers = list(range(1, config["num_hidden_layers"] + 1))
    full = sorted(rng.sample(layers, rng.randint(0, len(layers))))
    linear = {
        "full_attn_layers": full,
        "kda_layers": [layer for layer in layers if layer not in full],
        **_one(rng, head_dim=(4, 6), num_heads=(2, 4), short_conv_kernel_size=(2, 4)),
    }
    latent = _one(rng, kv_lora_rank=(16, 24), qk_nope_head_dim=(8, 12), qk_rope_head_dim=(4, 8), v_head_dim=(8, 10))
    return {
        **config,
        **latent,
        **_some(rng, num_shared_experts=(1, 2), first_k_dense_replace=(0, 1, 2)),
        "linear_attn_config": linear,
    }


def _mamba2_heads(rng: Random, width: int) -> Config:
    heads = rng.choice((2, 4, 8))
    config: Config = {"mamba_n_heads": heads, **_one(rng, mamba_n_groups=(1, 2), mamba_d_state=(4, 6))}
    if rng.random() < 0.5:
        config["mamba_d_head"] = width // heads
    return {**config, **_some(rng, mamba_d_conv=(2, 4), mamba_conv_bias=_FLAG, mamba_proj_bias=_FLAG)}


def _expanded(rng: Random, config: Config) -> Config:
    factor = rng.choice((1, 2, 3))
    return {**config, "mamba_expand": factor, **_mamba2_heads(rng, factor * config["hidden_size"])}


def _granite(rng: Random) -> Config:
    config = {**_expanded(rng, _base(rng)), **_some(rng, attention_bias=_FLAG)}
    config |= _one(rng, num_local_experts=(0, 4, 6), num_experts_per_tok=(1, 2), shared_intermediate_size=_WIDTH)
    if rng.random() < 0.8:
        names = rng.choice((("mamba", "attention"), ("linear_attention", "full_attention")))
        config["layer_types"] = _kinds(rng, config, *names)
    return config


def _bamba(rng: Random) -> Config:
    config = {**_expanded(rng, _base(rng)), **_some(rng, attention_bias=_FLAG, mlp_bias=_FLAG)}
    layers = range(config["num_hidden_layers"])
    return {**config, "attn_layer_indices": sorted(rng.sample(layers, rng.randint(0, len(layers))))}


def _falcon_h1(rng: Random) -> Config:
    config = {**_base(rng), **_some(rng, attention_bias=_FLAG, mlp_bias=_FLAG, projectors_bias=_FLAG)}
    width = rng.choice((64, 96))
    return {**config, "mamba_d_ssm": width, **_mamba2_heads(rng, width), **_some(rng, mamba_rms_norm=_FLAG)}


def _nemotron_h(rng: Random) -> Config:
    config = {**_base(rng), "head_dim": rng.choice((8, 12)), "tie_word_embeddings": False}  # never ties its head
    letters = rng.choice(("M*-", "M*E", "ME*-"))
    pattern = "".join(rng.choice(letters) for _ in range(config.pop("num_hidden_layers")))
    config |= _one(rng, mamba_num_heads=(4, 8), mamba_head_dim=(4, 10), n_groups=(1, 2, 4), ssm_state_size=(4, 6))
    config |= _one(rng, n_routed_experts=(4, 6), num_experts_per_tok=(1, 2), moe_intermediate_size=_WIDTH)
    config |= _one(rng, moe_shared_expert_intermediate_size=_WIDTH)
    config |= _some(rng, moe_latent_size=(20, 28), conv_kernel=(2, 4), use_conv_bias=_FLAG, use_bias=_FLAG)
    config |= _some(rng, attention_bias=_FLAG, mlp_bias=_FLAG)
    if rng.random() < 0.5:
        return {**config, "hybrid_override_pattern": pattern}
    names = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
    return {**config, "layers_block_type": [names[letter] for letter in pattern]}


def _jamba(rng: Random) -> Config:
    periods: Config = {}
    for what in ("attn", "expert"):
        period = rng.choice((1, 2, 3))
        periods |= {f"{what}_layer_period": period, f"{what}_layer_offset": rng.randrange(period)}
    return {
        **_base(rng),
        **periods,
        **_one(rng, num_experts=(1, 4, 6), num_experts_per_tok=(1,), mamba_d_state=(4, 6)),
        **_some(rng, mamba_d_conv=(2, 4), mamba_expand=(1, 2, 3), mamba_dt_rank=(3, "auto")),
        **_some(rng, mamba_conv_bias=_FLAG, mamba_proj_bias=_FLAG),
    }


def _lfm2(rng: Random) -> Config:
    config = {**_base(rng), **_some(rng, conv_bias=_FLAG, conv_L_cache=(2, 3, 4), block_multiple_of=(8, 16))}
    config |= _some(rng, block_auto_adjust_ff_dim=_FLAG, block_ffn_dim_multiplier=(1.0, 1.3), block_ff_dim=(96, 120))
    if "tie_word_embeddings" in config and rng.random() < 0.5:
        config["tie_embedding"] = config.pop("tie_word_embeddings")
    if rng.random() < 0.5:
        return {**config, "layer_types": _kinds(rng, config, "conv", "full_attention")}
    layers = range(config["num_hidden_layers"])
    return {**config, **_some(rng, full_attn_idxs=([], [0], [0, 1], [len(layers) - 1]))}


def _lfm2_moe(rng: Random) -> Config:
    config = {**_base(rng), **_some(rng, conv_bias=_FLAG, conv_L_cache=(2, 3, 4), num_dense_layers=(0, 1, 2))}
    config |= _one(rng, num_experts=(4, 6), num_experts_per_tok=(1, 2), moe_intermediate_size=_WIDTH)
    return {**config, "layer_types": _kinds(rng, config, "conv", "full_attention")}


def _mamba(rng: Random) -> Config:
    return {
        **_one(rng, hidden_size=(32, 48), num_hidden_layers=(1, 2, 3), vocab_size=(97, 128), state_size=(4, 6)),
        "pad_token_id": 0,
        **_some(rng, conv_kernel=(2, 4), expand=(1, 2, 3), time_step_rank=(3, "auto"), use_bias=_FLAG),
        **_some(rng, use_conv_bias=_FLAG, tie_word_embeddings=_FLAG),
    }


def _mamba2(rng: Random) -> Config:
    config = {**_mamba(rng), "expand": rng.choice((1, 2, 3)), "num_heads": rng.choice((2, 4, 8)), "n_groups": 2}
    config.pop("time_step_rank", None)
    return {**config, "head_dim": config["expand"] * config["hidden_size"] // config["num_heads"]}


def _gemma3n(rng: Random) -> Config:
    config = {**_base(rng), **_some(rng, head_dim=(8, 12), attention_bias=_FLAG)}
    layers = config["num_hidden_layers"]
    if rng.random() < 0.5:
        config["intermediate_size"] = [rng.choice((48, 72, 104)) for _ in range(layers)]
    config["layer_types"] = ["sliding_attention", "full_attention"] * layers
    config["layer_types"] = config["layer_types"][:layers]
    config["num_kv_shared_layers"] = rng.randint(0, layers - 2)
    config |= _one(rng, vocab_size_per_layer_input=(64, 90), hidden_size_per_layer_input=(8, 12), laurel_rank=(4, 8))
    return {**config, **_some(rng, altup_num_inputs=(2, 3, 4))}


def _gemma4(rng: Random) -> Config:
    config = {**_base(rng), **_some(rng, head_dim=(8, 12), global_head_dim=(8, 20), attention_bias=_FLAG)}
    layers = config["num_hidden_layers"]
    if rng.random() < 0.7:
        kinds = ["full_attention", "sliding_attention"] * layers
        config["layer_types"] = kinds[:layers]
        config["num_kv_shared_layers"] = rng.randint(0, layers - 2)
    config |= _one(rng, vocab_size_per_layer_input=(64, 90), hidden_size_per_layer_input=(0, 8, 12))
    config |= _some(rng, attention_k_eq_v=_FLAG, num_global_key_value_heads=(1, 2), use_double_wide_mlp=_FLAG)
    if rng.random() < 0.4:
        config["enable_moe_block"] = True
        config |= _one(rng, num_experts=(4, 6), top_k_experts=(1, 2), moe_intermediate_size=_WIDTH)
    return config


def _minimax_m3(rng: Random) -> Config:
    config = {**_base(rng), **_one(rng, num_local_experts=(4, 6), num_experts_per_tok=(1, 2), n_shared_experts=(1,))}
    config |= _one(rng, head_dim=(8, 12), dense_intermediate_size=_WIDTH, shared_intermediate_size=_WIDTH)
    layers = range(config["num_hidden_layers"])
    sparse = _one(rng, sparse_num_index_heads=(2, 4), sparse_index_dim=(8, 12), sparse_block_size=(16,))
    sparse |= {"sparse_topk_blocks": 2, "sparse_attention_freq": [rng.choice((0, 1)) for _ in layers]}
    config["moe_layer_freq"] = [rng.choice((0, 1)) for _ in layers]
    return {**config, "use_qk_norm": True, "use_routing_bias": True, "sparse_attention_config": sparse}


def _deepseek_v4(rng: Random) -> Config:
    config = {**_base(rng), **_one(rng, n_routed_experts=(4, 8), num_experts_per_tok=(1, 2), n_shared_experts=(1,))}
    config |= _one(rng, head_dim=(16, 32), moe_intermediate_size=_WIDTH, q_lora_rank=(12, 16), o_lora_rank=(8, 12))
    config |= _one(rng, index_n_heads=(2, 4), index_head_dim=(8, 16), index_topk=(16,), hc_mult=(2, 4))
    config |= {"num_attention_heads": 4, "num_key_value_heads": 1, "o_groups": rng.choice((1, 2)), "num_hash_layers": 0}
    ratios = [rng.choice((0, 4, 128)) for _ in range(config["num_hidden_layers"])]
    del config["intermediate_size"]  # transformers takes it for that of the experts
    return {**config, "compress_ratios": ratios, "qk_rope_head_dim": 8, "topk_method": "noaux_tc"}


_CASES: Mapping[str, Callable[[Random], Config]] = {
    "qwen3_next": lambda rng: _qwen(rng, experts=True, dense=True),
    "qwen3_5_text": lambda rng: _qwen(rng, experts=False, dense=True),
    "qwen3_5_moe_text": lambda rng: _qwen(rng, experts=True, dense=False),
    "mellum": _listed_layers,
    "laguna": _laguna,
    "kimi_linear": _kimi_linear,
    "granitemoehybrid": _granite,
    "bamba": _bamba,
    "falcon_h1": _falcon_h1,
    "nemotron_h": _nemotron_h,
    "jamba": _jamba,
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2_moe,
    "mamba": _mamba,
    "falcon_mamba": _mamba,
    "mamba2": _mamba2,
    "gemma3n_text": _gemma3n,
    "gemma4_text": _gemma4,
    "minimax_m3_vl_text": _minimax_m3,
    "deepseek_v4": _deepseek_v4,
}
