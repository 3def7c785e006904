"""How many KV tokens an SGLang server ends up with: the static share of a GPU's memory, less the weights.

Read from SGLang 0.5.23: `srt/arg_groups/memory_hook.py` (`handle_gpu_memory_settings`),
`srt/mem_cache/kv_cache_configurator.py` (`_profile_available_bytes`, `resolve_max_num_reqs`),
`srt/model_executor/pool_configurator.py` (`DefaultPoolConfigurator`).
"""

import math
from dataclasses import dataclass
from typing import Protocol

from files.errors import HeadcountError
from kvcache.formats.kv_cache_dtype import KVCacheDtype, resolve_kv_cache_dtype
from kvcache.formats.quantization import QuantizationScheme, weight_bytes
from kvcache.gpus.gpu import GPU
from kvcache.layout.kv_layout import KVGroup, KVLayout, kv_bytes_per_token
from kvcache.memory.assumptions import Assumption
from kvcache.memory.budget import MemoryBudget, in_format
from kvcache.memory.interval import Terms, shipped_residuals
from kvcache.memory.placement import parallelism_of
from kvcache.memory.settings import MemorySettings
from kvcache.memory.state_pools import StatePool, StateSettings, refuse_states, state_pool
from kvcache.memory.terms import GIB, buffers_bytes
from kvcache.memory.window_pools import PoolSettings, WindowPool, refuse_windows, window_pool
from kvcache.models.drafters import find_drafter
from kvcache.shape.architecture import Architecture
from kvcache.shape.parameters import stage_tensors

MIB = 2**20
RULE = "SGLang 0.5.23 srt/mem_cache/kv_cache_configurator.py: what is free once weights are loaded, less the rest"
LOGS = (
    "public SGLang start-up logs on H100 80GB, total memory less 'Load weight begin. avail mem': 0.71 GiB (2026-08), "
    "0.76 (2026-02), 0.38 (2025-01) on one GPU, 1.76 (2025-09) on eight"
)
# What CUDA, and NCCL over several GPUs, hold before weights are loaded; of two or four GPUs no log was found.
CONTEXT_BYTES = {1: round(0.73 * GIB), 2: round(1.76 * GIB)}
CONTEXT_SD_BYTES = {1: 0.2 * GIB, 2: 0.4 * GIB}
OFF_LOGS_SD_BYTES = 0.4 * GIB  # on another GPU than the logs'
FRACTION_STEP = (
    0.001  # to which the default share is rounded; nvidia-smi's total, of which it is, is 0.6 % above CUDA's
)
_FEWEST_REQUESTS, _MOST_REQUESTS, _REQUESTS_PER_CONTEXT = 2048, 4096, 512


class StaticSettings(MemorySettings, PoolSettings, StateSettings, Protocol):
    """An SGLang server's arguments with a value for each, as far as its memory depends on them."""

    @property
    def dp_size(self) -> int: ...
    @property
    def context_length(self) -> int: ...
    @property
    def attention_backend(self) -> str | None: ...
    @property
    def mem_fraction_static(self) -> float: ...
    @property
    def max_total_tokens(self) -> int | None: ...  # the most, by --max-total-tokens
    @property
    def max_total_num_tokens(self) -> int | None: ...  # as the server logged them
    @property
    def requests_of_rank(self) -> int | None: ...  # of --max-running-requests


def default_static_share(
    gpu: GPU, *, activation_tokens: int, tensor_parallel_size: int, graph_mib: float, exchange_mib: float = 0.0
) -> float:
    """`--mem-fraction-static` where nobody gives one: all but what activations and CUDA graphs are expected to take.

    `exchange_mib`: DeepEP's buffers.
    """
    memory_mib = gpu.memory_bytes / MIB
    reserved_mib = 512 + 1.5 * max(activation_tokens, 2048) + 1024 * tensor_parallel_size / 8 + graph_mib
    if memory_mib > 60 * 1024:
        reserved_mib = max(reserved_mib, 10 * 1024)
    return round((memory_mib - reserved_mib - exchange_mib) / memory_mib, 3)


