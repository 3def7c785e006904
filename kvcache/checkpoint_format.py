"""Which weight format a checkpoint's config names."""

from collections.abc import Mapping
from typing import Any


def native_quantization(config: Mapping[str, Any]) -> str | None:
    """The checkpoint's own weight format as a scheme name, None for 16-bit weights.

    Raises `ValueError` on a format that no file in kvcache/quantizations describes.
    """
    quantization = config.get("quantization_config")
    if quantization is None and isinstance(config.get("text_config"), Mapping):
        quantization = config["text_config"].get("quantization_config")
    if not isinstance(quantization, Mapping):
        return None
    method = str(quantization.get("quant_method", "")).lower()
    if method == "compressed-tensors":
        return _compressed_tensors(quantization)
    if method == "modelopt":
        return "nvfp4" if "FP4" in str(quantization.get("quant_algo", "")).upper() else "fp8"
    if method in ("bitsandbytes", "gptq", "awq"):
        bits = quantization.get("bits", 4)
        if quantization.get("load_in_8bit") or bits != 4:
            raise ValueError(f"quantization_config: {method} with {bits} bits is not modelled; only 4 bits are")
        return "nf4" if method == "bitsandbytes" else method
    names = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4"}
    if method not in names:
        known = ", ".join(sorted([*names, "awq", "bitsandbytes", "compressed-tensors", "gptq", "modelopt"]))
        raise ValueError(f"quantization_config: quant_method {method!r} is not modelled; known: {known}")
    return names[method]


def _compressed_tensors(quantization: Mapping[str, Any]) -> str:
    groups = quantization.get("config_groups") or {}
    first: Mapping[str, Any] = next(iter(groups.values()), {}) if isinstance(groups, Mapping) else {}
    weights = first.get("weights") or {}
    bits, kind = weights.get("num_bits", 8), weights.get("type", "float")
    if bits not in (4, 8):
        raise ValueError(f"quantization_config: compressed-tensors with {bits} bits is not modelled; only 4 or 8 are")
    if bits == 4 and kind == "float":
        return "nvfp4"
    if bits == 4:
        # Kimi-K2.5 and K2-Thinking leave attention alone: only the routed experts are packed, in groups of 32.
        spared = " ".join(str(name) for name in quantization.get("ignore") or ())
        return "int4-experts" if "self_attn" in spared and weights.get("group_size") == 32 else "gptq"
    return "fp8" if kind == "float" else "int8"
