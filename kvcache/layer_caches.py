"""What each layer keeps of a request, in pages of one size."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvcache.architecture import Architecture
from kvcache.attention_backend import DEFAULT_BLOCK_SIZE, AttentionBackend
from kvcache.kv_content import PACKED_LATENTS, kv_bytes_per_token_per_layer
from kvcache.state_content import state_bytes, states_per_request

# FlashInfer's latent kernels want 128 tokens per block of a hybrid model (vLLM platforms/interface.py).
_HYBRID_MLA_ALIGNMENT = 128


@dataclass(frozen=True, kw_only=True)
class LayerCache:
    """One layer's keys with values, or its state: vLLM's `KVCacheSpec`.

    A state's `block_size` is None where one block holds it for the whole request, whatever its length.
    """

    layer: int
    window: int | None = None
    chunked: bool = False
    is_state: bool = False
    states_per_request: int = 0
    block_size: int | None
    page_size_bytes: int
    is_latent: bool = False

    @property
    def kind(self) -> tuple[object, ...]:
        """What layers must have in common to share a block table."""
        return self.window, self.chunked, self.is_state, self.states_per_request, self.block_size


def mamba_cache_mode(arch: Architecture, *, enable_prefix_caching: bool) -> str | None:
    """How vLLM 0.32 caches states: `align` or `none`; None where the model keeps none.

    With prefix caching, which is on by default for hybrid models too and off where no layer has attention, states are
    kept at block ends: `align`. Source: vLLM 0.32.0, model_executor/models/config.py (`MambaModelConfig`),
    config/model.py (`is_prefix_caching_supported`).
    """
    if not any(arch.state_layers):
        return None
    return "align" if enable_prefix_caching and attention_layers(arch) else "none"


def attention_layers(arch: Architecture) -> tuple[int, ...]:
    """Layers with keys and values of their own."""
    shared = arch.kv_shared_with or (None,) * arch.num_hidden_layers
    attends = arch.attention_layers or (True,) * arch.num_hidden_layers
    return tuple(
        layer
        for layer, (owner, has_attention) in enumerate(zip(shared, attends, strict=True))
        if has_attention and owner is None
    )


def kv_block_size(
    arch: Architecture, backend: AttentionBackend, block_size: int | None, *, tp: int, kv_cache_dtype: str, spec: int
) -> int:
    """Tokens in a block: as given, or as the kernels prefer; larger where a state must fit into a block.

    vLLM 0.32.0, platforms/interface.py (`update_block_size_for_backend`, `_align_hybrid_block_size`).
    """
    if not attention_layers(arch):
        return DEFAULT_BLOCK_SIZE if block_size is None else block_size
    size = backend.preferred_block_size if block_size is None else block_size
    if arch.state_space is None or not any(arch.state_layers):
        return size
    unit = max(min(backend.block_sizes), size)
    if arch.is_mla:
        unit = max(unit, _HYBRID_MLA_ALIGNMENT)
    per_token = _bytes_to_align_to(arch, tp, kv_cache_dtype)
    needed = unit * -(-state_bytes(arch.state_space, arch.dtype, tp, spec) // (unit * per_token))
    kernel = min(backend.block_sizes)
    return max(size, kernel * -(-needed // kernel))


def layer_caches(
    arch: Architecture,
    backend: AttentionBackend,
    block_size: int,
    *,
    tp: int = 1,
    kv_cache_dtype: str = "auto",
    cache_mode: str | None = None,
    num_speculative_tokens: int = 0,
) -> tuple[LayerCache, ...]:
    """Every layer's cache, in the order of layers; a layer with attention beside a state has two.

    `block_size` is that of `kv_block_size`.
    """
    attends = set(attention_layers(arch))
    state = _state_cache(arch, block_size, tp, kv_cache_dtype, cache_mode, num_speculative_tokens)
    found = []
    for layer in range(arch.num_hidden_layers):
        if layer in attends:
            found.append(_attention_cache(arch, backend, layer, block_size, tp, kv_cache_dtype))
        if state is not None and arch.state_layers[layer]:
            found.append(replace(state, layer=layer))
    if not found:
        raise ValueError(f"model {arch.name!r}: no layer keeps anything of a request; correct its config.json")
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
    if cache.is_latent:
        raise ValueError(
            f"layer {cache.layer}: a latent's block of {cache.page_size_bytes} bytes does not divide the largest "
            f"layer's {page_size_bytes}, which vLLM cannot serve"
        )
    return replace(cache, page_size_bytes=page_size_bytes)


def _attention_cache(
    arch: Architecture, backend: AttentionBackend, layer: int, block_size: int, tp: int, kv_cache_dtype: str
) -> LayerCache:
    window = arch.layer_windows[layer]
    if window is not None and not arch.chunked_attention:
        block_size = backend.windowed_block_size(block_size)
    per_token = kv_bytes_per_token_per_layer(arch, tp, kv_cache_dtype, attends_to_all=window is None)
    return LayerCache(
        layer=layer,
        window=window,
        chunked=window is not None and arch.chunked_attention,
        block_size=block_size,
        page_size_bytes=block_size * per_token,
        is_latent=arch.is_mla,
    )


def _bytes_to_align_to(arch: Architecture, tp: int, kv_cache_dtype: str) -> int:
    """A token of attention, as vLLM reckons it beside a state: a packed latent counts as its values of one byte each."""
    bare = "fp8" if kv_cache_dtype in PACKED_LATENTS else kv_cache_dtype
    return kv_bytes_per_token_per_layer(arch, tp, bare)


def _state_cache(
    arch: Architecture, block_size: int, tp: int, kv_cache_dtype: str, cache_mode: str | None, spec: int
) -> LayerCache | None:
    """One state layer's cache, padded to a block of attention."""
    if cache_mode is None or arch.state_space is None:
        return None
    size = state_bytes(arch.state_space, arch.dtype, tp, spec)
    if attention_layers(arch):
        size = max(size, block_size * _bytes_to_align_to(arch, tp, kv_cache_dtype))
    return LayerCache(
        layer=-1,
        is_state=True,
        states_per_request=states_per_request(arch.state_space, cache_mode, spec),
        block_size=block_size if cache_mode == "align" else None,
        page_size_bytes=size,
    )
