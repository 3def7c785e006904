"""How many KV blocks a vLLM replica ends up with."""

import math
from dataclasses import dataclass, replace

from files.errors import HeadcountError
from kvcache.errors import DoesNotFitError
from kvcache.formats.kv_cache_dtype import KVCacheDtype, resolve_kv_cache_dtype
from kvcache.formats.quantization import QuantizationScheme, refuse_absent, resolve_quantization
from kvcache.gpus.gpu import GPU
from kvcache.layout.attention_backend import BEFORE_AMPERE
from kvcache.layout.kv_layout import KVLayout, kv_bytes_per_token, kv_layout
from kvcache.memory.assumptions import assumptions, interval_assumptions
from kvcache.memory.context_parallel import split_context
from kvcache.memory.host_memory import HostMemory, host_memory
from kvcache.memory.kv_store import kv_store
from kvcache.memory.placement import Placement, Stage, parallelism_of, stage_of
from kvcache.memory.settings import MemorySettings, max_in_flight_tokens
from kvcache.memory.terms import GIB
from kvcache.models.drafters import Drafter, find_drafter
from kvcache.releases import (
    GRAPHS_NEED_A_BLOCK_PER_SEQUENCE,
    KV_CACHE_SIZE_BY_CONCURRENCY,
    NULL_BLOCK_BESIDE_ONE_REQUEST,
    check_known_memory,
)
from kvcache.shape.architecture import Architecture, with_dtype, with_state_dtype

