"""How many bytes one token leaves in one attention layer, by `--kv-cache-dtype`.

Source: vLLM 0.32.0, config/cache.py (`CacheDType`), v1/kv_cache_interface.py, `customize_spec` of
v1/attention/backends/triton_attn.py, flashinfer.py.
"""

from files.errors import HeadcountError
from files.names import shortened
from kvcache.parallelism import Parallelism
from kvcache.shape.architecture import Architecture
from kvcache.shape.layer import Attention

_SIXTEEN_BITS = ("bfloat16", "float16")
_FP8 = ("fp8", "fp8_e4m3", "fp8_e5m2")
_PER_TOKEN_HEAD = {"int4_per_token_head": 2, "int8_per_token_head": 1, "fp8_per_token_head": 1}  # elements in a byte
_NVFP4 = ("nvfp4", "nvfp4_4over6")
# Packed latents of sparse attention: 512 FP8 values, 4 fp32 scales, 64 bf16 rotary values; the same in FP4
# (model_executor/layers/attention/mla_attention.py).
PACKED_LATENTS = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
KV_CACHE_DTYPES = ("auto", *_SIXTEEN_BITS, *_FP8, *_PER_TOKEN_HEAD, *_NVFP4, *PACKED_LATENTS)
# vLLM's other choices, each with why it is refused here.
NOT_MODELLED = {
    "fp8_inc": "Intel Gaudi alone has it",
    "ultraquant_4bit": "AMD GPUs alone have it",
    **dict.fromkeys(
        ("turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"),
        "the first and last layers keep 16 bits under it, which gives blocks of two sizes",
    ),
}
_SCALE_BYTES = 4  # fp32, one for the keys and one for the values of a head


def cache_bytes_per_token(
    arch: Architecture, attention: Attention, tp: int = 1, kv_cache_dtype: str = "auto"
) -> tuple[int, ...]:
    """Bytes that one token leaves in each cache of a layer on one rank: the indexer's keys, then keys with values."""
    kept = kv_bytes_per_token_per_layer(arch, tp, kv_cache_dtype, attention)
    return (kept,) if attention.indexer is None else (attention.indexer.cached_bytes, kept)


def kv_bytes_per_token_per_layer(
    arch: Architecture, tp: int = 1, kv_cache_dtype: str = "auto", attention: Attention | None = None
) -> int:
    """Bytes that one token's keys with values, or its latent, take in one layer on one rank.

    The latent of MLA is whole on every rank; KV heads are split, then replicated. `attention`: the layer's; None: the
    one that stands for the model's. Raises `ValueError` on a dtype that is unknown, or not for that kind of attention.
    """
    _check_dtype(arch, kv_cache_dtype)
    attention = attention or arch.attention
    if attention is None:
        return 0
    if attention.latent is not None:
        packed = PACKED_LATENTS.get(kv_cache_dtype)
        return packed or attention.latent.cached_width * _element_bytes(arch, kv_cache_dtype)
    heads = Parallelism(tensor_parallel_size=tp).kv_heads_per_rank(attention.num_kv_heads)
    widths = (attention.head_dim, attention.value_dim)
    return heads * sum(_vector_bytes(arch, width, kv_cache_dtype) for width in widths)


def _vector_bytes(arch: Architecture, width: int, kv_cache_dtype: str) -> int:
    """A token's keys or its values in one head."""
    if kv_cache_dtype in _PER_TOKEN_HEAD:
        return width // _PER_TOKEN_HEAD[kv_cache_dtype] + _SCALE_BYTES
    if kv_cache_dtype in _NVFP4:
        return width // 2 + width // 16  # one FP8 scale for 16 values
    return width * _element_bytes(arch, kv_cache_dtype)


def _element_bytes(arch: Architecture, kv_cache_dtype: str) -> int:
    if kv_cache_dtype == "auto":
        return 4 if arch.dtype == "float32" else 2
    return 2 if kv_cache_dtype in _SIXTEEN_BITS else 1


def _check_dtype(arch: Architecture, kv_cache_dtype: str) -> None:
    if kv_cache_dtype in NOT_MODELLED:
        raise HeadcountError(f"kv_cache_dtype {kv_cache_dtype!r} is not modelled: {NOT_MODELLED[kv_cache_dtype]}")
    if kv_cache_dtype not in KV_CACHE_DTYPES:
        raise HeadcountError(
            f"no kv_cache_dtype {shortened(repr(kv_cache_dtype))}; allowed: {', '.join(KV_CACHE_DTYPES)}"
        )
    if kv_cache_dtype in PACKED_LATENTS and not (arch.is_mla or arch.is_compressed):
        raise HeadcountError(
            f"kv_cache_dtype {kv_cache_dtype!r} needs latent attention, which {arch.name!r} lacks; use 'fp8'"
        )
    if arch.is_mla and kv_cache_dtype in (*_PER_TOKEN_HEAD, *_NVFP4, "fp8_e5m2"):
        raise HeadcountError(
            f"kv_cache_dtype {kv_cache_dtype!r} is not for latent attention, which {arch.name!r} has; use 'fp8'"
        )
