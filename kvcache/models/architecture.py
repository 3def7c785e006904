"""The shape of a decoder-only transformer, as far as bytes depend on it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvcache.models.config.declared_kv_cache import DeclaredKVCache
from kvcache.models.config.reader import architecture_fields
from kvcache.models.state_space import StateSpace
from kvcache.models.tensors import ExtraTensor


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One model's shape.

    Widths count elements, windows count tokens. `ValueError` where the numbers contradict each other.
    """

    name: str
    model_type: str
    num_hidden_layers: int
    hidden_size: int
    vocab_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int  # of dense layers; 0 where every layer is a mixture of experts
    gated_mlp: bool = True
    attention_bias: bool = False  # on q, k, v
    attention_output_bias: bool = False
    mlp_bias: bool = False
    tie_word_embeddings: bool = False
    qk_norm: bool = False
    qk_norm_whole_projection: bool = False  # OLMo-2, MiniMax-M2: one weight per element of the projection, not per head
    max_position_embeddings: int
    layer_windows: tuple[int | None, ...]  # None: full attention
    chunked_attention: bool = False  # the windows are Llama 4's fixed chunks, not sliding windows
    # Layers that are not all alike; empty: every layer has attention and an MLP, none a state, none shares a cache.
    attention_layers: tuple[bool, ...] = ()
    state_layers: tuple[bool, ...] = ()  # beside attention in the same layer (Falcon-H1) or instead of it
    mlp_layers: tuple[bool, ...] = ()
    state_space: StateSpace | None = None
    kv_shared_with: tuple[int | None, ...] = ()  # the earlier layer whose cache a layer reads (Gemma 3n)
    # Of layers that attend to everything, where they differ from those with a window (Gemma 4); None: they do not.
    full_attention_head_dim: int | None = None
    full_attention_num_key_value_heads: int | None = None
    keys_as_values: bool = False  # in those layers; vLLM holds the projection twice (Gemma 4)
    mlp_widths: tuple[int, ...] = ()  # per layer, where they differ (Gemma 3n); empty: intermediate_size
    # Multi-head latent attention; None elsewhere.
    kv_lora_rank: int | None = None
    q_lora_rank: int | None = None
    qk_nope_head_dim: int | None = None
    qk_rope_head_dim: int | None = None
    v_head_dim: int | None = None
    # Mixture of experts; 0 elsewhere.
    num_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    shared_expert_intermediate_size: int = 0
    shared_experts_always_split: bool = False  # vLLM's model code has no sequence-parallel form of them
    moe_layers: tuple[bool, ...] = ()  # per layer; empty: none is
    moe_hidden_size: int = 0  # what experts read and write, where it is narrower (Nemotron-H); 0: hidden_size
    dense_beside_experts: bool = False  # an ordinary MLP in the same layer (Gemma 4)
    # Small tensors that exact parameter counts need.
    norms_per_layer: int = 2
    norm_bias: bool = False
    attention_sinks: bool = False
    expert_bias: bool = False
    router_bias: bool = False
    router_fp32: bool = False  # whatever the model's dtype
    shared_expert_gate: bool = False
    attention_output_gate: bool = False  # as wide as q, in the same projection (Qwen3-Next)
    extra_tensors: tuple[ExtraTensor, ...] = ()
    lm_head_bias: bool = False
    vision_parameters: int = 0  # encoder with its projector; loaded by vLLM beside the text model
    vision_split: bool = True  # False: whole on every tensor-parallel rank
    num_rotary_tables: int = 1
    learned_positions: int = 0  # rows of a position embedding (OPT), whole on every rank
    rotary_width: int = 0  # columns of each; 0: as wide as a head
    dtype: str = "bfloat16"
    native_quantization: str | None = None
    declared_kv_cache: DeclaredKVCache | None = None  # what the checkpoint was made for; see kv_cache_dtype
    longer_rotary_tables: int = 0  # how many tables' worth of rows linear rope scaling adds
    unquantized: tuple[str, ...] = ()  # components that the checkpoint's own format leaves in 16 bits
    assumptions: tuple[tuple[str, str, str], ...] = ()  # (name, value, why) of what the config did not say

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise ValueError(f"model {self.name!r}: {problem}; correct its config.json")

    @property
    def is_mla(self) -> bool:
        """Whether attention caches one latent per token instead of keys with values."""
        return self.kv_lora_rank is not None

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes tokens to experts."""
        return self.num_experts > 0

    @property
    def num_moe_layers(self) -> int:
        """Layers that route tokens to experts."""
        return sum(self.moe_layers)

    @property
    def num_dense_layers(self) -> int:
        """Layers with an ordinary MLP."""
        layers = range(self.num_hidden_layers)
        return sum(
            self.has_mlp(layer) and (self.dense_beside_experts or not self.is_moe_layer(layer)) for layer in layers
        )

    @property
    def num_attention_layers(self) -> int:
        """Layers with attention."""
        return sum(self.attention_layers) if self.attention_layers else self.num_hidden_layers

    @property
    def is_hybrid(self) -> bool:
        """Whether layers attend to different spans."""
        return len(set(self.layer_windows)) > 1

    def is_moe_layer(self, layer: int) -> bool:
        """Whether this 0-based layer routes tokens to experts."""
        return bool(self.moe_layers) and self.moe_layers[layer]

    def has_attention(self, layer: int) -> bool:
        """Whether this 0-based layer has attention, with a cache of its own or another's."""
        return not self.attention_layers or self.attention_layers[layer]

    def has_state(self, layer: int) -> bool:
        """Whether this 0-based layer keeps a state per sequence."""
        return bool(self.state_layers) and self.state_layers[layer]

    def has_mlp(self, layer: int) -> bool:
        """Whether this 0-based layer has an MLP or experts."""
        return not self.mlp_layers or self.mlp_layers[layer]

    def num_blocks(self, layer: int) -> int:
        """Parts of this 0-based layer that each add to the hidden state: attention, a state, an MLP, experts."""
        is_moe = self.is_moe_layer(layer)
        has_dense = self.has_mlp(layer) and (self.dense_beside_experts or not is_moe)
        return self.has_attention(layer) + self.has_state(layer) + has_dense + is_moe

    def shares_kv(self, layer: int) -> bool:
        """Whether this 0-based layer reads another layer's cache, so that it projects no keys or values."""
        return bool(self.kv_shared_with) and self.kv_shared_with[layer] is not None

    def heads_of(self, layer: int) -> tuple[int, int]:
        """KV heads with the head width of this 0-based layer's attention."""
        full = self.layer_windows[layer] is None
        kv_heads = self.full_attention_num_key_value_heads if full else None
        width = self.full_attention_head_dim if full else None
        return kv_heads or self.num_key_value_heads, width or self.head_dim


