"""Random mixes of layers, with settings, for KV-cache layouts to be compared with vLLM's."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any

from kvcache.gpus.gpu import find_gpu
from kvcache.layout.attention_backend import attention_backend
from kvcache.layout.kv_layout import KVLayout, kv_layout
from kvcache.layout.state_content import checkpoint_alignment
from kvcache.memory.context_parallel import spread
from kvcache.memory.settings import batches_in_flight
from kvcache.parallelism import Parallelism
from kvcache.releases import DEFAULT_RELEASE, NEWEST_RELEASE
from kvcache.shape.architecture import Architecture
from kvcache.shape.layer import KINDS, Attention, CompressedAttention, Indexer, LatentAttention, Layer, StateSpace

GPUS = ("h100-sxm", "a100-80gb", "b200-sxm", "rtx-pro-6000", "mi300x")
_KV_DTYPES = (
    "auto", "auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "int4_per_token_head", "int8_per_token_head",
    "fp8_per_token_head", "nvfp4", "nvfp4_4over6",
)  # fmt: skip
_LATENT_KV_DTYPES = ("auto", "auto", "bfloat16", "fp8", "fp8_e4m3")
_SPARSE_KV_DTYPES = ("auto", "auto", "bfloat16", "fp8_e4m3", "fp8_ds_mla", "nvfp4_ds_mla")
_MIXES = (
    "full", "windows", "windows", "two windows", "all windows", "chunks", "latent", "unequal", "all unequal", "states",
    "both", "sparse", "blocks", "compressed",
)  # fmt: skip
_BATCHED_TOKENS = (512, 2048, 8192, 16384)


@dataclass(frozen=True, kw_only=True)
class KVCacheCase:
    """One model on one GPU with settings; `available_bytes` are per pipeline stage."""

    name: str
    architecture: Architecture
    gpu: str = "h100-sxm"
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    kv_cache_dtype: str = "auto"
    block_size: int | None = None
    enable_prefix_caching: bool = True
    num_speculative_tokens: int = 0
    num_gpu_blocks_override: int | None = None
    max_model_len: int
    max_num_batched_tokens: int = 8192
    async_scheduling: bool = True
    available_bytes: tuple[int, ...]
    vllm_version: str = DEFAULT_RELEASE  # whose layout is ours
    config: Mapping[str, Any] | None = None  # vLLM builds the model of this, or takes the architecture's layers

    @property
    def stage_starts(self) -> tuple[int, ...]:
        """First layer of each pipeline stage."""
        parallelism = Parallelism(pipeline_parallel_size=self.pipeline_parallel_size)
        stages = range(self.pipeline_parallel_size)
        return tuple(parallelism.stage_layers(self.architecture.num_hidden_layers, stage).start for stage in stages)

    @property
    def max_in_flight_tokens(self) -> int:
        """By the rule that the product's memory budget goes by."""
        return self.max_num_batched_tokens * batches_in_flight(self.pipeline_parallel_size, self.async_scheduling)

    def layout(self) -> KVLayout:
        """Ours. Raises HeadcountError where we refuse the case."""
        layout = kv_layout(
            self.architecture,
            tensor_parallel_size=self.tensor_parallel_size,
            pipeline_parallel_size=self.pipeline_parallel_size,
            kv_cache_dtype=self.kv_cache_dtype,
            block_size=self.block_size,
            enable_prefix_caching=self.enable_prefix_caching,
            num_speculative_tokens=self.num_speculative_tokens,
            gpu=find_gpu(self.gpu),
            vllm_version=self.vllm_version,
        )
        return spread(layout, self.decode_context_parallel_size)

    def to_json(self) -> dict[str, Any]:
        """What the probe reads: the shape of each layer or the model's config, beside the settings."""
        backend = attention_backend(self.architecture, find_gpu(self.gpu), self.kv_cache_dtype)
        ours = ("architecture", "config", "gpu", "vllm_version")
        found = {key: value for key, value in vars(self).items() if key not in ours}
        space = self.architecture.state_space
        shape = {"layers": _layers(self.architecture)} if self.config is None else {"config": dict(self.config)}
        return {
            **found,
            **shape,
            "num_layers": self.architecture.num_hidden_layers,
            "dtype": self.architecture.dtype,
            # Of the newest release's kernels on that GPU, which cannot be asked here.
            "checkpoint_alignment": checkpoint_alignment(space, find_gpu(self.gpu), NEWEST_RELEASE) if space else None,
            "stage_starts": self.stage_starts,
            "kernel_block_sizes": backend.block_sizes,
            "multiples": backend.multiples,
        }


