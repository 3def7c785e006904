"""Small models, with the splits over ranks in which their weights are laid beside vLLM's."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

Config = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class WeightCase:
    """One model on the first rank of one split."""

    name: str
    config: Config
    tensor_parallel_size: int = 1
    data_parallel_size: int = 1
    enable_expert_parallel: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain data, as the probe takes it."""
        return asdict(self)


_ATTENTION = {"num_attention_heads": 4, "num_key_value_heads": 2}
_BASE = {
    "hidden_size": 256, "intermediate_size": 512, "vocab_size": 1000, "max_position_embeddings": 512,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", **_ATTENTION,
}  # fmt: skip
_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "norm_topk_prob": True}
_ROUTED = {
    "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 128,
    "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.0,
}  # fmt: skip
_MAMBA2 = {
    "mamba_n_heads": 8, "mamba_d_head": 64, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_expand": 2,
    "mamba_d_conv": 4,
}  # fmt: skip
_WITHOUT_ATTENTION = {"hidden_size": 256, "num_hidden_layers": 2, "vocab_size": 1000, "state_size": 16}
_GEMMA = {**_BASE, "num_hidden_layers": 6, "head_dim": 64, "tie_word_embeddings": True}
_PER_LAYER_INPUTS = {"vocab_size_per_layer_input": 1000, "hidden_size_per_layer_input": 16}
_MIXED = ["sliding_attention", "full_attention"] * 3

# model_type → the class that vLLM builds, with a small config.
MODELS: Mapping[str, tuple[str, Config]] = {
    "llama": ("LlamaForCausalLM", {**_BASE, "num_hidden_layers": 2}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", {**_BASE, **_EXPERTS, "num_hidden_layers": 2, "head_dim": 64,
                                          "decoder_sparse_step": 1}),
    "qwen2_moe": ("Qwen2MoeForCausalLM", {**_BASE, **_EXPERTS, "num_hidden_layers": 2, "decoder_sparse_step": 1,
                                          "shared_expert_intermediate_size": 128}),
    "deepseek_v3": ("DeepseekV3ForCausalLM", {
        **_BASE, **_ROUTED, "num_hidden_layers": 3, "num_key_value_heads": 4, "kv_lora_rank": 64, "q_lora_rank": 64,
        "qk_nope_head_dim": 32, "qk_rope_head_dim": 32, "v_head_dim": 32, "topk_method": "noaux_tc",
        "scoring_func": "sigmoid"}),
    "glm4_moe": ("Glm4MoeForCausalLM", {**_BASE, **_ROUTED, "num_hidden_layers": 2, "head_dim": 64,
                                        "use_qk_norm": True, "attention_bias": True}),
    "gpt_oss": ("GptOssForCausalLM", {**_BASE, "num_hidden_layers": 2, "head_dim": 64, "num_key_value_heads": 4,
                                      "num_local_experts": 8, "num_experts_per_tok": 2}),
    "minimax_m2": ("MiniMaxM2ForCausalLM", {
        **_BASE, "num_hidden_layers": 2, "head_dim": 64, "num_local_experts": 8, "num_experts_per_tok": 2,
        "use_qk_norm": True, "rotary_dim": 32, "scoring_func": "sigmoid", "qk_norm_type": "per_layer",
        "use_routing_bias": True}),
    "qwen3_next": ("Qwen3NextForCausalLM", {
        **_BASE, **_EXPERTS, "num_hidden_layers": 4, "head_dim": 64, "shared_expert_intermediate_size": 128,
        "linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 32,
        "linear_value_head_dim": 32}),
    "granitemoehybrid": ("GraniteMoeHybridForCausalLM", {
        **_BASE, **_MAMBA2, "num_hidden_layers": 2, "shared_intermediate_size": 128, "num_local_experts": 8,
        "num_experts_per_tok": 2, "layer_types": ["mamba", "attention"], "position_embedding_type": "nope"}),
    "falcon_h1": ("FalconH1ForCausalLM", {
        **_BASE, **_MAMBA2, "num_hidden_layers": 2, "mamba_d_ssm": 512, "mamba_n_groups": 2, "head_dim": 64}),
    "nemotron_h": ("NemotronHForCausalLM", {
        **_BASE, "num_hidden_layers": 4, "hybrid_override_pattern": "M-*M", "head_dim": 64, "mamba_num_heads": 8,
        "mamba_head_dim": 64, "n_groups": 4, "ssm_state_size": 16}),
    "jamba": ("JambaForCausalLM", {
        **_BASE, "num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2,
        "expert_layer_offset": 1, "num_experts": 4, "num_experts_per_tok": 2, "mamba_d_state": 16,
        "mamba_dt_rank": 16}),
    "lfm2": ("Lfm2ForCausalLM", {
        **_BASE, "num_hidden_layers": 3, "full_attn_idxs": [2], "tie_word_embeddings": True, "block_multiple_of": 16,
        "block_dim": 256, "block_ff_dim": 512, "conv_dim": 256, "conv_dim_out": 256}),
    "lfm2_moe": ("Lfm2MoeForCausalLM", {
        **_BASE, **_EXPERTS, "num_hidden_layers": 3, "num_dense_layers": 1, "tie_word_embeddings": True,
        "layer_types": ["conv", "full_attention", "conv"]}),
    "mamba": ("MambaForCausalLM", _WITHOUT_ATTENTION),
    "falcon_mamba": ("FalconMambaForCausalLM", _WITHOUT_ATTENTION),
    "mamba2": ("Mamba2ForCausalLM", {**_WITHOUT_ATTENTION, "num_heads": 8, "head_dim": 64, "n_groups": 4}),
    "gemma3n_text": ("Gemma3nForCausalLM", {
        **_GEMMA, **_PER_LAYER_INPUTS, "layer_types": _MIXED, "num_kv_shared_layers": 2, "laurel_rank": 16}),
    "gemma4_text": ("Gemma4ForCausalLM", {
        **_GEMMA, **_PER_LAYER_INPUTS, "layer_types": _MIXED, "num_kv_shared_layers": 2, "global_head_dim": 128,
        "use_double_wide_mlp": True}),
}  # fmt: skip
_MANY_EXPERTS = ("qwen3_moe", "qwen2_moe", "deepseek_v3", "glm4_moe", "gpt_oss", "qwen3_next", "granitemoehybrid")


def weight_cases() -> Iterator[WeightCase]:
    """Every model at TP 1, 2, 4; those with many experts also under data and expert parallelism."""
    for model_type, (architecture, fields) in MODELS.items():
        config = {"model_type": model_type, "architectures": [architecture], **fields}
        for tp in (1, 2, 4):
            yield WeightCase(name=f"{model_type} TP {tp}", config=config, tensor_parallel_size=tp)
        if model_type not in _MANY_EXPERTS:
            continue
        for tp, dp, experts in ((2, 1, True), (1, 2, True), (2, 2, True), (2, 2, False)):
            yield WeightCase(
                name=f"{model_type} TP {tp} DP {dp}{' EP' if experts else ''}",
                config=config,
                tensor_parallel_size=tp,
                data_parallel_size=dp,
                enable_expert_parallel=experts,
            )