def from_config(config: Mapping[str, Any], *, name: str) -> Architecture:
    """The shape that a Hugging Face `config.json` describes.

    Nested `text_config` (multimodal models) is read where present. Raises `ValueError` on missing or contradictory
    fields.
    """
    return Architecture(**architecture_fields(config, name))


_POSITIVE = (
    "num_hidden_layers",
    "hidden_size",
    "vocab_size",
    "max_position_embeddings",
)
_POSITIVE_HEADS = ("num_attention_heads", "num_key_value_heads", "head_dim")  # where any layer has attention
_PER_LAYER = ("attention_layers", "state_layers", "mlp_layers", "kv_shared_with", "mlp_widths")
_NOT_NEGATIVE = ("intermediate_size", "num_experts", "num_experts_per_tok", "moe_intermediate_size")


def _problems(arch: Architecture) -> list[str]:
    positive = (*_POSITIVE, *(_POSITIVE_HEADS if arch.num_attention_layers else ()))
    problems = [f"{key} is {getattr(arch, key)}, must be positive" for key in positive if getattr(arch, key) <= 0]
    problems += [
        f"{key} is {getattr(arch, key)}, must not be negative" for key in _NOT_NEGATIVE if getattr(arch, key) < 0
    ]
    if problems:
        return problems
    problems += _unequal_problems(arch)
    if problems:
        return problems
    for heads in {arch.num_key_value_heads, arch.full_attention_num_key_value_heads or arch.num_key_value_heads}:
        if arch.num_attention_layers and arch.num_attention_heads % heads:
            problems.append(
                f"num_attention_heads {arch.num_attention_heads} is not a multiple of num_key_value_heads {heads}"
            )
    if len(arch.layer_windows) != arch.num_hidden_layers:
        problems.append(f"{len(arch.layer_windows)} attention layers listed for {arch.num_hidden_layers} hidden layers")
    if any(window is not None and window <= 0 for window in arch.layer_windows):
        problems.append("an attention window is not positive")
    if arch.moe_layers and len(arch.moe_layers) != arch.num_hidden_layers:
        problems.append(f"{len(arch.moe_layers)} MLP layers listed for {arch.num_hidden_layers} hidden layers")
    if arch.num_dense_layers and not arch.intermediate_size:
        problems.append("intermediate_size is missing for its dense layers")
    if arch.is_moe and not arch.moe_intermediate_size:
        problems.append("moe_intermediate_size is missing for its experts")
    if arch.is_moe and not 0 < arch.num_experts_per_tok <= arch.num_experts:
        problems.append(f"num_experts_per_tok {arch.num_experts_per_tok} must lie in 1–{arch.num_experts}")
    if arch.is_mla and None in (arch.qk_nope_head_dim, arch.qk_rope_head_dim, arch.v_head_dim):
        problems.append("kv_lora_rank is set, so qk_nope_head_dim, qk_rope_head_dim, v_head_dim must be")
    elif arch.is_mla and not arch.v_head_dim:
        problems.append(f"v_head_dim is {arch.v_head_dim}, must be positive")
    return problems


def _unequal_problems(arch: Architecture) -> list[str]:
    """What contradicts itself in layers that are not all alike."""
    found = [
        f"{key} lists {len(getattr(arch, key))} layers for {arch.num_hidden_layers} hidden layers"
        for key in (*_PER_LAYER, "moe_layers")
        if getattr(arch, key) and len(getattr(arch, key)) != arch.num_hidden_layers
    ]
    if found:
        return found
    if any(arch.state_layers) and arch.state_space is None:
        found.append("layers with a state are listed, so state_space must be")
    if arch.state_space is not None:
        found += arch.state_space.problems
    for layer, owner in enumerate(arch.kv_shared_with):
        if owner is not None and not (0 <= owner < layer and arch.kv_shared_with[owner] is None):
            found.append(f"layer {layer} shares the KV cache of layer {owner}, which has none of its own before it")
    if any(width <= 0 for width in arch.mlp_widths):
        found.append("an MLP width is not positive")
    return found