def _layers(arch: Architecture) -> list[dict[str, Any]]:
    """One description per layer, for vLLM's own layers to be made of."""
    return [
        {
            "attention": _attention(layer.attention) if layer.attention else None,
            "state": asdict(layer.state) if layer.state else None,
        }
        for layer in arch.layers
    ]


def _attention(attention: Attention) -> dict[str, Any]:
    latent = attention.latent
    return {
        "window": attention.window,
        "chunked": attention.chunked,
        "latent": latent is not None,
        "num_kv_heads": 1 if latent else attention.num_kv_heads,
        "head_size": latent.cached_width if latent else attention.head_dim,
        "shared_with": attention.kv_owner,
        "topk": attention.topk,
        "indexer": asdict(attention.indexer) if attention.indexer else None,
        "compressed": asdict(attention.compressed) if attention.compressed else None,
    }


def random_case(seed: int, number: int) -> KVCacheCase:
    """The case of that number; the same for the same seed."""
    rng = Random(f"{seed} {number}")
    pp = rng.choice((1, 1, 1, 2, 3))
    architecture = _architecture(rng, f"random #{number}", max(rng.choice((2, 7, 12, 24, 30, 48, 61)), pp))
    dtypes = _LATENT_KV_DTYPES if architecture.is_mla else _KV_DTYPES
    dtypes = _SPARSE_KV_DTYPES if architecture.is_sparse and architecture.is_mla else dtypes
    dtypes = ("fp8_ds_mla",) if architecture.is_compressed else dtypes
    served = {gpu: [dtype for dtype in dtypes if _has_kernels(architecture, gpu, dtype)] for gpu in GPUS}
    gpu = rng.choice([gpu for gpu in GPUS if served[gpu]])
    kv_cache_dtype = rng.choice(served[gpu])
    backend = attention_backend(architecture, find_gpu(gpu), kv_cache_dtype)
    sizes = [size for size in (16, 32, 64, 128, 256) if any(size % kernel == 0 for kernel in backend.block_sizes)]
    tp = rng.choice((1, 2, 4, 8))
    return KVCacheCase(
        name=architecture.name,
        architecture=architecture,
        gpu=gpu,
        tensor_parallel_size=tp,
        decode_context_parallel_size=_context_ranks(architecture, tp, Random(f"{seed} {number} context")),
        pipeline_parallel_size=pp,
        kv_cache_dtype=kv_cache_dtype,
        block_size=rng.choice((None, rng.choice(sizes))),
        enable_prefix_caching=rng.random() < 0.6,
        num_speculative_tokens=rng.choice((0, 0, 0, 1, 3)),
        num_gpu_blocks_override=rng.choice((None,) * 9 + (5000,)),
        max_model_len=int(2 ** rng.uniform(9, 17.5)),
        max_num_batched_tokens=rng.choice(_BATCHED_TOKENS),
        async_scheduling=rng.random() < 0.6,
        available_bytes=tuple(int(2 ** rng.uniform(29, 37)) for _ in range(pp)),
    )


def _context_ranks(architecture: Architecture, tp: int, rng: Random) -> int:
    """Some or all of a layer's ranks, where all layers have one kind of cache over the whole context."""
    is_plain = architecture.model_type in ("full", "latent") and architecture.state_space is None
    return rng.choice([ranks for ranks in (1, 1, 2, 4, 8) if tp % ranks == 0]) if is_plain else 1


