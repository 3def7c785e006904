"""Which weight format a checkpoint's config names."""

from collections.abc import Mapping
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
