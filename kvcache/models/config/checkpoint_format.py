"""Which weight format a checkpoint's config names, and which parts of the model it leaves in 16 bits."""

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any


def quantization_config(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The config's `quantization_config`, of either level, as one object.

    ModelOpt's own file, hf_quant_config.json, has its fields in a "quantization" of its own and no `quant_method`.
    """
    found = config.get("quantization_config")
    if found is None and isinstance(config.get("text_config"), Mapping):
        found = config["text_config"].get("quantization_config")
    if not isinstance(found, Mapping):
        return None
    inner, producer = found.get("quantization"), found.get("producer")
    if isinstance(inner, Mapping) and isinstance(producer, Mapping) and producer.get("name") == "modelopt":
        return {"quant_method": "modelopt", **inner, **found}
    return found


def native_quantization(config: Mapping[str, Any]) -> str | None:
    """The checkpoint's own weight format as a scheme name, None for 16-bit weights.

    A name such as `gptq-g32` stands for a format of kvcache/formats/weights with another group size.
    Raises `ValueError` on a format that no file in kvcache/formats/weights describes.
    """
    quantization = quantization_config(config)
    if quantization is None:
        return None
    method = str(quantization.get("quant_method", "")).lower()
    if method == "compressed-tensors":
        return _compressed_tensors(quantization)
    if method.startswith("modelopt"):
        return _modelopt(quantization)
    if method in ("bitsandbytes", "gptq", "awq"):
        return _integers(method, quantization)
    if method == "fp8":
        return _fp8(quantization)
    names = {"fbgemm_fp8": "fp8", "mxfp4": "mxfp4"}
    if method not in names:
        known = ", ".join(sorted([*names, "awq", "bitsandbytes", "compressed-tensors", "fp8", "gptq", "modelopt"]))
        raise ValueError(f"quantization_config: quant_method {method!r} is not modelled; known: {known}")
    return names[method]


def _fp8(quantization: Mapping[str, Any]) -> str:
    block = quantization.get("weight_block_size")
    if block is None:
        return "fp8-tensor"
    if list(block) != [128, 128]:
        raise ValueError(f"quantization_config: weight_block_size {block} is not modelled; only [128, 128] is")
    return "fp8-block"


def _modelopt(quantization: Mapping[str, Any]) -> str:
    inner = quantization.get("quantization")
    level = inner if isinstance(inner, Mapping) else quantization
    algorithm = str(level.get("quant_algo", "")).upper()
    if "MXFP8" in algorithm:
        return "mxfp8"
    if "MIXED" in algorithm or "AWQ" in algorithm:
        raise ValueError(f"quantization_config: quant_algo {algorithm} is not modelled; known: FP8, NVFP4, MXFP8")
    return "nvfp4" if "FP4" in algorithm else "fp8-tensor"


def _integers(method: str, quantization: Mapping[str, Any]) -> str:
    """GPTQ, AWQ, bitsandbytes."""
    bits = quantization.get("bits", 4)
    if method == "bitsandbytes":
        if quantization.get("load_in_8bit") or bits != 4:
            raise ValueError(f"quantization_config: {method} with 8 bits is not modelled; only 4 bits are")
        return "nf4-double" if quantization.get("bnb_4bit_use_double_quant") else "nf4"
    if bits not in ((4, 8) if method == "gptq" else (4,)):
        raise ValueError(f"quantization_config: {method} with {bits} bits is not modelled; only 4 bits are")
    name = _grouped("gptq-8bit" if bits == 8 else method, quantization.get("group_size", 128))
    return f"{name}-actorder" if method == "gptq" and quantization.get("desc_act") else name


def _grouped(name: str, group_size: Any, usual: int = 128) -> str:
    """`gptq` with groups of 32: `gptq-g32`; -1 stands for one group per output channel."""
    if group_size in (None, -1):
        return name if usual == 0 else f"{name}-channel"
    if isinstance(group_size, bool) or not isinstance(group_size, int) or group_size < 1:
        raise ValueError(f"quantization_config: group_size is {group_size!r}, must be a positive whole number or -1")
    return name if group_size == usual else f"{name}-g{group_size}"


def _compressed_tensors(quantization: Mapping[str, Any]) -> str | None:
    groups = quantization.get("config_groups")
    # A group without weights quantizes attention alone; no group at all, with a KV cache's scheme, that alone.
    packed = [group for group in groups.values() if group.get("weights")] if isinstance(groups, Mapping) else []
    if groups is not None and not packed:
        return None
    first: Mapping[str, Any] = packed[0] if packed else {}
    weights = first.get("weights") or {}
    bits, kind = weights.get("num_bits", 8), weights.get("type", "float")
    if bits not in (4, 8):
        raise ValueError(f"quantization_config: compressed-tensors with {bits} bits is not modelled; only 4 or 8 are")
    if kind == "float":
        return _floats(weights, bits)
    if bits == 8 and first.get("input_activations"):
        return "int8"
    size = weights.get("group_size")
    if bits == 8:
        # Without a word on activations or groups: the usual 8 bits, W8A8.
        return _grouped("w8a16", size, usual=0) if "pack" in str(quantization.get("format", "")) else "int8"
    # Kimi-K2.5 and K2-Thinking leave attention alone: only the routed experts are packed, in groups of 32.
    spared = " ".join(str(name) for name in quantization.get("ignore") or ())
    if "self_attn" in spared and size == 32:
        return "int4-experts"
    base = "awq" if weights.get("symmetric") is False else "w4a16"
    return _grouped(base, 128 if size is None and weights.get("strategy") in (None, "group") else size)


def _floats(weights: Mapping[str, Any], bits: int) -> str:
    if bits == 4:
        return "mxfp4" if weights.get("group_size") == 32 else "nvfp4"
    return {"tensor": "fp8-tensor", "block": "fp8-block"}.get(str(weights.get("strategy")), "fp8")


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
