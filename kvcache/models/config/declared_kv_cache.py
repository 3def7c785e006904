"""What a checkpoint's config asks of the KV cache."""

from collections.abc import Mapping
from typing import Any

from kvcache.models.config.checkpoint_format import quantization_config
from kvcache.models.config.checks import printable_name
from kvcache.shape.architecture import DeclaredKVCache

_MODELOPT = {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}  # vLLM 0.32 utils/torch_utils.py
_STRATEGIES = ("tensor", "attn_head")


def declared_kv_cache(config: Mapping[str, Any], *, is_latent: bool) -> DeclaredKVCache | None:
    """The config's KV-cache format, None where it declares none.

    Source: vLLM 0.32, utils/torch_utils.py (`get_kv_cache_quant_algo_string`), CompressedTensorsKVCacheMethod. Other
    methods (fp8, quark, …) declare none that vLLM heeds. Raises `ValueError` on a scheme that vLLM refuses.
    """
    quantization = quantization_config(config)
    if quantization is None:
        return None
    method = str(quantization.get("quant_method", "")).lower()
    if method == "compressed-tensors":
        return _compressed_tensors(quantization.get("kv_cache_scheme"), is_latent=is_latent)
    # vLLM looks for ModelOpt's word in the outer config alone.
    if method.startswith("modelopt") and config.get("quantization_config") is not None:
        return _modelopt(quantization)
    return None


def _modelopt(quantization: Mapping[str, Any]) -> DeclaredKVCache | None:
    inner = quantization.get("quantization")
    levels = (inner, quantization) if isinstance(inner, Mapping) else (quantization,)
    for key in ("kv_cache_scheme", "kv_cache_quant_algo"):
        for level in levels:
            value = level.get(key)
            if value:
                return DeclaredKVCache(method="modelopt", dtype=_modelopt_dtype(value), text=_text(key, value))
    return None


def _modelopt_dtype(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return _MODELOPT.get(str(value).lower())
    bits = value.get("num_bits") if value.get("type") == "float" else None
    if bits == 8:
        return "fp8_e4m3" if value.get("dynamic") is False else None
    return "nvfp4" if bits == 4 else None


def _compressed_tensors(scheme: Any, *, is_latent: bool) -> DeclaredKVCache | None:
    if scheme is None:
        return None
    known = isinstance(scheme, Mapping) and scheme.get("type") == "float" and scheme.get("num_bits") == 8
    is_loaded = known and scheme.get("strategy") in _STRATEGIES and scheme.get("symmetric")
    if not is_loaded and not is_latent:  # latent attention looks for no scheme
        raise ValueError(
            f"quantization_config: {_text('kv_cache_scheme', scheme)}: vLLM loads none but symmetric 8-bit floats with "
            f"strategy {' or '.join(_STRATEGIES)}; correct it, or take another checkpoint"
        )
    return DeclaredKVCache(method="compressed-tensors", dtype="fp8", text=_text("kv_cache_scheme", scheme))


def _text(key: str, value: Any) -> str:
    if not isinstance(value, Mapping):
        return f"{key} {_word(value)}"
    named = ", ".join(f"{name} {_word(value[name])}" for name in ("type", "num_bits", "strategy") if name in value)
    return f"{key} with {named or 'no type'}"


def _word(value: Any) -> str:
    return printable_name(str(value)[:40])
