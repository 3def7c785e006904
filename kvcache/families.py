"""What each model family fixes in code rather than in its `config.json`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Family:
    """Traits of one `model_type`.

    Source: the modelling files of huggingface/transformers and of vLLM (vllm/model_executor/models), read 2026-11.
    """

    gated_mlp: bool = True
    qkv_bias: bool = False  # True: always; False: where the config's attention_bias says so
    output_bias: bool | None = None  # None: as q, k, v
    mlp_bias: bool = False
    qk_norm: bool = False
    qk_norm_weights: bool = True  # False: normalised without weights (Llama 4)
    qk_norm_whole_projection: bool = False
    norms_per_layer: int = 2
    norm_bias: bool = False
    attention_sinks: bool = False
    expert_bias: bool = False
    router_bias: bool = False
    shared_expert_gate: bool = False
    lm_head_bias: bool = False
    ffn_multiple: int | None = None  # MLP width over hidden size, where the config omits it
    dense_width_key: str | None = None
    vision_split: bool = True  # False: vLLM keeps the vision encoder whole on every tensor-parallel rank
    num_rotary_tables: int = 1  # Gemma 3: one for windows, one for full attention
    defaults: Mapping[str, Any] = field(default_factory=dict)  # transformers' defaults that checkpoints leave out


FALLBACK = Family()

_QWEN3 = Family(qk_norm=True, output_bias=None)
_GEMMA_TIED = {"tie_word_embeddings": True}
_GEMMA3 = Family(
    qk_norm=True,
    num_rotary_tables=2,
    norms_per_layer=4,
    # transformers Gemma3TextConfig
    defaults={
        **_GEMMA_TIED,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
        "sliding_window_pattern": 6,
        "sliding_window": 4096,
        "max_position_embeddings": 131072,
    },
)
_DEEPSEEK = Family()
_LLAMA4 = Family(
    qk_norm_weights=False,
    dense_width_key="intermediate_size_mlp",
    defaults={"num_shared_experts": 1, "attention_chunk_size": 8192},
)

_FAMILIES: Mapping[str, Family] = {
    "llama": Family(),
    "mistral": Family(output_bias=False),
    "mistral3": Family(output_bias=False, vision_split=False),
    "mixtral": Family(output_bias=False),
    "granite": Family(),
    "qwen2": Family(qkv_bias=True, output_bias=False),
    "qwen2_moe": Family(qkv_bias=True, output_bias=False, shared_expert_gate=True),
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3,
    "gemma": Family(defaults=_GEMMA_TIED),
    "gemma2": Family(norms_per_layer=4, defaults={**_GEMMA_TIED, "sliding_window_pattern": 2, "sliding_window": 4096}),
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "phi3": Family(output_bias=False),
    "phi": Family(gated_mlp=False, qkv_bias=True, mlp_bias=True, norms_per_layer=1, norm_bias=True, lm_head_bias=True),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "gpt_oss": Family(
        qkv_bias=True, attention_sinks=True, expert_bias=True, router_bias=True, defaults={"sliding_window_pattern": 2}
    ),
    "falcon": Family(
        gated_mlp=False, norms_per_layer=1, norm_bias=True, ffn_multiple=4, defaults={"tie_word_embeddings": True}
    ),
    "llama4": _LLAMA4,
    "llama4_text": _LLAMA4,
    "glm4_moe": Family(output_bias=False),
    "olmo2": Family(qk_norm=True, qk_norm_whole_projection=True),
    "minimax_m2": Family(qk_norm=True, qk_norm_whole_projection=True, router_bias=True, output_bias=False),
}


def family_of(model_type: str) -> Family:
    """The traits of a `model_type`; `FALLBACK`, which is Llama-like, for one that is not known."""
    return _FAMILIES.get(model_type, FALLBACK)


def known_families() -> tuple[str, ...]:
    """Every `model_type` whose parameters are counted exactly."""
    return tuple(sorted(_FAMILIES))
