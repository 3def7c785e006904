"""Random small configs of every model family, for counts to be laid beside transformers'."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from calibrate.conformance.cases.unequal_parameter_cases import random_unequal_config, unequal_model_types

Config = dict[str, Any]
Options = Mapping[str, Sequence[Any]]

ABSENT = object()  # the config leaves the field out, so that the class's default counts
_FLAG = (True, False, ABSENT)
_WIDTH = (24, 40, 56)
_HEAD_DIM = {"head_dim": (4, 8, 20, ABSENT)}  # free of the hidden size
_ATTENTION = {"attention_bias": _FLAG}
_BOTH = {**_ATTENTION, "mlp_bias": _FLAG}
_TOP = {"num_experts_per_tok": (1, 2)}
_SPARSE = {
    **_TOP, "num_experts": (4, 6), "moe_intermediate_size": (*_WIDTH, ABSENT), "decoder_sparse_step": (1, 2, ABSENT),
    "mlp_only_layers": ([], [0], ABSENT),
}  # fmt: skip
_ROUTED = {
    **_TOP, "n_routed_experts": (4, 8), "n_shared_experts": (1, 2, ABSENT), "first_k_dense_replace": (0, 1, ABSENT),
    "moe_intermediate_size": _WIDTH, "n_group": (1,), "topk_group": (1,),
}  # fmt: skip
# Attention biases stay off: vLLM's multi-head latent attention has none (models/deepseek_v2.py).
_LATENT = {
    **_ROUTED, "attention_bias": (False,), "q_lora_rank": (None, 12, ABSENT), "kv_lora_rank": (16, 24, ABSENT),
    "qk_nope_head_dim": (8, 12, ABSENT), "qk_rope_head_dim": (4, 8, ABSENT), "v_head_dim": (8, 10, ABSENT),
}  # fmt: skip

# What a family's config can say of its tensors, beside the widths in `_shape`.
OPTIONS: Mapping[str, Options] = {
    "llama": {**_BOTH, **_HEAD_DIM},
    "arcee": {**_BOTH, **_HEAD_DIM},
    "mistral": _HEAD_DIM,
    "mixtral": {**_TOP, **_HEAD_DIM, "num_local_experts": (4, 6, ABSENT)},
    "granite": _BOTH,
    "granitemoe": {**_TOP, **_ATTENTION, "num_local_experts": (4, 6)},
    "qwen2": {},
    "qwen2_moe": {**_SPARSE, "shared_expert_intermediate_size": (*_WIDTH, ABSENT)},
    "qwen3": {**_ATTENTION, **_HEAD_DIM},
    "qwen3_moe": {**_SPARSE, **_ATTENTION, **_HEAD_DIM},
    "gemma": {**_ATTENTION, **_HEAD_DIM},
    "gemma2": {**_ATTENTION, **_HEAD_DIM},
    "gemma3_text": {**_ATTENTION, **_HEAD_DIM},
    "phi": {},
    "phi3": {},
    "phimoe": {**_TOP, **_ATTENTION, "num_local_experts": (4, 6, ABSENT), "lm_head_bias": _FLAG},
    "deepseek_v2": {**_LATENT, "topk_method": ("greedy",)},
    "deepseek_v3": {**_LATENT, "topk_method": ("noaux_tc",)},
    "gpt_oss": {**_TOP, **_HEAD_DIM, "num_local_experts": (4, 6, ABSENT)},
    "gpt_neox": _ATTENTION,
    "falcon": {
        "new_decoder_architecture": (True, False), "multi_query": _FLAG, "parallel_attn": (True, True, False, ABSENT),
        "bias": _FLAG, "num_kv_heads": (1, 2, 4), "ffn_hidden_size": (*_WIDTH, ABSENT), "alibi": (False,),
        "num_ln_in_parallel_attn": (1, 2, ABSENT),
    },
    "llama4_text": {
        **_TOP, **_ATTENTION, **_HEAD_DIM, "num_local_experts": (4, 6, ABSENT), "intermediate_size_mlp": _WIDTH,
        "interleave_moe_layer_step": (1, 2, ABSENT), "moe_layers": ([0], [1], ABSENT), "use_qk_norm": _FLAG,
    },
    "glm": {**_ATTENTION, **_HEAD_DIM},
    "glm4": {**_ATTENTION, **_HEAD_DIM},
    "glm4_moe": {**_ROUTED, **_ATTENTION, **_HEAD_DIM, "use_qk_norm": _FLAG},
    "olmo2": _ATTENTION,
    "olmo3": _ATTENTION,
    "olmoe": {**_TOP, **_ATTENTION, "num_experts": (4, 6, ABSENT)},
    "minimax_m2": {**_TOP, **_HEAD_DIM, "num_local_experts": (4, 6, ABSENT)},
    "cohere": {**_ATTENTION, "use_qk_norm": _FLAG},
    "cohere2": _ATTENTION,
    "smollm3": _BOTH,
    "starcoder2": {"use_bias": _FLAG},
    "stablelm": {"use_qkv_bias": _FLAG},
    "nemotron": {**_BOTH, **_HEAD_DIM},
    "seed_oss": {**_BOTH, **_HEAD_DIM, "attention_out_bias": _FLAG},
    "exaone4": {},
    "ernie4_5": {**_HEAD_DIM, "use_bias": _FLAG},
    "opt": {},
}  # fmt: skip

_NO_KV_HEADS = ("falcon", "gpt_neox", "opt")  # these have no such field …
_NO_DEFAULT_KV_HEADS = ("nemotron",)  # … without which transformers cannot build this one

# Text models that transformers builds within their multimodal model alone, with the options of another.
TEXT_LIKE = {"qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3", "qwen3_vl_moe_text": "qwen3_moe"}

# Outer model_type: the text model's, the encoder's options, the outer config's.
_ENCODER = {"hidden_size": (16, 32), "num_attention_heads": (2, 4), "num_hidden_layers": (1, 2), "patch_size": (2, 4)}
_QWEN_ENCODER = {
    "hidden_size": (16, 32), "num_heads": (2, 4), "depth": (1, 3), "patch_size": (2, 4, ABSENT),
    "temporal_patch_size": (1, 2, ABSENT), "spatial_merge_size": (2, 3, ABSENT), "out_hidden_size": (16, 24, ABSENT),
}  # fmt: skip
_QWEN3_ENCODER = {
    **_QWEN_ENCODER, "intermediate_size": (*_WIDTH, ABSENT), "num_position_embeddings": (16, 64, ABSENT),
    "deepstack_visual_indexes": ([], [0], [0, 2], ABSENT),
}  # fmt: skip
MULTIMODAL: Mapping[str, tuple[str, Options, Options]] = {
    "gemma3": (
        "gemma3_text",
        {**_ENCODER, "intermediate_size": _WIDTH, "image_size": (16, 32, ABSENT), "vision_use_head": _FLAG},
        {"mm_tokens_per_image": (4,)},
    ),
    "llama4": (
        "llama4_text",
        {
            **_ENCODER, "intermediate_size": _WIDTH, "image_size": (16, 32, ABSENT), "vision_output_dim": (12, 20),
            "projector_input_dim": (20,), "projector_output_dim": (20,),
        },
        {"tie_word_embeddings": (False,)},  # transformers never ties its head
    ),
    "mistral3": (
        "mistral",
        {**_ENCODER, "intermediate_size": _WIDTH, "image_size": (16, 32, ABSENT)},
        {"spatial_merge_size": (2, 3, ABSENT), "multimodal_projector_bias": _FLAG},
    ),
    **{
        outer: (
            text,
            {
                "depth": (1, 2), "hidden_size": (16, 32), "intermediate_size": _WIDTH, "num_heads": (2,),
                "out_hidden_size": (24, 40), "num_position_embeddings": (9, 16), "spatial_merge_size": (2, 3, ABSENT),
                "temporal_patch_size": (1, 2, ABSENT), "patch_size": (2, 4),
            },
            {},
        )
        for outer, text in (("qwen3_5", "qwen3_5_text"), ("qwen3_5_moe", "qwen3_5_moe_text"))
    },
    "gemma4": (
        "gemma4_text",
        {
            **_ENCODER, "num_key_value_heads": (1, 2), "intermediate_size": _WIDTH, "head_dim": (4, 8),
            "position_embedding_size": (7, 16, ABSENT), "standardize": _FLAG, "use_clipped_linears": _FLAG,
        },
        {
            "audio_config": (
                {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "output_proj_dims": 24},
                {"hidden_size": 16, "num_hidden_layers": 1, "use_clipped_linears": False, "conv_kernel_size": 3},
                None, ABSENT,
            ),
        },
    ),
    "kimi_k25": (
        "deepseek_v3",
        {
            **_ENCODER, "hidden_size": (1152,), "intermediate_size": (*_WIDTH, ABSENT), "pos_emb_height": (8, ABSENT),
            "pos_emb_width": (6, ABSENT), "merge_kernel_size": ([2, 2], [2, 3], ABSENT),
        },
        {},
    ),
    "llava": (
        "llama",
        {
            **_ENCODER, "model_type": ("clip_vision_model",), "intermediate_size": (*_WIDTH, ABSENT),
            "image_size": (16, 32, ABSENT),
        },
        {"multimodal_projector_bias": _FLAG},
    ),
    "qwen2_5_vl": ("qwen2_5_vl_text", {**_QWEN_ENCODER, "intermediate_size": (*_WIDTH, ABSENT)}, {}),
    "qwen3_vl": ("qwen3_vl_text", _QWEN3_ENCODER, {}),
    "qwen3_vl_moe": ("qwen3_vl_moe_text", _QWEN3_ENCODER, {}),
}  # fmt: skip


def model_types() -> tuple[str, ...]:
    """Every `model_type` that has random configs."""
    return (*OPTIONS, *unequal_model_types(), *MULTIMODAL)


def random_config(seed: int, model_type: str, number: int) -> Config:
    """One small config, decided by its arguments alone."""
    rng = Random(f"{seed} {model_type} {number}")
    if model_type in unequal_model_types():
        return {"model_type": model_type, **random_unequal_config(rng, model_type)}
    if model_type in OPTIONS:
        return {"model_type": model_type, **_text(rng, model_type)}
    text_type, vision, outer = MULTIMODAL[model_type]
    whole = random_unequal_config(rng, text_type) if text_type in unequal_model_types() else _text(rng, text_type)
    text = {"model_type": text_type, **whole}
    tied = text.pop("tie_word_embeddings", rng.random() < 0.5)
    return {
        "model_type": model_type,
        "tie_word_embeddings": tied,  # of the outer config, as transformers writes it
        **_choose(rng, outer),
        "text_config": text,
        "vision_config": _choose(rng, vision),
    }


def _text(rng: Random, model_type: str) -> Config:
    return {**_shape(rng, model_type), **_choose(rng, OPTIONS[TEXT_LIKE.get(model_type, model_type)])}


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
        shape["ffn_dim" if model_type == "opt" else "intermediate_size"] = rng.choice((48, 72, 104))
    if rng.random() < 0.7:
        shape["tie_word_embeddings"] = rng.random() < 0.5
    return shape


def _choose(rng: Random, options: Options) -> Config:
    picked = {key: rng.choice(values) for key, values in options.items()}
    return {key: value for key, value in picked.items() if value is not ABSENT}
