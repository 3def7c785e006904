"""How many bytes a token's keys with values take, and in which blocks."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from files.errors import HeadcountError
from kvcache.gpus.gpu import GPU
from kvcache.layout.attention_backend import attention_backend
from kvcache.layout.compressed_caches import compressed_caches, entry_bytes_per_token, packed_groups
from kvcache.layout.kv_content import cache_bytes_per_token
from kvcache.layout.layer_caches import (
    CacheSettings,
    LayerCache,
    kv_block_size,
    layer_caches,
    mamba_cache_mode,
    unify_page_size,
)
from kvcache.parallelism import Parallelism
from kvcache.releases import DEFAULT_RELEASE
from kvcache.shape.architecture import Architecture


@dataclass(frozen=True)
class KVGroup:
    """Caches that share one block table; `window` is None where all tokens stay attended to.

    `layers` has the layer of each cache, `page_bytes` what a block takes in it; a layer may have several. `is_state`:
    states (Mamba, linear attention) in place of keys and values; a request holds up to `states_per_request` blocks of
    them. `block_size` None stands for the layout's, of a state under cache mode `none` for the whole request.
    """

    window: int | None
    layers: tuple[int, ...] = ()
    page_bytes: tuple[int, ...] = ()
    chunked: bool = False
    is_state: bool = False
    block_size: int | None = None
    states_per_request: int = 1

    @property
    def keeps_checkpoints(self) -> bool:
        """Whether a prompt's last chunk leaves the state at a block's end on its way, without drafts."""
        return self.is_state and self.states_per_request > 2

    def skipped_tokens(self, num_computed_tokens: int) -> int:
        """How many of a request's first tokens no later token attends to (vLLM `get_num_skipped_tokens`)."""
        if self.window is None:
            return 0
        if self.chunked:
            return num_computed_tokens // self.window * self.window
        return max(0, num_computed_tokens - self.window + 1)

    def blocks_per_request(self, max_model_len: int, max_in_flight_tokens: int, block_size: int) -> int:
        """The most blocks that one request of `max_model_len` tokens holds in this group.

        `block_size` is the layout's. vLLM `max_memory_usage_bytes` of FullAttentionSpec, SlidingWindowSpec,
        ChunkedLocalAttentionSpec, MambaSpec (0.32.0).
        """
        if self.is_state:
            return self.states_per_request
        block_size = self.block_size or block_size
        if self.window is None:
            return -(-max_model_len // block_size)
        if self.chunked:
            return -(-min(self.window + max_in_flight_tokens, max_model_len) // block_size)
        # One more, since a window need not start at a block's first token.
        return -(-min(self.window - 1 + max_in_flight_tokens, max_model_len) // block_size) + 1


@dataclass(frozen=True, kw_only=True)
class KVLayout:
    """How one rank's KV pool is cut up.

    A block id means a page in each cache of the group that holds it; all groups draw from one pool.
    `block_size` is vLLM's: groups whose tokens are smaller or larger have their own. `mamba_cache_mode` is None where
    no layer keeps a state.
    """

    groups: tuple[KVGroup, ...]
    block_size: int
    bytes_per_token: int  # on one rank while every layer still attends to it, over all stages; states are apart
    compresses: bool = False  # then what stays of it in compressed entries, windows apart
    mamba_cache_mode: str | None = None
    stage_starts: tuple[int, ...] = (0,)  # first layer of each pipeline stage
    draft_block_bytes: int = 0  # what a drafter's layers store under each block id

    @property
    def state_bytes_per_request(self) -> int:
        """What one request's states take at most on one rank, over all stages, padding included."""
        return sum(group.states_per_request * sum(group.page_bytes) for group in self.groups if group.is_state)

    @property
    def page_size_bytes(self) -> int:
        """One block in the cache where it takes most."""
        return max(page for group in self.groups for page in group.page_bytes)

    def block_bytes(self, stage: int = 0) -> int:
        """One block over all layers that share it on a rank of a pipeline stage; 0 where the stage has no layer."""
        starts = (*self.stage_starts, None)
        first, end = starts[stage], starts[stage + 1]
        held = [
            sum(
                page
                for layer, page in zip(group.layers, group.page_bytes, strict=True)
                if layer >= (first or 0) and (end is None or layer < end)
            )
            for group in self.groups
        ]
        return max(held) + self.draft_block_bytes

    def num_blocks(self, available_bytes: Sequence[int]) -> int:
        """Blocks of the pool, from what each pipeline stage has left: the poorest stage decides."""
        stages = range(len(self.stage_starts))
        return min(max(0, available_bytes[stage]) // max(1, self.block_bytes(stage)) for stage in stages)

    def blocks_per_request(self, max_model_len: int, max_in_flight_tokens: int) -> int:
        """The most blocks that one request of `max_model_len` tokens holds over all groups."""
        return sum(
            group.blocks_per_request(max_model_len, max_in_flight_tokens, self.block_size) for group in self.groups
        )

    def max_concurrency(self, num_blocks: int, max_model_len: int, max_in_flight_tokens: int) -> float:
        """Requests of `max_model_len` tokens that fit at once: vLLM's "Maximum concurrency"."""
        return num_blocks / self.blocks_per_request(max_model_len, max_in_flight_tokens)


def has_unequal_blocks(groups: Sequence[KVGroup]) -> bool:
    """Whether some group's blocks hold states, or more tokens than another's."""
    return any(group.is_state or group.block_size is not None for group in groups)


def group_kinds(groups: Sequence[KVGroup]) -> tuple[tuple[int, ...], ...]:
    """Groups that are looked up together in the prefix cache, by index: full attention first, as vLLM's coordinator."""
    kinds: dict[tuple[int | None, bool, bool, int | None], list[int]] = {}
    for index, group in enumerate(groups):
        kinds.setdefault((group.window, group.chunked, group.is_state, group.block_size), []).append(index)
    return tuple(tuple(kinds[kind]) for kind in sorted(kinds, key=lambda kind: kind[0] is not None))


def kv_bytes_per_token(
    arch: Architecture, tp: int = 1, kv_cache_dtype: str = "auto", layers: Sequence[int] | None = None
) -> int:
    """What one token costs on one rank while every attention layer still attends to it, in these layers or in all."""
    if arch.is_compressed:  # what stays of it once it has left the window
        held = (layer.attention for index, layer in enumerate(arch.layers) if layers is None or index in layers)
        return ceil(sum(entry_bytes_per_token(attention) for attention in held if attention is not None))
    return sum(
        sum(cache_bytes_per_token(arch, layer.attention, tp, kv_cache_dtype))
        for index, layer in enumerate(arch.layers)
        if layer.attention is not None and layer.caches_kv and (layers is None or index in layers)
    )


def kv_layout(
    arch: Architecture,
    *,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    kv_cache_dtype: str = "auto",
    block_size: int | None = None,
    enable_prefix_caching: bool = True,
    num_speculative_tokens: int = 0,
    gpu: GPU | None = None,
    vllm_version: str = DEFAULT_RELEASE,
) -> KVLayout:
    """The layout that a release of vLLM gives this model; a `block_size` of None is vLLM's choice for it on that GPU.

    `kv_cache_dtype` "auto" is the model's own dtype here: `kv_cache_dtype.py` says what it stands for.

    A given size grows where a layer's state would not fit into a block. Raises `ValueError` on a block size below 1 or
    an impossible split.
    """
    if block_size is not None and block_size < 1:
        raise HeadcountError(f"block_size is {block_size}, must be at least 1")
    parallelism = Parallelism(pipeline_parallel_size=pipeline_parallel_size)
    starts = tuple(
        parallelism.stage_layers(arch.num_hidden_layers, stage).start for stage in range(pipeline_parallel_size)
    )
    settings = CacheSettings(
        arch=arch,
        backend=attention_backend(arch, gpu, kv_cache_dtype),
        tensor_parallel_size=tensor_parallel_size,
        kv_cache_dtype=kv_cache_dtype,
        cache_mode=mamba_cache_mode(arch, enable_prefix_caching=enable_prefix_caching),
        num_speculative_tokens=num_speculative_tokens,
        gpu=gpu,
        vllm_version=vllm_version,
    )
    size = kv_block_size(settings, block_size)
    layout = KVLayout(
        groups=_groups(settings, size),
        block_size=size,
        bytes_per_token=kv_bytes_per_token(arch, tensor_parallel_size, kv_cache_dtype),
        mamba_cache_mode=settings.cache_mode,
        stage_starts=starts,
        compresses=arch.is_compressed,
    )
    empty = [stage for stage in range(pipeline_parallel_size) if not layout.block_bytes(stage)]
    if empty:
        raise HeadcountError(
            f"pipeline_parallel_size {pipeline_parallel_size}: no layer of stage {empty[0]} keeps anything of a "
            "request, which vLLM cannot serve; take fewer stages"
        )
    return layout


def _groups(settings: CacheSettings, block_size: int) -> tuple[KVGroup, ...]:
    if not settings.arch.is_compressed:
        return cache_groups(layer_caches(settings, block_size), block_size)
    packed = packed_groups(list(compressed_caches(settings.arch, block_size)))
    return tuple(_group(caches, block_size) for caches in packed)


def cache_groups(caches: Sequence[LayerCache], block_size: int) -> tuple[KVGroup, ...]:
    """One group of caches of one kind, whatever their pages; else pages of one size, in groups of about equal size.

    vLLM `get_kv_cache_groups` (v1/core/kv_cache_utils.py, 0.32.0). Of several kinds, the smallest sets the size, unless
    the largest is less than half again as large; layers of a kind are dealt out in turn.
    """
    if len({cache.kind for cache in caches}) == 1:
        return (_group(caches, block_size),)
    kinds: dict[tuple[object, ...], list[LayerCache]] = {}
    for cache in unify_page_size(caches):
        kinds.setdefault(cache.kind, []).append(cache)
    smallest, largest = min(map(len, kinds.values())), max(map(len, kinds.values()))
    size = largest if largest < 1.5 * smallest else smallest
    groups = []
    for alike in kinds.values():
        ways = -(-len(alike) // size)
        groups += [_group(alike[i::ways], block_size) for i in range(ways)]
    return tuple(groups)


def _group(caches: Sequence[LayerCache], block_size: int) -> KVGroup:
    first = caches[0]
    return KVGroup(
        window=first.window,
        layers=tuple(cache.layer for cache in caches),
        page_bytes=tuple(cache.page_size_bytes for cache in caches),
        chunked=first.chunked,
        is_state=first.is_state,
        block_size=None if first.block_size == block_size else first.block_size,
        states_per_request=first.states_per_request,
    )
