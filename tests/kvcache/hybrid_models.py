"""Published models whose layers keep unequal caches: their configs, as far as a KV cache depends on them."""

from typing import Any

from kvcache.models.config.reader import from_config
from kvcache.shape.architecture import Architecture

Config = dict[str, Any]

_COMMON: Config = {"torch_dtype": "bfloat16", "vocab_size": 65536, "rms_norm_eps": 1e-5, "tie_word_embeddings": True}
_GEMMA: Config = {
    **_COMMON, "hidden_activation": "gelu_pytorch_tanh", "final_logit_softcapping": 30.0,
    "vocab_size_per_layer_input": 262144,
}  # fmt: skip


def _every(period: int, num_layers: int, one: str, other: str) -> list[str]:
    """`one` at the end of each period, `other` elsewhere."""
    return [one if layer % period == period - 1 else other for layer in range(num_layers)]


_GRANITE_KINDS = ["attention" if layer in {5, 15, 25, 35} else "mamba" for layer in range(40)]
_NEMOTRON_PATTERN = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-"
_KIMI_FULL = [4, 8, 12, 16, 20, 24, 27]

# Widths of MLPs, experts and vocabularies are cut where the cache does not depend on them.
CONFIGS: dict[str, Config] = {
    "Qwen/Qwen3-Next-80B-A3B-Instruct": {
        **_COMMON, "model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 16,
        "num_key_value_heads": 2, "head_dim": 256, "intermediate_size": 5120, "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
        "linear_value_head_dim": 128, "full_attention_interval": 4, "num_experts": 16, "num_experts_per_tok": 10,
        "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "decoder_sparse_step": 1,
        "mlp_only_layers": [], "max_position_embeddings": 262144, "partial_rotary_factor": 0.25,
    },
    "ibm-granite/granite-4.0-h-small": {
        **_COMMON, "model_type": "granitemoehybrid", "hidden_size": 4096, "num_hidden_layers": 40,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 768, "shared_intermediate_size": 1536,
        "num_local_experts": 8, "num_experts_per_tok": 4, "layer_types": _GRANITE_KINDS, "mamba_n_heads": 128,
        "mamba_d_head": 64, "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_n_groups": 1, "mamba_expand": 2,
        "max_position_embeddings": 131072, "position_embedding_type": "nope",
    },
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2": {
        **_COMMON, "model_type": "nemotron_h", "hidden_size": 4480, "num_hidden_layers": 56,
        "hybrid_override_pattern": _NEMOTRON_PATTERN, "num_attention_heads": 40, "num_key_value_heads": 8,
        "head_dim": 128, "mamba_num_heads": 128, "mamba_head_dim": 80, "ssm_state_size": 128, "n_groups": 8,
        "conv_kernel": 4, "intermediate_size": 15680, "max_position_embeddings": 131072, "mlp_hidden_act": "relu2",
    },
    "tiiuae/Falcon-H1-7B-Instruct": {
        **_COMMON, "model_type": "falcon_h1", "hidden_size": 3072, "num_hidden_layers": 44, "num_attention_heads": 12,
        "num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 12288, "mamba_d_ssm": 3072, "mamba_n_heads": 24,
        "mamba_d_head": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_rms_norm": False,
        "max_position_embeddings": 262144,
    },
    "LiquidAI/LFM2-1.2B": {
        **_COMMON, "model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "full_attn_idxs": [2, 5, 8, 10, 12, 14], "conv_L_cache": 3, "conv_bias": False,
        "block_dim": 2048, "conv_dim": 2048, "block_ff_dim": 12288, "intermediate_size": 12288,
        "max_position_embeddings": 128000,
    },
    "ai21labs/AI21-Jamba-Mini-1.6": {
        **_COMMON, "model_type": "jamba", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "attn_layer_offset": 4, "attn_layer_period": 8,
        "expert_layer_offset": 1, "expert_layer_period": 2, "mamba_d_conv": 4, "mamba_d_state": 16,
        "mamba_dt_rank": 256, "mamba_expand": 2, "num_experts": 2, "num_experts_per_tok": 2,
        "max_position_embeddings": 262144,
    },
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": {
        **_COMMON, "model_type": "kimi_linear", "architectures": ["KimiLinearForCausalLM"], "hidden_size": 2304,
        "num_hidden_layers": 27, "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 72,
        "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "mla_use_nope": True, "intermediate_size": 9216, "moe_intermediate_size": 1024, "num_experts": 16,
        "num_experts_per_token": 8, "num_shared_experts": 1, "first_k_dense_replace": 1, "num_expert_group": 1,
        "topk_group": 1, "model_max_length": 1048576, "max_position_embeddings": 1048576,
        "linear_attn_config": {
            "full_attn_layers": _KIMI_FULL, "kda_layers": [n for n in range(1, 28) if n not in _KIMI_FULL],
            "head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4,
        },
    },
    "inclusionAI/Ling-2.6-flash": {
        **_COMMON, "model_type": "bailing_hybrid", "architectures": ["BailingMoeV2_5ForCausalLM"], "hidden_size": 4096,
        "num_hidden_layers": 32, "layer_group_size": 8, "num_attention_heads": 32, "num_key_value_heads": 32,
        "head_dim": 128, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "group_norm_size": 4, "use_qk_norm": True, "partial_rotary_factor": 0.5,
        "intermediate_size": 9216, "moe_intermediate_size": 1024, "num_experts": 16, "num_experts_per_tok": 8,
        "num_shared_experts": 1, "moe_shared_expert_intermediate_size": 1024, "n_group": 1, "topk_group": 1,
        "moe_router_enable_expert_bias": True, "score_function": "sigmoid", "first_k_dense_replace": 1,
        "use_bias": False, "use_qkv_bias": False, "rope_theta": 6000000, "max_position_embeddings": 131072,
        "tie_word_embeddings": False, "hidden_act": "silu",
    },
    "inclusionAI/Ling-3.0-flash": {
        **_COMMON, "model_type": "bailing_hybrid", "architectures": ["BailingMoeV3ForCausalLM"], "hidden_size": 2560,
        "num_hidden_layers": 42, "layer_group_size": 6, "num_attention_heads": 32, "num_key_value_heads": 32,
        "head_dim": 128, "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "gated_attention_proj_granularity_type": "head_wise", "short_conv_kernel_size": 4,
        "no_kda_lora": True, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 16,
        "num_experts_per_tok": 8, "num_shared_experts": 1, "moe_shared_expert_intermediate_size": 768, "n_group": 1,
        "topk_group": 1, "first_k_dense_replace": 2, "use_bias": False, "rope_theta": 6000000,
        "max_position_embeddings": 262144, "tie_word_embeddings": False, "hidden_act": "silu",
    },
    "google/gemma-4-31b-it": {
        **_GEMMA, "model_type": "gemma4_text", "hidden_size": 5376, "num_hidden_layers": 60, "num_attention_heads": 32,
        "num_key_value_heads": 16, "head_dim": 256, "global_head_dim": 512, "num_global_key_value_heads": 4,
        "attention_k_eq_v": True, "intermediate_size": 21504, "sliding_window": 1024,
        "layer_types": _every(6, 60, "full_attention", "sliding_attention"), "max_position_embeddings": 262144,
        "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0,
    },
    "google/gemma-4-E2B-it": {
        **_GEMMA, "model_type": "gemma4_text", "hidden_size": 1536, "num_hidden_layers": 35, "num_attention_heads": 8,
        "num_key_value_heads": 1, "head_dim": 256, "global_head_dim": 512, "intermediate_size": 6144,
        "sliding_window": 512, "layer_types": _every(5, 35, "full_attention", "sliding_attention"),
        "max_position_embeddings": 131072, "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 20,
        "use_double_wide_mlp": True,
    },
    "google/gemma-3n-E2B-it": {
        **_GEMMA, "model_type": "gemma3n_text", "hidden_size": 2048, "num_hidden_layers": 30, "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 256, "intermediate_size": [8192] * 30, "sliding_window": 512,
        "layer_types": _every(5, 30, "full_attention", "sliding_attention"), "num_kv_shared_layers": 10,
        "hidden_size_per_layer_input": 256, "max_position_embeddings": 32768,
        "activation_sparsity_pattern": [0.95] * 10 + [0.0] * 20,
    },
}  # fmt: skip


def architecture(name: str) -> Architecture:
    """The shape of that model."""
    return from_config(CONFIGS[name], name=name)
