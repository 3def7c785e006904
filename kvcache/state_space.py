"""Layers that keep a state of fixed size per sequence in place of keys and values."""

from dataclasses import dataclass

KINDS = ("mamba1", "mamba2", "gated_delta_net", "kimi_delta", "short_conv")


@dataclass(frozen=True, kw_only=True)
class StateSpace:
    """The shape that a model's state-space or linear-attention layers share; 0 where a kind has no such width.

    `mamba1`: `intermediate_size`, `state_size`. `mamba2`: `num_heads` of `head_dim`, `num_groups`, `state_size`.
    `gated_delta_net` (Qwen3-Next): `num_heads` value heads of `head_dim`, `num_key_heads` of `key_head_dim`.
    `kimi_delta`: `num_heads` of `head_dim`. `short_conv` (LFM2): `intermediate_size`.
    """

    kind: str  # one of KINDS
    conv_kernel: int
    num_heads: int = 0
    head_dim: int = 0
    num_key_heads: int = 0
    key_head_dim: int = 0
    num_groups: int = 0
    state_size: int = 0
    intermediate_size: int = 0
    state_dtype: str = "auto"  # of the recurrent state, vLLM's mamba_ssm_cache_dtype; auto: the model's dtype
