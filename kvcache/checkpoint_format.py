"""What a checkpoint stores beside its text model's 16-bit shape."""

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
    if bits == 4 and kind == "float":
        return "nvfp4"
    if bits == 4:
        # Kimi-K2.5 and K2-Thinking leave attention alone: only the routed experts are packed, in groups of 32.
        spared = " ".join(str(name) for name in quantization.get("ignore") or ())
        return "int4-experts" if "self_attn" in spared and weights.get("group_size") == 32 else "gptq"
    return "fp8" if kind == "float" else "int8"


def vision_parameters(config: Mapping[str, Any]) -> int:
    """Parameters of a multimodal model's image encoder with its projector.

    `headcount_vision_parameters` (catalog files) gives the published figure; else SigLIP-like encoders are counted
    from `vision_config`: biased attention, a plain MLP, learned positions.
    """
    given = config.get("headcount_vision_parameters")
    if given is not None:
        return int(given)
    vision = config.get("vision_config")
    if (
        not isinstance(vision, Mapping)
        or not {"hidden_size", "num_hidden_layers", "intermediate_size"} <= vision.keys()
    ):
        return 0
    width, depth, inner = (int(vision[key]) for key in ("hidden_size", "num_hidden_layers", "intermediate_size"))
    patch, image = int(vision.get("patch_size", 14)), int(vision.get("image_size", 224))
    layer = 4 * (width * width + width) + 2 * width * inner + inner + width + 4 * width
    embedding = 3 * patch * patch * width + width + (image // patch) ** 2 * width
    text = config.get("text_config")
    hidden = int(text.get("hidden_size", 0)) if isinstance(text, Mapping) else 0
    return depth * layer + embedding + 2 * width + width * hidden + width