def _has_kernels(architecture: Architecture, gpu: str, kv_cache_dtype: str) -> bool:
    try:
        attention_backend(architecture, find_gpu(gpu), kv_cache_dtype)
    except ValueError:
        return False
    return True


def _architecture(rng: Random, name: str, num_layers: int) -> Architecture:
    mix = rng.choice(_MIXES)
    kv_heads, head_dim = rng.choice((1, 2, 4, 8, 16)), rng.choice((64, 80, 96, 128, 192, 256))
    dtype = rng.choice(("bfloat16", "bfloat16", "float16"))
    windows = _windows(rng, mix, num_layers)
    usual = Attention(num_heads=16, num_kv_heads=kv_heads, head_dim=head_dim)
    full = usual
    if mix in ("latent", "sparse"):
        usual = full = _latent(rng, head_dim)
    if mix in ("unequal", "all unequal"):
        full = replace(usual, head_dim=rng.choice((128, 256, 320, 512)), num_kv_heads=rng.choice((1, 2, 4, 8)))
    layers = [Layer(attention=_attending(usual, full, window, mix), intermediate_size=1024) for window in windows]
    if mix == "all unequal":
        layers = [Layer(attention=rng.choice((usual, full)), intermediate_size=1024) for _ in windows]
    if mix in ("sparse", "blocks"):
        layers = _choosing(rng, usual, num_layers)
    if mix == "compressed":
        layers = _compressing(rng, num_layers)
    if mix in ("states", "both") or (mix in ("latent", "windows") and rng.random() < 0.4):
        layers = _with_states(rng, mix, layers)
    elif mix not in ("sparse", "blocks", "compressed") and rng.random() < 0.2:
        layers = _sharing(rng, layers)
    return Architecture(
        name=name,
        model_type=mix,
        layers=tuple(layers),
        hidden_size=1024,
        vocab_size=1024,
        max_position_embeddings=2**18,
        dtype=dtype,
    )


def _latent(rng: Random, head_dim: int) -> Attention:
    widths = LatentAttention(
        kv_lora_rank=rng.choice((256, 512)),
        v_head_dim=128,
        qk_nope_head_dim=rng.choice((64, 96, 128)),
        qk_rope_head_dim=rng.choice((32, 64)),
    )
    return Attention(num_heads=16, num_kv_heads=16, head_dim=head_dim, latent=widths)


