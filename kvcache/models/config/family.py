"""What a model family fixes in code rather than in its `config.json`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Family:
    """Traits of one `model_type`.

    Source: the modelling files of huggingface/transformers and of vLLM (vllm/model_executor/models), read 2026-11.
    `calibrate.conformance.check_parameters` lays the counts beside transformers' own.
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
    shared_experts_always_split: bool = False  # see Architecture
    router_fp32: bool = False  # vLLM keeps the router in fp32
    attention_output_gate: bool = False
    lm_head_bias: bool = False
    ffn_multiple: int | None = None  # MLP width over hidden size, where the config omits it
    dense_width_key: str | None = None
    vision_split: bool = True  # False: vLLM keeps the vision encoder whole on every tensor-parallel rank
    num_rotary_tables: int = 1  # Gemma 3: one for windows, one for full attention
    learned_position_offset: int | None = None  # learned positions beyond the longest context; None: rotary ones
    defaults: Mapping[str, Any] = field(default_factory=dict)  # transformers' defaults that checkpoints leave out