SETTINGS = (
    "tensor_parallel_size", "pipeline_parallel_size", "decode_context_parallel_size", "data_parallel_size",
    "enable_expert_parallel",
    "gpu_memory_utilization", "max_model_len", "max_num_batched_tokens", "max_num_seqs", "vllm_version",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MemoryBudget:
    """Where one replica's memory goes.

    `*_bytes` are per GPU, on the pipeline stage that limits the pool; blocks, tokens, concurrency are per replica, or
    per attention replica where `data_parallel_size` is above 1.
    `kv_bytes_per_token` is the model's, however it is split; `kv_bytes_per_token_per_gpu` is what a rank of that stage
    stores; `state_bytes_per_request` is one rank's over all stages.
    """

    model: str
    gpu: str
    tensor_parallel_size: int
    pipeline_parallel_size: int
    decode_context_parallel_size: int
    data_parallel_size: int
    attention_groups: int = 1  # of each replica, under SGLang
    enable_expert_parallel: bool
    dtype: str  # of what is not packed
    quantization: str
    gemm_dtype: str
    kv_cache_dtype: str  # as vLLM runs it; "auto" is the model's own
    gpu_memory_utilization: float
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    vllm_version: str
    total_bytes: int
    requested_bytes: int
    weights_bytes: int
    activation_peak_bytes: int
    non_torch_bytes: int
    cuda_graph_bytes: int
    available_kv_bytes: int  # negative where not even the weights fit
    required_kv_bytes: int  # for one request of max_model_len, the null block included
    limiting_stage: int  # of the pipeline, from 0
    num_gpu_blocks: int
    num_gpu_blocks_low: int  # 90 % interval of what vLLM would log; equal where the blocks are given
    num_gpu_blocks_high: int
    unmeasured: tuple[str, ...]  # conditions without a log behind them, each of which widens the interval
    block_size: int
    kv_cache_tokens: int
    max_concurrency: float
    kv_bytes_per_token: int
    kv_bytes_per_token_per_gpu: int
    state_bytes_per_request: int  # of state-space or linear-attention layers, at most; 0 where there are none
    layout: KVLayout
    assumptions: tuple[tuple[str, str, str], ...]  # (name, value, source)
    needs_block_per_sequence: bool = False  # it starts only with as many blocks as max_num_seqs
    graph_pass_bytes: int = 0  # of `cuda_graph_bytes`: what the estimate of a hybrid model's graphs has too much
    adapter_bytes: int = 0  # slots for LoRA adapters
    host: HostMemory | None = None  # for KV, of each engine or of all; None: no KV leaves the GPUs
    engine: str = "vllm"
    window_kv_tokens: int | None = None  # of SGLang's pool for layers with windows; None: all layers share one pool
    kept_window: int | None = None  # tokens that it keeps of each sequence
    state_slots: int | None = None  # of SGLang's pool of SSM states
    state_pool_bytes: int = 0  # what it takes on one GPU, padding included
    state_kernel_chunk: int | None = None  # tokens after which a layer's kernel can hand out its state

    @property
    def tp(self) -> int:
        """Tensor-parallel size."""
        return self.tensor_parallel_size

    @property
    def pp(self) -> int:
        """Pipeline-parallel size."""
        return self.pipeline_parallel_size

    @property
    def num_gpus(self) -> int:
        """Of one replica."""
        return self.tp * self.pp * self.data_parallel_size

    @property
    def split(self) -> str:
        """How a replica is split over GPUs: `TP 4, PP 2` or `TP 1, DP 8, expert parallel`."""
        sizes = (
            ("TP", self.tp), ("DCP", self.decode_context_parallel_size), ("PP", self.pp),
            ("DP", self.data_parallel_size),
        )  # fmt: skip
        parts = [f"{name} {size}" for name, size in sizes if size > 1 or name == "TP"]
        return ", ".join([*parts, "expert parallel"] if self.enable_expert_parallel else parts)

    @property
    def weights_format(self) -> str:
        """As a sentence names it: `16-bit` or `fp8`."""
        return "16-bit" if self.quantization == "none" else self.quantization

    @property
    def fits(self) -> bool:
        """Whether vLLM would start: weights fit, with room for one request of `max_model_len`, and enough blocks."""
        return self.missing_bytes == 0 and self.missing_blocks == 0

    @property
    def surely_fits(self) -> bool:
        """Whether it would start at the low end of the KV blocks' interval, too."""
        return self.fits and self.kv_cache_tokens_low >= self.max_model_len and not self.may_lack_blocks

    @property
    def kv_cache_tokens_low(self) -> int:
        """KV-cache tokens at the lower end of the interval."""
        return self.kv_cache_tokens * self.num_gpu_blocks_low // max(1, self.num_gpu_blocks)

    @property
    def kv_cache_tokens_high(self) -> int:
        """KV-cache tokens at its upper end."""
        return self.kv_cache_tokens * self.num_gpu_blocks_high // max(1, self.num_gpu_blocks)

    @property
    def missing_bytes(self) -> int:
        """What each GPU lacks to hold one request; 0 where it does."""
        return max(0, self.required_kv_bytes - self.available_kv_bytes)

    @property
    def missing_blocks(self) -> int:
        """What the pool lacks of a block for each of `max_num_seqs` sequences, where starting takes that; else 0."""
        return max(0, self.max_num_seqs - self.num_gpu_blocks) if self.needs_block_per_sequence else 0

    @property
    def may_lack_blocks(self) -> bool:
        """Whether some would be missing at the low end of the KV blocks' interval."""
        return self.needs_block_per_sequence and self.max_num_seqs > self.num_gpu_blocks_low

    @property
    def spare_bytes(self) -> int:
        """What each GPU has beyond what starting takes; 0 where it does not start."""
        return max(0, self.available_kv_bytes - self.required_kv_bytes) if self.fits else 0


def budget_of(architecture: Architecture, gpu: GPU, settings: MemorySettings) -> MemoryBudget:
    """What vLLM of that release would log at start.

    Returns a budget even where nothing fits (see `fits`); raises `HeadcountError` where vLLM refuses the settings.
    """
    check_known_memory(settings.vllm_version)
    if settings.dtype == "bfloat16" and gpu.family in BEFORE_AMPERE:
        raise HeadcountError(f"{gpu.title} has no bfloat16, and vLLM does not start with it; give --dtype float16")
    architecture, scheme = in_format(architecture, settings)
    if not scheme.runs_on(gpu.family):
        raise HeadcountError(
            f"{gpu.title} is older than vLLM's kernels for {scheme.name} weights; take another GPU, or another format "
            "by --quantization"
        )
    refuse_absent(scheme, settings.vllm_version)
    kv_cache = resolve_kv_cache_dtype(settings.kv_cache_dtype, architecture, scheme, settings.vllm_version, gpu)
    parallelism = parallelism_of(settings, scheme, gpu)
    drafts = settings.speculation
    drafter = find_drafter(architecture, drafts.drafter, drafts.model, settings.quantization) if drafts else None
    layout = kv_layout(
        architecture,
        tensor_parallel_size=settings.tensor_parallel_size,
        pipeline_parallel_size=settings.pipeline_parallel_size,
        kv_cache_dtype=kv_cache.name,
        block_size=settings.block_size,
        enable_prefix_caching=settings.enable_prefix_caching,
        gpu=gpu,
        vllm_version=settings.vllm_version,
    )
    placed = Placement(
        arch=architecture,
        gpu=gpu,
        parallelism=parallelism,
        scheme=scheme,
        layout=_with_drafter(
            split_context(layout, architecture, settings),
            _drafted_kv_bytes(drafter, settings.tensor_parallel_size, kv_cache.name),
        ),
        kv_cache_dtype=kv_cache.name,
        settings=settings,
        drafter=drafter,
    )
    return _budget(placed, kv_cache)


def _drafted_kv_bytes(drafter: Drafter | None, tp: int, kv_cache_dtype: str) -> int:
    """What a drafter's layers store of one token on one rank."""
    return kv_bytes_per_token(drafter.arch, tp, kv_cache_dtype) if drafter else 0


def _with_drafter(layout: KVLayout, drafted_bytes: int) -> KVLayout:
    """The layout with the drafter's layers, which store their keys with values under the model's block ids."""
    return replace(
        layout,
        bytes_per_token=layout.bytes_per_token + drafted_bytes,
        draft_block_bytes=layout.block_size * drafted_bytes,
    )


def in_format(architecture: Architecture, settings: MemorySettings) -> tuple[Architecture, QuantizationScheme]:
    """The model as it is held in the asked format, with that format; text alone is served without an encoder."""
    architecture = with_state_dtype(with_dtype(architecture, settings.dtype), settings.mamba_ssm_cache_dtype)
    scheme = resolve_quantization(
        settings.quantization,
        architecture.native_quantization,
        is_moe=architecture.is_moe,
        dtype=architecture.dtype,
        spared=architecture.unquantized,
        file_share=architecture.file_share,
    )
    if settings.is_text_only(architecture):
        architecture = replace(architecture, vision_parameters=0)
    if not settings.splits_encoder:
        architecture = replace(architecture, vision_split=False)
    elif scheme.weight_bits < 16 and architecture.model_type == "mistral":
        # Mistral's own files keep the encoder whole; quantized ones are in Hugging Face's form, whose encoder vLLM
        # splits (Mistral-Small-3.1-24B w8a8: 12.11 GiB a GPU at TP 2).
        architecture = replace(architecture, vision_split=True)
    return architecture, scheme


def _budget(placed: Placement, kv_cache: KVCacheDtype) -> MemoryBudget:
    settings, layout, gpu, arch = placed.settings, placed.layout, placed.gpu, placed.arch
    override, max_model_len, in_flight = (
        settings.num_gpu_blocks_override, settings.max_model_len, max_in_flight_tokens(settings)
    )  # fmt: skip
    requested = math.ceil(settings.gpu_memory_utilization * gpu.memory_bytes)
    stages = [stage_of(placed, stage) for stage in range(settings.pipeline_parallel_size)]
    given = settings.kv_cache_memory_bytes
    if given is not None:
        requested = max(stage.held_bytes for stage in stages) + given
        _check_given(given, requested, placed)
    available = [stage.available(requested) if given is None else given for stage in stages]
    num_blocks = layout.num_blocks(available) if override is None else override
    # The stage with the fewest blocks, or, where no stage has any, the deepest in debt.
    limiting = min(range(len(stages)), key=lambda stage: available[stage] / max(1, layout.block_bytes(stage)))
    concurrency = layout.max_concurrency(num_blocks, max_model_len, in_flight)
    block_bytes = layout.block_bytes(limiting)
    of_stage = placed.parallelism.stage_layers(arch.num_hidden_layers, limiting)
    stage, unmeasured, tp = stages[limiting], placed.unmeasured, settings.tensor_parallel_size
    is_given = override is not None or given is not None
    low, high = (num_blocks, num_blocks) if is_given else _interval(layout, stages, available, unmeasured)
    host = kv_store(layout, arch, gpu, settings) or host_memory(layout, arch, gpu, settings)
    needed = layout.blocks_per_request(max_model_len, in_flight)  # blocks of one request, with the null block
    needed += 1 if NULL_BLOCK_BESIDE_ONE_REQUEST.holds_in(settings.vllm_version) else 0
    return MemoryBudget(
        model=arch.name,
        gpu=gpu.name,
        **{name: getattr(settings, name) for name in SETTINGS},
        dtype=arch.dtype,
        quantization=placed.scheme.name,
        gemm_dtype=placed.scheme.gemm_dtype_on(gpu),
        kv_cache_dtype=kv_cache.name,
        total_bytes=gpu.memory_bytes,
        requested_bytes=requested,
        **vars(stage),
        available_kv_bytes=available[limiting] if override is None else override * block_bytes,
        required_kv_bytes=needed * block_bytes,
        limiting_stage=limiting,
        num_gpu_blocks=num_blocks,
        num_gpu_blocks_low=low,
        num_gpu_blocks_high=high,
        unmeasured=unmeasured,
        block_size=layout.block_size,
        kv_cache_tokens=_kv_cache_tokens(placed, num_blocks, concurrency),
        max_concurrency=concurrency,
        kv_bytes_per_token=kv_bytes_per_token(arch, 1, kv_cache.name)
        + _drafted_kv_bytes(placed.drafter, 1, kv_cache.name),
        kv_bytes_per_token_per_gpu=-(
            -kv_bytes_per_token(arch, tp, kv_cache.name, of_stage) // settings.decode_context_parallel_size
        )
        + _drafted_kv_bytes(placed.drafter, tp, kv_cache.name),
        state_bytes_per_request=layout.state_bytes_per_request,
        layout=layout,
        assumptions=(
            *assumptions(placed, stage),
            *kv_cache.assumptions,
            *interval_assumptions(low, high, unmeasured, num_blocks if is_given else None, needed),
            *((host.link, *host.more_links) if host else ()),
        ),
        needs_block_per_sequence=layout.mamba_cache_mode is not None
        and settings.has_full_cuda_graphs
        and GRAPHS_NEED_A_BLOCK_PER_SEQUENCE.holds_in(settings.vllm_version),
        host=host,
    )


def _check_given(kv_bytes: int, requested: int, placed: Placement) -> None:
    """Raise DoesNotFitError for a KV cache that does not fit beside what else is held."""
    total = placed.gpu.memory_bytes
    if requested <= total:
        return
    held, most = requested - kv_bytes, total - requested + kv_bytes
    remedy = f"give at most {most // GIB}G" if most >= GIB else "take a larger --tensor-parallel-size or GPU"
    raise DoesNotFitError(
        f"kv_cache_memory_bytes is {kv_bytes / GIB:,.1f} GiB, and weights with activations take {held / GIB:,.1f} GiB "
        f"of the {total / GIB:,.1f} GiB of {placed.gpu.name}; {remedy}"
    )


def _interval(
    layout: KVLayout, stages: list[Stage], available: list[int], unmeasured: tuple[str, ...]
) -> tuple[int, int]:
    """Blocks at both ends, were every stage off to the same side."""
    off = [stage.half_width(unmeasured) for stage in stages]
    low = layout.num_blocks([left - half for left, half in zip(available, off, strict=True)])
    high = layout.num_blocks([left + half for left, half in zip(available, off, strict=True)])
    return low, high


def _kv_cache_tokens(placed: Placement, num_blocks: int, concurrency: float) -> int:
    """vLLM's "GPU KV cache size"."""
    if KV_CACHE_SIZE_BY_CONCURRENCY.holds_in(placed.settings.vllm_version):
        return int(concurrency * placed.settings.max_model_len)
    smallest = min(group.block_size or placed.layout.block_size for group in placed.layout.groups)
    return num_blocks // len(placed.layout.groups) * smallest