def _choosing(rng: Random, latent: Attention, num_layers: int) -> list[Layer]:
    """Layers of sparse attention: all with an indexer, or some that take an earlier one's choice."""
    if latent.latent is None:  # blocks of tokens, in all layers but the first ones
        indexer = Indexer(num_heads=latent.num_kv_heads, head_dim=128, chooses_blocks=True)
        full = rng.choice((0, 1, num_layers // 2))
        chosen = replace(latent, topk=2048, indexer=indexer)
        return [Layer(attention=latent if n < full else chosen, intermediate_size=1024) for n in range(num_layers)]
    indexer = Indexer(num_heads=rng.choice((32, 64)), head_dim=128)
    every = rng.choice((1, 1, 2, 4))
    shapes = [
        replace(latent, topk=2048, indexer=indexer if layer % every == 0 else None) for layer in range(num_layers)
    ]
    return [Layer(attention=shape, intermediate_size=1024) for shape in shapes]


def _compressing(rng: Random, num_layers: int) -> list[Layer]:
    """DeepSeek-V4's ways, in turn as it has them or in any order, one of them now and then alone."""
    indexer = Indexer(num_heads=64, head_dim=128)
    window, kinds = rng.choice((128, 128, 64, 512)), rng.choice(((4, 128), (4, 128), (None, 4, 128), (4,), (128,)))
    first = [None] * rng.choice((0, 2)) + [128] * rng.choice((0, 1))
    ratios = [*first, *(kinds * num_layers)] if rng.random() < 0.7 else rng.choices(kinds, k=num_layers)
    shapes = [
        Attention(
            num_heads=64,
            num_kv_heads=1,
            head_dim=512,
            window=window,
            compressed=CompressedAttention(ratio=ratio, q_lora_rank=1024, o_lora_rank=1024, o_groups=8),
            topk=2048 if ratio == 4 else None,
            indexer=indexer if ratio == 4 else None,
        )
        for ratio in ratios[:num_layers]
    ]
    return [Layer(attention=shape, intermediate_size=1024) for shape in shapes]


def _attending(usual: Attention, full: Attention, window: int | None, mix: str) -> Attention:
    return full if window is None else replace(usual, window=window, chunked=mix == "chunks")


def _windows(rng: Random, mix: str, num_layers: int) -> tuple[int | None, ...]:
    if mix not in ("windows", "two windows", "all windows", "chunks", "unequal"):
        return (None,) * num_layers
    first, second = (rng.choice((128, 512, 1000, 1024, 4096, 8192)) for _ in range(2))
    choices = {
        "windows": (first, first, first, None),
        "two windows": (first, second, None),
        "all windows": (first,),
        "chunks": (first, first, None),
        "unequal": (first, first, first, None),
    }[mix]
    if rng.random() < 0.5:  # a pattern, as published models have
        period = rng.choice((2, 4, 6))
        return tuple(None if layer % period == period - 1 and None in choices else first for layer in range(num_layers))
    return tuple(rng.choice(choices) for _ in range(num_layers))


def _with_states(rng: Random, mix: str, layers: list[Layer]) -> list[Layer]:
    """Some or all layers keep a state, of one shape; the rest has attention, or neither."""
    if mix == "both":
        state = random_state_space(rng)
        return [replace(layer, state=state) for layer in layers]
    share = rng.choice((0.5, 0.75, 0.9, 1.0))
    kinds = [rng.choices(("state", "attention", "mlp"), (share, 1 - share, 0.2))[0] for _ in layers]
    kinds[rng.randrange(len(layers))] = "state"
    state = random_state_space(rng)
    return [
        replace(
            layer, attention=layer.attention if kind == "attention" else None, state=state if kind == "state" else None
        )
        for layer, kind in zip(layers, kinds, strict=True)
    ]


def random_state_space(rng: Random) -> StateSpace:
    """A shape that eight ranks can divide."""
    kind = rng.choice(KINDS)
    dtypes = ("auto", "auto", "float32", "bfloat16", *(() if kind == "kimi_delta" else ("float16",)))
    return StateSpace(
        kind=kind,
        conv_kernel=rng.choice((3, 4)),
        num_heads=rng.choice((16, 32, 64, 128)),
        head_dim=rng.choice((32, 64, 128)),
        num_key_heads=rng.choice((8, 16)),
        key_head_dim=rng.choice((64, 128)),
        num_groups=rng.choice((1, 8)),
        state_size=rng.choice((16, 128, 256)),
        intermediate_size=rng.choice((2048, 4096, 8192)),
        dt_rank=64,
        state_dtype=rng.choice(dtypes),
        full_rank_gate=(gated := rng.random() < 0.5),
        full_rank_decay=gated and rng.random() < 0.5,
    )


def _sharing(rng: Random, layers: list[Layer]) -> list[Layer]:
    """The last layers read the cache of the last earlier layer of their kind, as Gemma 3n's."""
    first = rng.randrange(len(layers) // 2, len(layers)) if len(layers) > 1 else len(layers)
    owners = {layer.attention: index for index, layer in enumerate(layers[:first])}
    return [
        replace(layer, attention=replace(layer.attention, kv_owner=owners.get(layer.attention)))
        if index >= first and layer.attention
        else layer
        for index, layer in enumerate(layers)
    ]
