"""How many bytes a token's keys with values take, and in which blocks."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvcache.architecture import Architecture
from kvcache.parallelism import Parallelism

# Bytes per element by vLLM's --kv-cache-dtype (v1/kv_cache_interface.py, 0.32.0).
_ELEMENT_BYTES = {
    "bfloat16": 2,
    "float16": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "fp8_ds_mla": 1,
    "int8": 1,
}
KV_CACHE_DTYPES = ("auto", *_ELEMENT_BYTES)
# DeepSeek's packed latent: 512 FP8 values, 4 fp32 scales, 64 bf16 rotary values (vLLM MLAAttentionSpec).
FP8_DS_MLA_BYTES_PER_TOKEN = 656


@dataclass(frozen=True)
class KVGroup:
    """Layers that share one block table; `window` is None where they attend to everything.

    `is_state`: one state per request (Mamba, linear attention) in place of keys and values. `block_size` None stands
    for the layout's.
    """

    window: int | None
    layers: tuple[int, ...] = ()
    chunked: bool = False
    is_state: bool = False
    block_size: int | None = None

    @property
    def num_layers(self) -> int:
        """Layers in the group, over all pipeline stages."""
        return len(self.layers)

    def skipped_tokens(self, num_computed_tokens: int) -> int:
        """How many of a request's first tokens no later token attends to (vLLM `get_num_skipped_tokens`)."""
        if self.window is None:
            return 0
        if self.chunked:
            return num_computed_tokens // self.window * self.window
        return max(0, num_computed_tokens - self.window + 1)

    def blocks_per_request(self, max_model_len: int, max_in_flight_tokens: int, block_size: int) -> int:
        """The most blocks that one request of `max_model_len` tokens holds in this group.

        vLLM `max_memory_usage_bytes` of FullAttentionSpec, SlidingWindowSpec, ChunkedLocalAttentionSpec (0.32.0).
        """
        if self.window is None:
            return -(-max_model_len // block_size)
        if self.chunked:
            return -(-min(self.window + max_in_flight_tokens, max_model_len) // block_size)
        # One more, since a window need not start at a block's first token.
        return -(-min(self.window - 1 + max_in_flight_tokens, max_model_len) // block_size) + 1


@dataclass(frozen=True, kw_only=True)
class KVLayout:
    """How one rank's KV pool is cut up.

    A block id means `page_size_bytes` in each layer of the group that holds it; all groups draw from one pool.
    """

    groups: tuple[KVGroup, ...]
    block_size: int
    bytes_per_token_per_layer: int
    stage_starts: tuple[int, ...] = (0,)  # first layer of each pipeline stage

    @property
    def page_size_bytes(self) -> int:
        """One block in one layer."""
        return self.block_size * self.bytes_per_token_per_layer

    @property
    def group_layers(self) -> int:
        """Layers of the largest group: what a block must have room for, with one pipeline stage."""
        return max(group.num_layers for group in self.groups)

    @property
    def bytes_per_token(self) -> int:
        """What one token costs on one rank while every layer still attends to it, over all stages."""
        return self.bytes_per_token_per_layer * sum(group.num_layers for group in self.groups)

    def block_bytes(self, stage: int = 0) -> int:
        """One block over all layers that share it on a rank of a pipeline stage; 0 where the stage has no layer."""
        starts = (*self.stage_starts, None)
        first, end = starts[stage], starts[stage + 1]
        held = [
            sum(1 for layer in group.layers if layer >= (first or 0) and (end is None or layer < end))
            for group in self.groups
        ]
        return self.page_size_bytes * max(held)

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
    kinds: dict[tuple[int | None, bool], list[int]] = {}
    for index, group in enumerate(groups):
        kinds.setdefault((group.window, group.chunked), []).append(index)
    return tuple(tuple(kinds[kind]) for kind in sorted(kinds, key=lambda kind: kind[0] is not None))


def kv_bytes_per_token_per_layer(arch: Architecture, tp: int = 1, kv_cache_dtype: str = "auto") -> int:
    """Bytes that one token leaves in one layer on one rank.

    The latent of MLA is whole on every rank; KV heads are split, then replicated. Raises `ValueError` on a dtype that
    is not known.
    """
    element = _element_bytes(arch, kv_cache_dtype)
    if arch.is_mla:
        if kv_cache_dtype == "fp8_ds_mla":
            return FP8_DS_MLA_BYTES_PER_TOKEN
        return ((arch.kv_lora_rank or 0) + (arch.qk_rope_head_dim or 0)) * element
    if kv_cache_dtype == "fp8_ds_mla":
        raise ValueError(f"kv_cache_dtype 'fp8_ds_mla' needs latent attention, which {arch.name!r} lacks; use 'fp8'")
    heads = Parallelism(tensor_parallel_size=tp).kv_heads_per_rank(arch.num_key_value_heads)
    return heads * 2 * arch.head_dim * element


def _element_bytes(arch: Architecture, kv_cache_dtype: str) -> int:
    if kv_cache_dtype not in KV_CACHE_DTYPES:
        raise ValueError(f"no kv_cache_dtype {kv_cache_dtype!r}; allowed: {', '.join(KV_CACHE_DTYPES)}")
    if kv_cache_dtype == "auto":
        return 4 if arch.dtype == "float32" else 2
    return _ELEMENT_BYTES[kv_cache_dtype]


def kv_layout(
    arch: Architecture,
    *,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    kv_cache_dtype: str = "auto",
    block_size: int = 16,
) -> KVLayout:
    """The layout vLLM gives this model. Raises `ValueError` on a block size below 1 or an impossible split."""
    if block_size < 1:
        raise ValueError(f"block_size is {block_size}, must be at least 1")
    parallelism = Parallelism(pipeline_parallel_size=pipeline_parallel_size)
    starts = tuple(
        parallelism.stage_layers(arch.num_hidden_layers, stage).start for stage in range(pipeline_parallel_size)
    )
    return KVLayout(
        groups=layer_groups(arch.layer_windows, arch.chunked_attention),
        block_size=block_size,
        bytes_per_token_per_layer=kv_bytes_per_token_per_layer(arch, tensor_parallel_size, kv_cache_dtype),
        stage_starts=starts,
    )


def layer_groups(windows: Sequence[int | None], chunked: bool = False) -> tuple[KVGroup, ...]:
    """Layers with equal windows, cut into groups of about equal size.

    vLLM `_get_kv_cache_groups_uniform_page_size` (v1/core/kv_cache_utils.py, 0.32.0): the smallest kind sets the size,
    unless the largest is less than half again as large; layers of a kind are dealt out in turn.
    """
    kinds: dict[int | None, list[int]] = {}
    for layer, window in enumerate(windows):
        kinds.setdefault(window, []).append(layer)
    smallest, largest = min(map(len, kinds.values())), max(map(len, kinds.values()))
    size = largest if largest < 1.5 * smallest else smallest
    groups = []
    for window, layers in kinds.items():
        ways = -(-len(layers) // size)
        groups += [KVGroup(window, tuple(layers[i::ways]), chunked and window is not None) for i in range(ways)]
    return tuple(groups)