def default_running_requests(kv_tokens: int, context_length: int) -> int:
    """`--max-running-requests` where nobody gives one."""
    by_context = int(kv_tokens / context_length * _REQUESTS_PER_CONTEXT)
    return max(min(max(by_context, _FEWEST_REQUESTS), _MOST_REQUESTS, kv_tokens // 2), 1)


@dataclass(frozen=True, kw_only=True)
class _Rank:
    """What one GPU of a server holds, in bytes, and what one token takes of its KV cache."""

    total: int
    weights: int
    context: int
    dynamic: int  # activations and CUDA graphs
    token: int  # of all layers, and of a drafter's
    windows: WindowPool | None
    states: StatePool | None

    @property
    def token_bytes(self) -> float:
        """What a token of the pool takes: where windows have their own, with its share of that."""
        return self.token if self.windows is None else self.windows.token_bytes

    @property
    def available(self) -> int:
        return self.total - self.context - self.dynamic - self.weights

    def for_kv_cache(self, available: int) -> int:
        """What states leave of so much memory."""
        return available if self.states is None else self.states.left(available)

    def assumptions(self, gpu: GPU, scheme: QuantizationScheme) -> tuple[Assumption, ...]:
        return (
            ("total memory", f"{self.total / GIB:.2f} GiB", gpu.source["memory_bytes"]),
            ("weights", f"{self.weights / GIB:.2f} GiB", f"counted tensor by tensor; {scheme.name}: {scheme.source}"),
            ("context of CUDA and NCCL", f"{self.context / GIB:.2f} GiB", LOGS),
            ("activations and CUDA graphs", f"{self.dynamic / GIB:.2f} GiB", f"mem_fraction_static; {RULE}"),
        )


def static_budget_of(architecture: Architecture, gpu: GPU, settings: StaticSettings) -> MemoryBudget:
    """What SGLang of that release would log at start. Blocks are its pages.

    Returns a budget even where nothing fits (see `fits`).
    """
    arch, scheme = in_format(architecture, settings)
    if scheme.absent_from is not None:
        raise HeadcountError(
            f"quantization {scheme.name!r} is not simulated with SGLang; give another format, or leave --engine sglang "
            "out to ask about vLLM"
        )
    kv_cache = resolve_kv_cache_dtype(settings.kv_cache_dtype, arch, scheme, settings.vllm_version, gpu)
    return _budget(arch, gpu, settings, scheme, kv_cache)


def _rank(arch: Architecture, gpu: GPU, settings: StaticSettings, scheme: QuantizationScheme, kv_cache: str) -> _Rank:
    tp, drafts = settings.attention_ranks, settings.speculation
    drafter = find_drafter(arch, drafts.drafter, drafts.model, settings.quantization) if drafts else None
    parallelism = parallelism_of(settings, scheme, gpu)
    weights = weight_bytes(scheme, stage_tensors(arch, parallelism, 0), arch.dtype, whole_experts="")
    token = _token_bytes(arch, gpu, tp, kv_cache)
    if drafter is not None:
        weights += weight_bytes(drafter.scheme, drafter.tensors(parallelism), drafter.arch.dtype)
        token += _drafter_s_token_bytes(arch, token, drafter.arch.num_hidden_layers)
    windows, states = window_pool(arch, settings, tp, kv_cache, drafter), state_pool(arch, settings, tp)
    context = CONTEXT_BYTES[min(settings.tensor_parallel_size, 2)]
    return _Rank(
        total=gpu.memory_bytes,
        weights=weights + buffers_bytes(arch, parallelism, arch.num_hidden_layers),
        context=context,
        dynamic=math.ceil((gpu.memory_bytes - context) * (1 - settings.mem_fraction_static)),
        token=token,
        windows=windows,
        states=states,
    )


def _token_bytes(arch: Architecture, gpu: GPU, tp: int, kv_cache: str) -> int:
    """What a token leaves in all layers. MiniMax-M3's indexers keep FP8 keys beside FP8 values, where kernels do.

    Source: SGLang 0.5.23 `srt/mem_cache/memory_pool.py`, `get_minimax_sparse_index_dtype`.
    """
    token = kv_bytes_per_token(arch, tp, kv_cache)
    has_fp8_keys = kv_cache in ("fp8", "fp8_e4m3") and (gpu.family == "hopper" or gpu.is_data_center_blackwell)
    if arch.indexer is None or not (arch.indexer.chooses_blocks and has_fp8_keys):
        return token
    return token - _count_indexers(arch) * arch.indexer.head_dim


def _drafter_s_token_bytes(arch: Architecture, token: int, layers: int) -> int:
    """A drafter's layers take as much as the model's, each with an indexer where those choose among latents."""
    keys = arch.indexer.cached_bytes if arch.indexer is not None and arch.is_mla else 0
    kept = token - keys * _count_indexers(arch)
    return kept * layers // sum(layer.attention is not None for layer in arch.layers) + keys * layers


def _count_indexers(arch: Architecture) -> int:
    return sum(layer.attention is not None and layer.attention.indexer is not None for layer in arch.layers)


def _budget(
    arch: Architecture, gpu: GPU, settings: StaticSettings, scheme: QuantizationScheme, kv_cache: KVCacheDtype
) -> MemoryBudget:
    rank, page = _rank(arch, gpu, settings, scheme, kv_cache.name), settings.page_size
    pages, low, high = _pages(settings, gpu, rank)
    tokens, is_given = pages * page, settings.max_total_num_tokens is not None
    windowed = None if rank.windows is None else rank.windows.tokens_beside(tokens)
    if rank.windows is not None and windowed is not None and pages > 0:
        rank.windows.check_holds_a_request(windowed)
    running = settings.requests_of_rank or default_running_requests(tokens, settings.context_length)
    slots = None if rank.states is None else rank.states.slots(rank.available)
    if rank.states is not None and slots is not None and pages > 0:
        running = min(running, rank.states.running_requests(slots))
    return MemoryBudget(
        engine="sglang",
        model=arch.name,
        gpu=gpu.name,
        tensor_parallel_size=settings.attention_ranks,
        pipeline_parallel_size=1,
        decode_context_parallel_size=1,
        data_parallel_size=settings.dp_size * settings.data_parallel_size,
        attention_groups=settings.data_parallel_size,
        enable_expert_parallel=settings.enable_expert_parallel,
        dtype=arch.dtype,
        quantization=scheme.name,
        gemm_dtype=scheme.gemm_dtype_on(gpu),
        kv_cache_dtype=kv_cache.name,
        gpu_memory_utilization=settings.mem_fraction_static,
        max_model_len=settings.context_length,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_num_seqs=max(min(running, tokens // 2), 1),
        vllm_version=settings.vllm_version,
        total_bytes=rank.total,
        requested_bytes=rank.total - rank.dynamic,
        weights_bytes=rank.weights,
        activation_peak_bytes=0,  # with CUDA graphs in what the static share leaves
        non_torch_bytes=rank.context,
        cuda_graph_bytes=0,
        available_kv_bytes=int(tokens * rank.token_bytes) if is_given else rank.for_kv_cache(rank.available),
        # It starts with whatever there is, and cuts what clients ask for.
        required_kv_bytes=math.ceil(2 * page * rank.token_bytes),
        limiting_stage=0,
        num_gpu_blocks=pages,
        num_gpu_blocks_low=low,
        num_gpu_blocks_high=high,
        unmeasured=(),
        block_size=page,
        kv_cache_tokens=tokens,
        max_concurrency=tokens / settings.context_length,
        kv_bytes_per_token=kv_bytes_per_token(arch, 1, kv_cache.name),
        kv_bytes_per_token_per_gpu=rank.token,
        state_bytes_per_request=0 if rank.states is None else rank.states.per_request * rank.states.slot_bytes,
        layout=_layout(arch, page, rank),
        window_kv_tokens=windowed,
        kept_window=None if rank.windows is None else rank.windows.window,
        state_slots=slots,
        state_pool_bytes=0 if rank.states is None else rank.available - rank.for_kv_cache(rank.available),
        state_kernel_chunk=None if rank.states is None else rank.states.kernel_chunk,
        assumptions=(
            *rank.assumptions(gpu, scheme),
            *(() if is_given else _interval_row(low, high, page)),
            *_asked_kernels(settings),
            *kv_cache.assumptions,
            *arch.assumptions,
        ),
    )


def _layout(arch: Architecture, page: int, rank: _Rank) -> KVLayout:
    layers = tuple(range(arch.num_hidden_layers))
    if rank.states is not None:
        layers = tuple(index for index, layer in enumerate(arch.layers) if layer.attention is not None)
    alike = KVGroup(None, layers, (page * rank.token // len(layers),) * len(layers))
    pools = (alike,) if rank.windows is None else (rank.windows.full, rank.windows.windowed)
    return KVLayout(groups=pools, block_size=page, bytes_per_token=rank.token)


def refuse_caches(arch: Architecture, settings: StaticSettings) -> None:
    """Raise HeadcountError for layers whose caches are not simulated."""
    if arch.is_compressed:
        raise HeadcountError(
            f"SGLang's caches of compressed attention, which {arch.name} has, are not simulated; leave --engine sglang "
            "out to ask about vLLM, or choose another model"
        )
    refuse_states(arch, settings.mamba_radix_cache_strategy)
    refuse_windows(arch, settings)


def _pages(settings: StaticSettings, gpu: GPU, rank: _Rank) -> tuple[int, int, int]:
    """Pages of the pool, and both ends of their 90 % interval; all the same where the server's log says them."""
    page = settings.page_size
    if settings.max_total_num_tokens is not None:
        pages = settings.max_total_num_tokens // page
        return pages, pages, pages
    half = _half_width(settings, gpu, rank.weights)
    found = [
        int(max(0, rank.for_kv_cache(rank.available + off)) // rank.token_bytes) // page for off in (0, -half, half)
    ]
    most = math.inf if settings.max_total_tokens is None else settings.max_total_tokens // page
    pages, low, high = (int(min(count, most)) for count in found)
    return pages, low, high


def _half_width(settings: StaticSettings, gpu: GPU, weights: int) -> int:
    """Half of the 90 % interval of what is left for the KV cache."""
    residuals = shipped_residuals()
    terms = Terms(weights_bytes=weights, activation_peak_bytes=0, non_torch_bytes=0, cuda_graph_bytes=0)
    sd = math.hypot(
        residuals.measured.bytes_of(terms),
        CONTEXT_SD_BYTES[min(settings.tensor_parallel_size, 2)],
        0.0 if gpu.name == "h100-sxm" else OFF_LOGS_SD_BYTES,
        FRACTION_STEP * gpu.memory_bytes,
    )
    return math.ceil(residuals.half_width_sds * sd)


def _asked_kernels(settings: StaticSettings) -> tuple[Assumption, ...]:
    if settings.attention_backend is None:
        return ()
    return (
        ("attention kernels", settings.attention_backend, "for pages alone; step times are of SGLang's own choice"),
    )


def _interval_row(low: int, high: int, page: int) -> tuple[Assumption, ...]:
    why = "by judgement: what CUDA and NCCL hold differs by release and driver; start-up logs of H100 alone"
    return (("KV tokens, 90% interval", f"{low * page:,}–{high * page:,}", why),)
