"""Layers that keep a state of fixed size per sequence in place of keys and values."""

from dataclasses import dataclass

KINDS = ("mamba1", "mamba2", "gated_delta_net", "kimi_delta", "short_conv")


@dataclass(frozen=True, kw_only=True)
class StateSpace:
    """The shape that a model's state-space or linear-attention layers share; 0 where a kind has no such width.

    `mamba1`: `intermediate_size`, `state_size`, `dt_rank`. `mamba2`: `num_heads` of `head_dim`, `num_groups`,
    `state_size`. `gated_delta_net` (Qwen3-Next): `num_heads` value heads of `head_dim`, `num_key_heads` of
    `key_head_dim`. `kimi_delta`: `num_heads` of `head_dim`. `short_conv` (LFM2): `intermediate_size`.
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
    # What only the count of weights needs.
    dt_rank: int = 0
    conv_bias: bool = False
    projection_bias: bool = False  # into the layer
    output_bias: bool = False
    norm: bool = False  # weights of the norm before the output (mamba2), of dt, B and C (mamba1)

    @property
    def problems(self) -> list[str]:
        """What contradicts itself; empty where nothing does."""
        if self.kind not in KINDS:
            return [f"state-space kind {self.kind!r} is not modelled; known: {', '.join(KINDS)}"]
        needed = {
            "mamba1": ("intermediate_size", "state_size", "dt_rank"),
            "mamba2": ("num_heads", "head_dim", "num_groups", "state_size"),
            "gated_delta_net": ("num_heads", "head_dim", "num_key_heads", "key_head_dim"),
            "kimi_delta": ("num_heads", "head_dim"),
            "short_conv": ("intermediate_size",),
        }[self.kind]
        found = [
            f"{key} of its state-space layers is {getattr(self, key)}, must be positive"
            for key in ("conv_kernel", *needed)
            if getattr(self, key) <= 0
        ]
        shared_by = {"mamba2": "num_groups", "gated_delta_net": "num_key_heads"}.get(self.kind)
        if not found and shared_by and self.num_heads % getattr(self, shared_by):
            found.append(
                f"the {self.num_heads} heads of its state-space layers are not a multiple of "
                f"{shared_by} {getattr(self, shared_by)}"
            )
        return found
