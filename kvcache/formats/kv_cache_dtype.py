"""Which format `--kv-cache-dtype auto` stands for.

Source: vLLM 0.13 to 0.22, 0.25, 0.27, 0.32: utils/torch_utils.py (`resolve_kv_cache_dtype_string`), and the attention
layers of model_executor (`Attention.__init__`; `MLAAttention.__init__` looks for no scheme).
"""

from dataclasses import dataclass

from files.errors import HeadcountError
from kvcache.formats.quantization import QuantizationScheme, resolve_quantization
from kvcache.gpus.gpu import GPU
from kvcache.layout.attention_backend import sparse_kv_cache_dtype
from kvcache.releases import (
    COMPRESSED_TENSORS_KV_CACHE,
    EXPLICIT_KV_CACHE_WINS,
    KV_CACHE_IN_MODEL_S_OWN_FLOAT,
    MODELOPT_KV_CACHE,
    MODELOPT_NVFP4_KV_CACHE,
)
from kvcache.shape.architecture import Architecture

Assumption = tuple[str, str, str]

PER_TENSOR_FP8 = ("fp8", "fp8_e4m3")
_FLOATS = ("float16", "bfloat16")


def one_spelling(kv_cache_dtype: str) -> str:
    """The format's name where the same bits have two: `fp8_e4m3` is `fp8`."""
    return "fp8" if kv_cache_dtype == "fp8_e4m3" else kv_cache_dtype


@dataclass(frozen=True, kw_only=True)
class KVCacheDtype:
    """A KV-cache format as vLLM runs it; `name` "auto" is the model's own 16 or 32 bits."""

    name: str
    assumptions: tuple[Assumption, ...] = ()


def kv_cache_dtype_of(
    architecture: Architecture,
    kv_cache_dtype: str,
    *,
    quantization: str | None,
    vllm_version: str,
    gpu: GPU | None = None,
) -> str:
    """The format's name, where the weight format is known by name alone; see `resolve_kv_cache_dtype`."""
    scheme = resolve_quantization(
        quantization, architecture.native_quantization, is_moe=architecture.is_moe, dtype=architecture.dtype
    )
    return resolve_kv_cache_dtype(kv_cache_dtype, architecture, scheme, vllm_version, gpu).name


def resolve_kv_cache_dtype(
    kv_cache_dtype: str,
    architecture: Architecture,
    scheme: QuantizationScheme,
    vllm_version: str,
    gpu: GPU | None = None,
) -> KVCacheDtype:
    """What vLLM of that release makes of `--kv-cache-dtype` for a checkpoint in that weight format.

    Everything that depends on the format takes it from here, so that memory and step times agree. Resolving what was
    resolved changes nothing. The `gpu`, a Hopper one where none is given, counts for sparse attention alone. Raises
    HeadcountError where that release does not start with it.
    """
    _check_float(kv_cache_dtype, architecture, vllm_version)
    found = _of_format(kv_cache_dtype, architecture, scheme, vllm_version)
    if not (architecture.is_compressed or (architecture.is_sparse and architecture.is_mla)):
        return found
    name = sparse_kv_cache_dtype(architecture, gpu, found.name)
    if name == found.name:
        return found
    row = ("KV cache", name, f"kernels of sparse attention on this GPU keep {found.name} so")
    return KVCacheDtype(name=name, assumptions=(*found.assumptions, *(() if name == "auto" else (row,))))


def _check_float(kv_cache_dtype: str, architecture: Architecture, vllm_version: str) -> None:
    is_other = kv_cache_dtype in _FLOATS and kv_cache_dtype != architecture.dtype
    if is_other and KV_CACHE_IN_MODEL_S_OWN_FLOAT.holds_in(vllm_version):
        raise HeadcountError(
            f"vLLM {KV_CACHE_IN_MODEL_S_OWN_FLOAT.first} refuses kv_cache_dtype {kv_cache_dtype!r} for a model "
            f"in {architecture.dtype}; give 'auto'"
        )


def _of_format(
    kv_cache_dtype: str, architecture: Architecture, scheme: QuantizationScheme, vllm_version: str
) -> KVCacheDtype:
    if _is_own(architecture, scheme):
        return _of_checkpoint(kv_cache_dtype, architecture, vllm_version)
    is_heeded = MODELOPT_KV_CACHE.holds_in(vllm_version)
    if kv_cache_dtype != "auto" or scheme.kv_cache_dtype is None or not is_heeded:
        return KVCacheDtype(name=kv_cache_dtype)
    why = (
        f"as NVIDIA's {scheme.name} checkpoints declare; for a checkpoint that declares none give --kv-cache-dtype "
        f"{architecture.dtype}"
    )
    return KVCacheDtype(name=scheme.kv_cache_dtype, assumptions=(("KV cache", scheme.kv_cache_dtype, why),))


def _is_own(architecture: Architecture, scheme: QuantizationScheme) -> bool:
    """Whether the weight format is that of the checkpoint whose config was read."""
    native = architecture.native_quantization
    return scheme.name == native or (native is None and scheme.name in ("none", "fp32"))


def _of_checkpoint(asked: str, arch: Architecture, vllm_version: str) -> KVCacheDtype:
    declared = arch.declared_kv_cache
    if declared is None or (asked != "auto" and declared.method == "modelopt"):
        return KVCacheDtype(name=asked)
    ignored = _why_ignored(arch, vllm_version)
    if asked != "auto":
        if ignored is not None or EXPLICIT_KV_CACHE_WINS.holds_in(vllm_version) or asked in PER_TENSOR_FP8:
            return KVCacheDtype(name=asked)
        before = f"vLLM before {EXPLICIT_KV_CACHE_WINS.first}"
        why = f"declared by the checkpoint ({declared.text}); {before} sets it over --kv-cache-dtype {asked}"
        return KVCacheDtype(name="fp8", assumptions=(("KV cache", "fp8", why),))
    if declared.dtype is None or ignored is not None:
        why = f"the checkpoint declares {declared.text}, {ignored}"
        return KVCacheDtype(name="auto", assumptions=(("KV cache", arch.dtype, why),))
    why = f"declared by the checkpoint ({declared.text})"
    return KVCacheDtype(name=declared.dtype, assumptions=(("KV cache", declared.dtype, why),))


def _why_ignored(arch: Architecture, vllm_version: str) -> str | None:
    """Why this release does not heed what the checkpoint declares, None where it does."""
    declared = arch.declared_kv_cache
    assert declared is not None, "asked of a checkpoint that declares no KV cache"
    if declared.dtype is None:
        return "which vLLM does not know: it warns and keeps the model's own"
    if declared.method == "compressed-tensors" and arch.is_mla:
        return "which vLLM does not look for in latent attention; --kv-cache-dtype fp8 sets it"
    rule = MODELOPT_KV_CACHE if declared.method == "modelopt" else COMPRESSED_TENSORS_KV_CACHE
    rule = MODELOPT_NVFP4_KV_CACHE if declared.dtype == "nvfp4" else rule
    if not rule.holds_in(vllm_version):
        return f"which vLLM uses since {rule.first}; --kv-cache-dtype {declared.dtype} sets it"
    return None
