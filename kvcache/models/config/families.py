"""The traits of each model family that is known."""

from collections.abc import Mapping

from kvcache.models.config.family import Family

FALLBACK = Family()

_TIED = {"tie_word_embeddings": True}
_NO_WINDOW = {"use_sliding_window": False}
_QWEN3 = Family(qk_norm=True, defaults={**_NO_WINDOW, "num_key_value_heads": 32, "head_dim": 128})
_QWEN2_5_VL = Family(qkv_bias=True, output_bias=False, defaults={**_NO_WINDOW, "num_key_value_heads": 8})
_MISTRAL = {"num_key_value_heads": 8}
_GEMMA3 = Family(
    qk_norm=True,
    num_rotary_tables=2,
    norms_per_layer=4,
    # transformers Gemma3TextConfig
    defaults={
        **_TIED,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
        "sliding_window_pattern": 6,
        "sliding_window": 4096,
        "max_position_embeddings": 131072,
    },
)
_MLA = {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
_DEEPSEEK_V3 = Family(
    defaults={**_MLA, "n_routed_experts": 256, "n_shared_experts": 1, "first_k_dense_replace": 3},
)
_LLAMA4 = Family(
    qk_norm_weights=False,
    dense_width_key="intermediate_size_mlp",
    defaults={
        "num_key_value_heads": 8,
        "head_dim": 128,
        "num_local_experts": 16,
        "num_experts_per_tok": 1,
        "num_shared_experts": 1,
        "attention_chunk_size": 8192,
    },
)
_GATED_DELTA_NET = {
    "partial_rotary_factor": 0.25,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}
_QWEN3_5 = Family(qk_norm=True, attention_output_gate=True, defaults={**_GATED_DELTA_NET, "num_key_value_heads": 4})
_QWEN3_5_MOE = Family(
    qk_norm=True,
    attention_output_gate=True,
    shared_expert_gate=True,
    defaults={
        **_GATED_DELTA_NET,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
    },
)
_MAMBA2 = {"mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2}
_MAMBA1 = {"state_size": 16, "conv_kernel": 4, "expand": 2, **_TIED}
_LFM2 = {
    **_TIED,
    "num_key_value_heads": 8,
    "conv_L_cache": 3,
    "block_multiple_of": 256,
    "max_position_embeddings": 128000,
}
_GEMMA3N = {
    **_TIED,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "vocab_size": 262400,
    "intermediate_size": 16384,
    "sliding_window": 512,
    "max_position_embeddings": 32768,
    "vocab_size_per_layer_input": 262144,
    "hidden_size_per_layer_input": 256,
    "altup_num_inputs": 4,
    "laurel_rank": 64,
    "num_kv_shared_layers": 15,
}
_GEMMA4 = {
    **_TIED,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "global_head_dim": 512,
    "vocab_size": 262144,
    "intermediate_size": 9216,
    "sliding_window": 512,
    "max_position_embeddings": 131072,
    "vocab_size_per_layer_input": 262144,
    "hidden_size_per_layer_input": 256,
}
_GLM = {"num_key_value_heads": 2, "head_dim": 128, "attention_bias": True}

_FAMILIES: Mapping[str, Family] = {
    "llama": Family(),
    "arcee": Family(gated_mlp=False),
    "mistral": Family(output_bias=False, defaults=_MISTRAL),
    "mistral3": Family(output_bias=False, vision_split=False),
    "mixtral": Family(output_bias=False, defaults={**_MISTRAL, "num_local_experts": 8, "num_experts_per_tok": 2}),
    "granite": Family(),
    "granitemoe": Family(defaults={"num_local_experts": 8, "num_experts_per_tok": 2}),
    "qwen2": Family(qkv_bias=True, output_bias=False, defaults={**_NO_WINDOW, "num_key_value_heads": 32}),
    "qwen2_5_vl": _QWEN2_5_VL,
    "qwen2_5_vl_text": _QWEN2_5_VL,
    "qwen2_moe": Family(
        shared_experts_always_split=True,
        qkv_bias=True,
        output_bias=False,
        shared_expert_gate=True,
        defaults={
            **_NO_WINDOW,
            "num_key_value_heads": 16,
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
        },
    ),
    "qwen3": _QWEN3,
    "qwen3_moe": Family(
        qk_norm=True,
        defaults={
            **_NO_WINDOW,
            "num_key_value_heads": 4,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
        },
    ),
    "qwen3_vl_text": _QWEN3,
    "qwen3_vl_moe_text": Family(
        qk_norm=True,
        defaults={
            **_NO_WINDOW,
            "num_key_value_heads": 16,
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 1408,
        },
    ),
    "gemma": Family(defaults={**_TIED, "num_key_value_heads": 16, "head_dim": 256}),
    "gemma2": Family(
        norms_per_layer=4,
        defaults={
            **_TIED,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "sliding_window_pattern": 2,
            "sliding_window": 4096,
        },
    ),
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "phi3": Family(output_bias=False),
    "phi": Family(gated_mlp=False, qkv_bias=True, mlp_bias=True, norms_per_layer=1, norm_bias=True, lm_head_bias=True),
    "phimoe": Family(
        norm_bias=True, defaults={"num_key_value_heads": 8, "num_local_experts": 16, "num_experts_per_tok": 2}
    ),
    "opt": Family(
        gated_mlp=False, qkv_bias=True, mlp_bias=True, norm_bias=True, learned_position_offset=2, defaults=_TIED
    ),
    "deepseek_v2": Family(defaults={**_MLA, "n_routed_experts": 64, "n_shared_experts": 2}),
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
    "gpt_oss": Family(
        qkv_bias=True,
        attention_sinks=True,
        expert_bias=True,
        router_bias=True,
        defaults={
            "num_key_value_heads": 8,
            "head_dim": 64,
            "num_local_experts": 128,
            "num_experts_per_tok": 4,
            "sliding_window_pattern": 2,
        },
    ),
    "gpt_neox": Family(gated_mlp=False, mlp_bias=True, norm_bias=True, defaults={"attention_bias": True}),
    "falcon": Family(
        gated_mlp=False,
        norms_per_layer=1,
        norm_bias=True,
        ffn_multiple=4,
        defaults={**_TIED, "multi_query": True, "parallel_attn": True},
    ),
    "llama4": _LLAMA4,
    "llama4_text": _LLAMA4,
    "glm": Family(output_bias=False, defaults=_GLM),
    "glm4": Family(output_bias=False, norms_per_layer=4, defaults=_GLM),
    "glm4_moe": Family(
        output_bias=False,
        shared_experts_always_split=True,
        router_fp32=True,
        router_bias=True,
        defaults={
            "num_key_value_heads": 8,
            "n_routed_experts": 128,
            "n_shared_experts": 1,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 1408,
            "first_k_dense_replace": 1,
        },
    ),
    "olmo2": Family(qk_norm=True, qk_norm_whole_projection=True),
    "olmo3": Family(
        qk_norm=True,
        qk_norm_whole_projection=True,
        defaults={"sliding_window_pattern": 4, "sliding_window": 4096},
    ),
    "olmoe": Family(
        qk_norm=True, qk_norm_whole_projection=True, defaults={"num_experts": 64, "num_experts_per_tok": 8}
    ),
    "minimax_m2": Family(
        router_fp32=True,
        qk_norm=True,
        qk_norm_whole_projection=True,
        router_bias=True,
        output_bias=False,
        defaults={"num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 256, "num_experts_per_tok": 8},
    ),
    "cohere": Family(norms_per_layer=1, qk_norm_whole_projection=True, defaults=_TIED),
    "cohere2": Family(norms_per_layer=1, defaults={**_TIED, "sliding_window_pattern": 4, "sliding_window": 4096}),
    "qwen3_next": Family(
        qk_norm=True,
        attention_output_gate=True,
        shared_expert_gate=True,
        defaults={
            **_GATED_DELTA_NET,
            "num_experts": 512,
            "num_experts_per_tok": 10,
            "moe_intermediate_size": 512,
            "shared_expert_intermediate_size": 512,
        },
    ),
    "qwen3_5_text": _QWEN3_5,
    "qwen3_5_moe_text": _QWEN3_5_MOE,
    "kimi_linear": Family(
        router_bias=True,
        num_rotary_tables=0,  # its latent attention has no positions (vLLM models/kimi_k3, mla_use_nope)
        defaults={
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "num_experts": 256,
            "num_experts_per_token": 8,
            "moe_intermediate_size": 1024,
            "num_shared_experts": 1,
            "linear_head_dim": 128,
            "linear_num_heads": 32,
            "linear_conv_kernel_dim": 4,
        },
    ),
    "granitemoehybrid": Family(
        shared_experts_always_split=True,
        defaults={**_MAMBA2, "num_local_experts": 8, "num_experts_per_tok": 2, "shared_intermediate_size": 1024},
    ),
    "bamba": Family(
        defaults={**_MAMBA2, "partial_rotary_factor": 0.5, "num_key_value_heads": 8, "max_position_embeddings": 262144}
    ),
    "falcon_h1": Family(
        defaults={
            **_MAMBA2,
            "num_key_value_heads": 8,
            "mamba_d_ssm": 1024,
            "mamba_rms_norm": False,
            "projectors_bias": False,
            "max_position_embeddings": 8192,
        }
    ),
    "nemotron_h": Family(
        gated_mlp=False,
        norms_per_layer=1,
        router_bias=True,
        num_rotary_tables=0,  # no positions in its attention (vLLM models/nemotron_h.py)
        defaults={
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 4096,
            "ssm_state_size": 128,
            "mamba_num_heads": 128,
            "mamba_head_dim": 64,
            "n_groups": 8,
            "conv_kernel": 4,
            "n_routed_experts": 8,
            "n_shared_experts": 1,
            "moe_intermediate_size": 7688,
            "moe_shared_expert_intermediate_size": 7688,
            "num_experts_per_tok": 2,
        },
    ),
    "jamba": Family(
        num_rotary_tables=0,  # no positions in its attention (vLLM models/jamba.py)
        defaults={
            "num_key_value_heads": 8,
            "max_position_embeddings": 262144,
            "num_experts": 16,
            "num_experts_per_tok": 2,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "attn_layer_period": 8,
            "attn_layer_offset": 4,
            "mamba_d_state": 16,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
        },
    ),
    "lfm2": Family(qk_norm=True, defaults={**_LFM2, "block_ffn_dim_multiplier": 1.0}),
    "lfm2_moe": Family(
        qk_norm=True,
        router_bias=True,
        defaults={
            **_LFM2,
            "num_experts": 32,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 1792,
            "num_dense_layers": 2,
        },
    ),
    "mamba": Family(norms_per_layer=1, num_rotary_tables=0, defaults=_MAMBA1),
    "falcon_mamba": Family(norms_per_layer=1, num_rotary_tables=0, defaults=_MAMBA1),
    "mamba2": Family(
        norms_per_layer=1,
        num_rotary_tables=0,
        defaults={"num_heads": 128, "head_dim": 64, "state_size": 128, "n_groups": 8, "conv_kernel": 4, "expand": 2},
    ),
    "qwen3_5": _QWEN3_5,
    "qwen3_5_moe": _QWEN3_5_MOE,
    # Their towers are transformers' own modules, whole on every rank (vLLM models/gemma3n_mm, models/gemma4_mm).
    "gemma3n": Family(vision_split=False),
    "gemma4": Family(vision_split=False),
    "gemma3n_text": Family(qk_norm=True, num_rotary_tables=2, norms_per_layer=4, defaults=_GEMMA3N),
    "gemma4_text": Family(qk_norm=True, num_rotary_tables=2, norms_per_layer=4, defaults=_GEMMA4),
    "smollm3": Family(defaults={**_TIED, **_NO_WINDOW, "num_key_value_heads": 4}),
    "starcoder2": Family(
        gated_mlp=False, norm_bias=True, defaults={**_TIED, "num_key_value_heads": 2, "use_bias": True}
    ),
    "stablelm": Family(norm_bias=True, output_bias=False, defaults={"num_key_value_heads": 32}),
    "nemotron": Family(gated_mlp=False, norm_bias=True),
    "seed_oss": Family(output_bias=False, defaults={"num_key_value_heads": 8, "head_dim": 128, "attention_bias": True}),
    "exaone4": Family(
        qk_norm=True, defaults={"num_key_value_heads": 32, "sliding_window_pattern": 4, "sliding_window": 4096}
    ),
    "ernie4_5": Family(defaults={**_TIED, "num_key_value_heads": 2, "head_dim": 128}),
}


def family_of(model_type: str) -> Family:
    """The traits of a `model_type`; `FALLBACK`, which is Llama-like, for one that is not known."""
    return _FAMILIES.get(model_type, FALLBACK)


def known_families() -> tuple[str, ...]:
    """Every `model_type` whose parameters are counted exactly."""
    return tuple(sorted(_FAMILIES))
