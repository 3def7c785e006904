"""Which block sizes the attention kernels take that vLLM picks for a model on a GPU.

Source: vLLM 0.32.0, platforms/cuda.py (`_get_backend_priorities`), v1/attention/backends (`supported_kv_cache_dtypes`,
`get_supported_kernel_block_sizes`); with FlashAttention, FlashMLA, FlashInfer installed, as in its image.
"""

from dataclasses import dataclass

from files.errors import HeadcountError
from kvcache.gpus.gpu import GPU
from kvcache.shape.architecture import Architecture
from kvcache.shape.layer import LatentAttention

DEFAULT_BLOCK_SIZE = 16  # vLLM CacheConfig.DEFAULT_BLOCK_SIZE
_AMD = ("cdna3", "cdna4", "rdna4")
BEFORE_AMPERE = ("volta", "turing")  # without bfloat16 (vLLM platforms/cuda.py, check_if_supports_dtype)
_FLASHINFER_HEAD_DIMS = (64, 128, 256, 512)
_FLASHINFER_MLA_NOPE_DIMS = (64, 128, 192)
_PER_TENSOR_FP8 = ("fp8", "fp8_e4m3")


@dataclass(frozen=True, kw_only=True)
class AttentionBackend:
    """The kernels of one vLLM backend. `multiples`: any multiple of a size will do, not only the sizes themselves."""

    name: str
    block_sizes: tuple[int, ...]
    multiples: bool = False

    @property
    def preferred_block_size(self) -> int:
        """vLLM's block size where none is given (`get_preferred_block_size`)."""
        takes_default = any(DEFAULT_BLOCK_SIZE % size == 0 for size in self.block_sizes)
        return DEFAULT_BLOCK_SIZE if takes_default else min(self.block_sizes)

    def windowed_block_size(self, block_size: int) -> int:
        """Tokens in a block of a layer with a window: the largest that fits (`_largest_kernel_block_within`)."""
        sizes = self.block_sizes
        if self.multiples:
            sizes = tuple(max(size, block_size // size * size) for size in sizes)
        return max((size for size in sizes if size <= block_size), default=min(sizes))


_TRITON = AttentionBackend(name="TRITON_ATTN", block_sizes=(16,), multiples=True)
_FLASH_ATTN = AttentionBackend(name="FLASH_ATTN", block_sizes=(16,), multiples=True)
_FLASH_ATTN_FP8_512 = AttentionBackend(name="FLASH_ATTN", block_sizes=(64,), multiples=True)
_TRITON_MLA = AttentionBackend(name="TRITON_MLA", block_sizes=(16,), multiples=True)
_FLASH_ATTN_MLA = AttentionBackend(name="FLASH_ATTN_MLA", block_sizes=(16,), multiples=True)
_FLASHMLA = AttentionBackend(name="FLASHMLA", block_sizes=(64,))
_FLASHINFER_MLA = AttentionBackend(name="FLASHINFER_MLA", block_sizes=(32, 64))
_CUTLASS_MLA = AttentionBackend(name="CUTLASS_MLA", block_sizes=(128,))
# Sparse latent attention: the indexer's kernels take 64 tokens, on AMD's GPUs any multiple of 16.
_FLASH_ATTN_MLA_SPARSE = AttentionBackend(name="FLASH_ATTN_MLA_SPARSE", block_sizes=(64,))
_FLASHMLA_SPARSE = AttentionBackend(name="FLASHMLA_SPARSE", block_sizes=(64,))
_FLASHINFER_MLA_SPARSE = AttentionBackend(name="FLASHINFER_MLA_SPARSE", block_sizes=(64,))
_FLASHINFER_MLA_SPARSE_SM120 = AttentionBackend(name="FLASHINFER_MLA_SPARSE_SM120", block_sizes=(64,))
_ROCM_AITER_MLA_SPARSE = AttentionBackend(name="ROCM_AITER_MLA_SPARSE", block_sizes=(16,), multiples=True)
_BLOCK_SPARSE = AttentionBackend(name="MINIMAX_M3_SPARSE", block_sizes=(128,))  # a page is what is chosen
_FLASHMLA_COMPRESSED = AttentionBackend(name="FLASHMLA_SPARSE_DSV4", block_sizes=(256,))
_FLASHINFER_COMPRESSED = AttentionBackend(name="FLASHINFER_MLA_SPARSE_DSV4", block_sizes=(256,))
PACKED = "_ds_mla"  # the end of the names of formats that pack a token's latent with its scales
_PLAIN = ("auto", "bfloat16", "float16")


def attention_backend(arch: Architecture, gpu: GPU | None = None, kv_cache_dtype: str = "auto") -> AttentionBackend:
    """What vLLM picks without `--attention-backend`; a Hopper GPU where none is given.

    Raises `ValueError` where vLLM has no kernels for that KV-cache format.
    """
    generation = "hopper" if gpu is None else _generation(gpu)
    if arch.is_compressed:
        return _compressed_backend(arch, generation, kv_cache_dtype)
    if arch.is_sparse:
        find = _sparse_backend if arch.is_mla else _block_sparse_backend
        return find(arch, generation, kv_cache_dtype)
    if arch.attention and arch.attention.latent:
        return _latent_backend(arch.name, arch.attention.latent, generation, kv_cache_dtype)
    if kv_cache_dtype.startswith("nvfp4"):
        _check_nvfp4(arch, generation)
        return _flashinfer(arch, generation)
    return _plain_backend(arch, generation, kv_cache_dtype)


def _plain_backend(arch: Architecture, generation: str, kv_cache_dtype: str) -> AttentionBackend:
    if kv_cache_dtype.endswith("_per_token_head") or generation in (*_AMD, *BEFORE_AMPERE):
        return _TRITON
    is_fp8 = kv_cache_dtype in _PER_TENSOR_FP8
    has_flash = kv_cache_dtype != "fp8_e5m2" and (not is_fp8 or generation in ("hopper", "blackwell"))
    if arch.head_dim in _FLASHINFER_HEAD_DIMS and (generation == "blackwell" or not has_flash):
        return _flashinfer(arch, generation)
    if is_fp8 and generation == "hopper" and _widest_head(arch) == 512:
        return _FLASH_ATTN_FP8_512
    return _FLASH_ATTN if has_flash else _TRITON


def _widest_head(arch: Architecture) -> int:
    return max((layer.attention.head_dim for layer in arch.layers if layer.attention), default=0)


def _generation(gpu: GPU) -> str:
    """The GPU's family; Blackwell without NVLink, of compute capability 12, is served by other kernels than 10."""
    return "blackwell-12" if gpu.family == "blackwell" and not gpu.is_data_center_blackwell else gpu.family


def _check_nvfp4(arch: Architecture, generation: str) -> None:
    on_blackwell = generation == "blackwell"
    if generation in (*_AMD, *BEFORE_AMPERE):
        raise HeadcountError(f"kv_cache_dtype 'nvfp4' has no kernels on {generation} GPUs; use 'fp8'")
    if arch.head_dim not in _FLASHINFER_HEAD_DIMS or (arch.head_dim == 64 and not on_blackwell):
        allowed = _FLASHINFER_HEAD_DIMS if on_blackwell else _FLASHINFER_HEAD_DIMS[1:]
        raise HeadcountError(
            f"kv_cache_dtype 'nvfp4' has no kernels for the head size {arch.head_dim} of {arch.name!r} here, only for "
            f"{', '.join(map(str, allowed))}; use 'fp8'"
        )
    if arch.attention_sinks and not on_blackwell:
        raise HeadcountError(
            f"kv_cache_dtype 'nvfp4' has no kernels for the attention sinks of {arch.name!r}; use 'fp8'"
        )


def _flashinfer(arch: Architecture, generation: str) -> AttentionBackend:
    # Pages of 128 tokens and more run on Blackwell's grouped-query kernel alone.
    is_grouped = arch.num_attention_heads > arch.num_key_value_heads
    large = (128, 256, 512, 1024) if generation == "blackwell" and is_grouped else ()
    return AttentionBackend(name="FLASHINFER", block_sizes=(16, 32, 64, *large))


def sparse_kv_cache_dtype(arch: Architecture, gpu: GPU | None, kv_cache_dtype: str) -> str:
    """The format that the kernels of sparse attention keep latents in where that one is asked for.

    Source: vLLM 0.32 and 0.33, `_canonicalize_sparse_mla_kv_cache_dtype` (mla_attention.py), models/config.py
    (`DeepseekV32ForCausalLM`, `GlmMoeDsaForCausalLM`).
    """
    generation = "hopper" if gpu is None else _generation(gpu)
    if arch.is_compressed:  # nothing else, on the GPUs that have kernels (models/deepseek_v4/attention.py)
        return "fp8_ds_mla" if kv_cache_dtype in ("auto", *_PER_TENSOR_FP8) else kv_cache_dtype
    asked = "auto" if kv_cache_dtype == "bfloat16" else kv_cache_dtype
    if asked == "auto" and generation == "blackwell" and arch.model_type == "glm_moe_dsa":
        return "fp8_e4m3"
    packs = _PER_TENSOR_FP8 if generation == "hopper" else ("auto", *_PER_TENSOR_FP8)
    return "fp8_ds_mla" if generation in ("hopper", "blackwell-12") and asked in packs else asked


def _sparse_backend(arch: Architecture, generation: str, kv_cache_dtype: str) -> AttentionBackend:
    """In the order of vLLM 0.33's `_get_backend_priorities`; of GPUs before Hopper, none has such kernels."""
    is_plain, is_packed = kv_cache_dtype in _PLAIN, kv_cache_dtype.endswith(PACKED)
    is_fp8 = kv_cache_dtype in _PER_TENSOR_FP8
    found = None
    if generation == "hopper":
        found = _FLASH_ATTN_MLA_SPARSE if is_plain else _FLASHMLA_SPARSE if kv_cache_dtype == "fp8_ds_mla" else None
    elif generation == "blackwell":
        found = _FLASHINFER_MLA_SPARSE if is_fp8 else _FLASHMLA_SPARSE if is_plain or is_packed else None
    elif generation == "blackwell-12":
        found = _FLASHINFER_MLA_SPARSE_SM120 if kv_cache_dtype == "fp8_ds_mla" else None
    elif generation in _AMD:
        found = _ROCM_AITER_MLA_SPARSE if is_plain or is_fp8 else None
    if found is None:
        raise HeadcountError(
            f"vLLM has no kernels on {generation} GPUs for sparse attention, which {arch.name!r} has, with "
            f"kv_cache_dtype {kv_cache_dtype!r}; take 'auto' or 'fp8' on a Hopper or Blackwell GPU"
        )
    return found


def _compressed_backend(arch: Architecture, generation: str, kv_cache_dtype: str) -> AttentionBackend:
    """vLLM 0.33 models/deepseek_v4/nvidia/model.py (`_select_dsv4_attn_cls`); AMD's own layers were not read."""
    if generation not in ("hopper", "blackwell", "blackwell-12") or kv_cache_dtype != "fp8_ds_mla":
        raise HeadcountError(
            f"vLLM has no kernels that are modelled on {generation} GPUs for the compressed attention of {arch.name!r} "
            f"with kv_cache_dtype {kv_cache_dtype!r}; take 'fp8' on a Hopper or Blackwell GPU"
        )
    return _FLASHINFER_COMPRESSED if generation == "blackwell-12" else _FLASHMLA_COMPRESSED


def _block_sparse_backend(arch: Architecture, generation: str, kv_cache_dtype: str) -> AttentionBackend:
    """vLLM 0.33 models/minimax_m3/common/sparse_attention.py (`select_main_backend_and_impl_cls`)."""
    is_known = kv_cache_dtype in (*_PLAIN, *_PER_TENSOR_FP8, "fp8_e5m2")
    if not (is_known or (kv_cache_dtype == "nvfp4" and generation == "blackwell")):
        raise HeadcountError(
            f"kv_cache_dtype {kv_cache_dtype!r} has no kernels here for the block-sparse attention of {arch.name!r}; "
            "use 'auto' or 'fp8'"
        )
    return _BLOCK_SPARSE


def _latent_backend(model: str, latent: LatentAttention, generation: str, kv_cache_dtype: str) -> AttentionBackend:
    if kv_cache_dtype.endswith(PACKED):
        raise HeadcountError(
            f"kv_cache_dtype {kv_cache_dtype!r} is for sparse attention (DeepSeek-V3.2), which {model!r} lacks; "
            "use 'fp8'"
        )
    if generation == "hopper":
        return _FLASHMLA if kv_cache_dtype in _PER_TENSOR_FP8 else _FLASH_ATTN_MLA
    if generation == "blackwell":
        return _FLASHINFER_MLA if latent.qk_nope_head_dim in _FLASHINFER_MLA_NOPE_DIMS else _CUTLASS_MLA
    return _TRITON_MLA
