"""Which parts of a model a quantized checkpoint leaves in 16 bits."""

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from kvcache.models.config.checkpoint_format import quantization_config

# What checkpoints call the modules of a component; a part counts as left out where both its ends are.
_MODULES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "attention": (
        ("self_attn.q_proj", "self_attn.q_b_proj", "self_attn.qkv_proj", "mixer.q_proj"),
        ("self_attn.o_proj", "self_attn.out_proj", "mixer.o_proj"),
    ),
    "state_space": (
        ("linear_attn.in_proj_qkvz", "linear_attn.in_proj_qkv", "mamba.in_proj", "mixer.in_proj", "conv.in_proj"),
        ("linear_attn.out_proj", "mamba.out_proj", "mixer.out_proj", "conv.out_proj"),
    ),
    "mlp": (
        ("mlp.gate_proj", "mlp.up_proj", "mlp.gate_up_proj", "feed_forward.w1", "mixer.up_proj"),
        ("mlp.down_proj", "feed_forward.w2", "mixer.down_proj"),
    ),
    "shared_experts": (
        ("mlp.shared_experts.up_proj", "mlp.shared_expert.up_proj", "feed_forward.shared_expert.up_proj"),
        ("mlp.shared_experts.down_proj", "mlp.shared_expert.down_proj", "feed_forward.shared_expert.down_proj"),
    ),
    "experts": (
        ("mlp.experts.0.up_proj", "block_sparse_moe.experts.0.w1", "feed_forward.experts.0.up_proj"),
        ("mlp.experts.0.down_proj", "block_sparse_moe.experts.0.w2", "feed_forward.experts.0.down_proj"),
    ),
}
_ROOTS = ("model.layers", "model.language_model.layers", "language_model.model.layers", "backbone.layers")
_KEYS = ("ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers")


def unquantized_components(config: Mapping[str, Any], layers: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    """Components whose modules are all spared by the config's quantization, looked up in three of their layers each.

    `layers`: the 0-based layers that each component is in. A component that is spared in some layers counts as packed.
    """
    quantization = quantization_config(config)
    if quantization is None:
        return ()
    patterns = [str(name) for key in _KEYS for name in quantization.get(key) or ()]
    return tuple(
        component
        for component, ends in _MODULES.items()
        if patterns and layers.get(component) and all(_spared(patterns, ends, at) for at in _three(layers[component]))
    )


def _three(layers: Sequence[int]) -> set[int]:
    return {layers[0], layers[len(layers) // 2], layers[-1]}


def _spared(patterns: Sequence[str], ends: Iterable[Sequence[str]], layer: int) -> bool:
    return all(
        any(_matches(pattern, f"{root}.{layer}.{module}") for pattern in patterns for root in _ROOTS for module in end)
        for end in ends
    )


def _matches(pattern: str, name: str) -> bool:
    """As vLLM reads such lists: regular expressions after `re:`, wildcards, else a part of the name."""
    if pattern.startswith("re:"):
        try:
            return re.match(pattern[3:], name) is not None
        except re.error:
            return False
    if "*" in pattern:
        return fnmatchcase(name, pattern) or fnmatchcase(name, pattern + ".*")
    return name == pattern or f".{pattern.strip('.')}." in f".{name}."
