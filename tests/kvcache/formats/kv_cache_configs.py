"""Checkpoints' `quantization_config` with and without a KV cache of their own."""

from typing import Any

WEIGHTS = {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}
FP8 = {"num_bits": 8, "type": "float", "dynamic": False}
FP4 = {"num_bits": 4, "type": "float", "dynamic": True}
SCHEME = {**FP8, "strategy": "tensor", "symmetric": True}


def modelopt(**more: Any) -> dict[str, Any]:
    return {"quant_method": "modelopt", "quant_algo": "FP8", **more}


def nested(**more: Any) -> dict[str, Any]:
    return {"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4", **more}}


def packed(scheme: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": WEIGHTS,
        "kv_cache_scheme": scheme,
    }


# A quantization_config → what `auto` is under vLLM 0.32 without and with latent attention; None: vLLM refuses it.
CASES: tuple[tuple[dict[str, Any], str | None, str | None], ...] = (
    ({"quant_method": "fp8", "kv_cache_scheme": FP8}, "auto", "auto"),
    (modelopt(), "auto", "auto"),
    (modelopt(kv_cache_quant_algo="FP8"), "fp8_e4m3", "fp8_e4m3"),
    (modelopt(kv_cache_quant_algo="fp8"), "fp8_e4m3", "fp8_e4m3"),
    (modelopt(kv_cache_quant_algo="NVFP4"), "nvfp4", "nvfp4"),
    (modelopt(kv_cache_quant_algo="INT8"), "auto", "auto"),
    (modelopt(kv_cache_quant_algo=""), "auto", "auto"),
    (modelopt(kv_cache_scheme=FP8), "fp8_e4m3", "fp8_e4m3"),
    (modelopt(kv_cache_scheme=FP4), "nvfp4", "nvfp4"),
    (modelopt(kv_cache_scheme={**FP8, "dynamic": True}), "auto", "auto"),
    (modelopt(kv_cache_scheme={**FP8, "type": "int"}), "auto", "auto"),
    (modelopt(kv_cache_scheme={**FP8, "type": "int"}, kv_cache_quant_algo="FP8"), "auto", "auto"),
    (nested(kv_cache_quant_algo="FP8"), "fp8_e4m3", "fp8_e4m3"),
    (nested() | {"kv_cache_scheme": FP8}, "fp8_e4m3", "fp8_e4m3"),
    (packed(None), "auto", "auto"),
    (packed(SCHEME), "fp8", "auto"),
    (packed({**SCHEME, "strategy": "attn_head"}), "fp8", "auto"),
    (packed({**SCHEME, "dynamic": True}), "fp8", "auto"),
    (packed({**SCHEME, "strategy": "channel"}), None, "auto"),
    (packed({**SCHEME, "num_bits": 4}), None, "auto"),
    (packed({**SCHEME, "type": "int"}), None, "auto"),
    (packed({**SCHEME, "symmetric": False}), None, "auto"),
    (packed({}), None, "auto"),
)
