"""What each layer keeps of a request, in pages of one size."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import lcm

from files.errors import HeadcountError
from kvcache.gpus.gpu import GPU
from kvcache.layout.attention_backend import DEFAULT_BLOCK_SIZE, AttentionBackend
from kvcache.layout.kv_content import cache_bytes_per_token, kv_bytes_per_token_per_layer
from kvcache.layout.state_content import checkpoint_alignment, state_bytes, states_per_request
from kvcache.releases import DEFAULT_RELEASE
from kvcache.shape.architecture import Architecture
from kvcache.shape.layer import Attention

ALIGN = "align"
# FlashInfer's latent kernels want 128 tokens per block of a hybrid model (vLLM platforms/interface.py).
_HYBRID_MLA_ALIGNMENT = 128


@dataclass(frozen=True, kw_only=True)
class LayerCache:
    """One cache of a layer, its keys with values, its indexer's keys, or its state: vLLM's `KVCacheSpec`.

    A state's `block_size` is None where one block holds it for the whole request, whatever its length.
    """

    layer: int
    window: int | None = None
    chunked: bool = False
    is_state: bool = False
    states_per_request: int = 1
    block_size: int | None
    page_size_bytes: int

    @property
    def kind(self) -> tuple[object, ...]:
        """What caches must have in common to share a block table."""
        return self.window, self.chunked, self.is_state, self.states_per_request, self.block_size


def mamba_cache_mode(arch: Architecture, *, enable_prefix_caching: bool) -> str | None:
    """How vLLM 0.32 caches states: `align` or `none`; None where the model keeps none.

    With prefix caching, which is on by default for hybrid models too and off where no layer has attention, states are
    kept at block ends: `align`. Source: vLLM 0.32.0, model_executor/models/config.py (`MambaModelConfig`),
    config/model.py (`is_prefix_caching_supported`).
    """
    if arch.state_space is None:
        return None
    return ALIGN if enable_prefix_caching and arch.attention else "none"


@dataclass(frozen=True, kw_only=True)
class CacheSettings:
    """What decides the caches of a model's layers on one rank."""

    arch: Architecture
    backend: AttentionBackend
    tensor_parallel_size: int = 1
    kv_cache_dtype: str = "auto"
    cache_mode: str | None = None  # of `mamba_cache_mode`
    num_speculative_tokens: int = 0
    gpu: GPU | None = None
    vllm_version: str = DEFAULT_RELEASE

    @property
    def checkpoint_alignment(self) -> int | None:
        """Tokens to whose multiples prefill kernels can write states on their way; None where they cannot."""
        space = self.arch.state_space
        return None if space is None else checkpoint_alignment(space, self.gpu, self.vllm_version)

    @property
    def state_bytes(self) -> int:
        """One layer's state, before it is padded; 0 where no layer keeps one."""
        space = self.arch.state_space
        if self.cache_mode is None or space is None:
            return 0
        return state_bytes(space, self.arch.dtype, self.tensor_parallel_size, self.num_speculative_tokens)

    @property
    def aligned_bytes_per_token(self) -> int:
        """A token of attention, to which a state is aligned."""
        return kv_bytes_per_token_per_layer(self.arch, self.tensor_parallel_size, self.kv_cache_dtype)


def kv_block_size(settings: CacheSettings, block_size: int | None) -> int:
    """Tokens in a block: as given, or as the kernels prefer; larger where a state must fit into a block.

    vLLM 0.32.0, platforms/interface.py (`update_block_size_for_backend`, `_align_hybrid_block_size`).
    """
    if settings.arch.attention is None:
        return DEFAULT_BLOCK_SIZE if block_size is None else block_size
    size = settings.backend.preferred_block_size if block_size is None else block_size
    if not settings.state_bytes:
        return size
    kernel = min(settings.backend.block_sizes)
    unit = max(kernel, size, _HYBRID_MLA_ALIGNMENT if settings.arch.is_mla else 0)
    if settings.cache_mode == ALIGN:  # since 0.33; before, no kernel asked for more
        unit = lcm(unit, settings.checkpoint_alignment or 1)
    needed = unit * -(-settings.state_bytes // (unit * settings.aligned_bytes_per_token))
    return max(size, kernel * -(-needed // kernel))


def layer_caches(settings: CacheSettings, block_size: int) -> tuple[LayerCache, ...]:
    """Every layer's caches, in the order of layers; one with attention beside a state or an indexer has two.

    `block_size` is that of `kv_block_size`.
    """
    state = _state_cache(settings, block_size)
    found: list[LayerCache] = []
    for index, layer in enumerate(settings.arch.layers):
        if layer.attention is not None and layer.caches_kv:
            found += _attention_caches(settings, index, layer.attention, block_size)
        if layer.state is not None and state is not None:
            found.append(replace(state, layer=index))
    if not found:
        raise HeadcountError(
            f"model {settings.arch.name!r}: no layer keeps anything of a request; correct its config.json"
        )
    return tuple(found)


def unify_page_size(caches: Sequence[LayerCache]) -> tuple[LayerCache, ...]:
    """The caches with pages as large as the largest: by more tokens in a block where that comes out even, else padded.

    vLLM 0.32.0, v1/core/kv_cache_utils.py (`unify_kv_cache_spec_page_size`).
    """
    largest = max(cache.page_size_bytes for cache in caches)
    return tuple(_enlarged(cache, largest) for cache in caches)


def _enlarged(cache: LayerCache, page_size_bytes: int) -> LayerCache:
    if not cache.is_state and cache.block_size is not None and page_size_bytes % cache.page_size_bytes == 0:
        block_size = cache.block_size * (page_size_bytes // cache.page_size_bytes)
        return replace(cache, block_size=block_size, page_size_bytes=page_size_bytes)
    return replace(cache, page_size_bytes=page_size_bytes)


def _attention_caches(
    settings: CacheSettings, layer: int, attention: Attention, block_size: int
) -> Iterator[LayerCache]:
    if attention.window is not None and not attention.chunked and attention.latent is None:
        block_size = settings.backend.windowed_block_size(block_size)
    tp = settings.tensor_parallel_size
    for per_token in cache_bytes_per_token(settings.arch, attention, tp, settings.kv_cache_dtype):
        yield LayerCache(
            layer=layer,
            window=attention.window,
            chunked=attention.chunked,
            block_size=block_size,
            page_size_bytes=block_size * per_token,
        )


def _state_cache(settings: CacheSettings, block_size: int) -> LayerCache | None:
    """One state layer's cache, padded to a block of attention; its layer is yet to be filled in."""
    space, mode = settings.arch.state_space, settings.cache_mode
    if mode is None or space is None:
        return None
    padded = block_size * settings.aligned_bytes_per_token if settings.arch.attention else 0
    return LayerCache(
        layer=-1,
        is_state=True,
        states_per_request=states_per_request(
            mode, settings.num_speculative_tokens, writes_checkpoints=settings.checkpoint_alignment is not None
        ),
        block_size=block_size if mode == ALIGN else None,
        page_size_bytes=max(settings.state_bytes, padded),
    )
