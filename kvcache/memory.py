"""How many KV blocks a vLLM replica ends up with."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from kvcache.architecture import Architecture
from kvcache.dtype import with_dtype
from kvcache.engine_defaults import EngineDefaults, engine_defaults
from kvcache.errors import DoesNotFitError
from kvcache.gpu import GPU
from kvcache.kv_layout import KVLayout, has_unequal_blocks, kv_bytes_per_token, kv_layout
from kvcache.memory_interval import CONDITIONS, LEVEL, Terms, shipped_residuals, unmeasured_conditions
from kvcache.memory_terms import (
    FIT_SOURCE,
    GIB,
    V2_RUNNER_SOURCE,
    activation_peak_bytes,
    buffers_bytes,
    cuda_graph_bytes,
    non_torch_bytes,
    parse_version,
    uses_v2_runner,
)
from kvcache.parallelism import Parallelism
from kvcache.parameters import stage_tensors
from kvcache.quantization import (
    QuantizationScheme,
    find_quantization,
    refuse_absent,
    resolve_quantization,
    weight_bytes,
)

__all__ = ["EngineDefaults", "MemoryBudget", "engine_defaults", "memory_budget", "remedies", "require_fit"]

Remedy = dict[str, str]  # options with the values that together make a model fit

LARGER_SIZES = (2, 4, 8, 16, 32, 64)
LARGEST = 10**12  # of any setting: beyond it a slip of the finger, and figures no longer exact in a double
NEWEST_RELEASE = (0, 32, 0)  # whose rules are known
STATE_SOURCE = "vLLM 0.32 models/config.py (MambaModelConfig): align with prefix caching, else none"


@dataclass(frozen=True, kw_only=True)
class MemoryBudget:
    """Where one replica's memory goes.

    `*_bytes` are per GPU, on the pipeline stage that limits the pool; blocks, tokens, concurrency are per replica, or
    per attention replica where `data_parallel_size` is above 1.
    `kv_bytes_per_token` is the model's, however it is split; `kv_bytes_per_token_per_gpu` is what one rank stores, as
    `state_bytes_per_request` is.
    """

    model: str
    gpu: str
    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    enable_expert_parallel: bool
    dtype: str  # of what is not packed
    quantization: str
    gemm_dtype: str
    kv_cache_dtype: str
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

    @property
    def tp(self) -> int:
        """Tensor-parallel size."""
        return self.tensor_parallel_size

    @property
    def pp(self) -> int:
        """Pipeline-parallel size."""
        return self.pipeline_parallel_size

    @property
    def fits(self) -> bool:
        """Whether vLLM would start: weights fit, with room for one request of `max_model_len`."""
        return self.missing_bytes == 0

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
        """What each GPU lacks to start; 0 where it starts."""
        return max(0, self.required_kv_bytes - self.available_kv_bytes)

    @property
    def spare_bytes(self) -> int:
        """What each GPU has beyond what starting takes; 0 where it does not start."""
        return max(0, self.available_kv_bytes - self.required_kv_bytes)


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """The settings of one budget, resolved."""

    arch: Architecture
    gpu: GPU
    parallelism: Parallelism
    scheme: QuantizationScheme
    layout: KVLayout
    utilization: float
    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    enforce_eager: bool
    version: tuple[int, int, int]

    @property
    def max_in_flight_tokens(self) -> int:
        """Tokens scheduled, not yet settled: a batch per pipeline stage with one more under asynchronous scheduling.

        vLLM 0.32 `VllmConfig.max_in_flight_tokens` with the V2 model runner. 0.19 counted one batch; the release in
        between that changed it is taken to be 0.24.
        """
        batches = self.parallelism.pipeline_parallel_size + 1 if self.version >= (0, 24, 0) else 1
        return self.max_num_batched_tokens * batches


@dataclass(frozen=True, kw_only=True)
class _Stage:
    """One rank of a pipeline stage."""

    weights: int
    activation: int
    non_torch: int
    cuda_graph: int

    def available(self, requested: int) -> int:
        return requested - self.weights - self.activation - self.non_torch - self.cuda_graph

    def half_width(self, unmeasured: tuple[str, ...]) -> int:
        """Half of the 90 % interval of `available`."""
        terms = Terms(
            weights_bytes=self.weights,
            activation_peak_bytes=self.activation,
            non_torch_bytes=self.non_torch,
            cuda_graph_bytes=self.cuda_graph,
        )
        return math.ceil(shipped_residuals().half_width_bytes(terms, unmeasured))


def memory_budget(
    architecture: Architecture,
    gpu: GPU,
    *,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    data_parallel_size: int = 1,
    enable_expert_parallel: bool = False,
    dtype: str = "auto",
    quantization: str | None = None,
    kv_cache_dtype: str = "auto",
    gpu_memory_utilization: float | None = None,
    max_model_len: int | None = None,
    max_num_batched_tokens: int | None = None,
    max_num_seqs: int | None = None,
    block_size: int | None = None,
    enable_prefix_caching: bool = True,
    enforce_eager: bool = False,
    vllm_version: str = "0.32.0",
    num_gpu_blocks_override: int | None = None,
) -> MemoryBudget:
    """What vLLM of that version would log at start.

    None stands for vLLM's own default: the checkpoint's quantization, the model's length limit, the attention kernels'
    block size, `engine_defaults`.
    Returns a budget even where nothing fits (see `fits`); raises `ValueError` where vLLM refuses the settings.
    """
    length = _positive("max_model_len", max_model_len, architecture.max_position_embeddings)
    defaults = engine_defaults(gpu, vllm_version, length)
    architecture = with_dtype(architecture, dtype)
    scheme = resolve_quantization(
        quantization,
        architecture.native_quantization,
        is_moe=architecture.is_moe,
        dtype=architecture.dtype,
        spared=architecture.unquantized,
    )
    refuse_absent(scheme, parse_version(vllm_version))
    if scheme.weight_bits < 16 and architecture.model_type == "mistral":
        # Mistral's own files keep the encoder whole; quantized ones are in Hugging Face's form, whose encoder vLLM
        # splits (Mistral-Small-3.1-24B w8a8: 12.11 GiB a GPU at TP 2).
        architecture = replace(architecture, vision_split=True)
    width, hidden = scheme.expert_padding_on(gpu)
    parallelism = Parallelism(
        tensor_parallel_size=tensor_parallel_size,
        pipeline_parallel_size=pipeline_parallel_size,
        data_parallel_size=data_parallel_size,
        enable_expert_parallel=enable_expert_parallel,
        pad_expert_width_to=width,
        pad_expert_hidden_to=hidden,
    )
    layout = kv_layout(
        architecture,
        tensor_parallel_size=tensor_parallel_size,
        pipeline_parallel_size=pipeline_parallel_size,
        kv_cache_dtype=kv_cache_dtype,
        block_size=block_size,
        enable_prefix_caching=enable_prefix_caching,
        gpu=gpu,
    )
    plan = _Plan(
        arch=architecture,
        gpu=gpu,
        parallelism=parallelism,
        scheme=scheme,
        layout=layout,
        utilization=_utilization(gpu_memory_utilization, defaults),
        max_num_batched_tokens=_positive(
            "max_num_batched_tokens", max_num_batched_tokens, defaults.max_num_batched_tokens
        ),
        max_num_seqs=_max_num_seqs(max_num_seqs, max_num_batched_tokens, defaults),
        max_model_len=length,
        enforce_eager=enforce_eager,
        version=parse_version(vllm_version),
    )
    return _budget(plan, kv_cache_dtype, vllm_version, num_gpu_blocks_override)


def _budget(plan: _Plan, kv_cache_dtype: str, vllm_version: str, override: int | None) -> MemoryBudget:
    requested = math.ceil(plan.utilization * plan.gpu.memory_bytes)
    stages = [_stage(plan, stage) for stage in range(plan.parallelism.pipeline_parallel_size)]
    available = [stage.available(requested) for stage in stages]
    layout, per_request = plan.layout, plan.layout.blocks_per_request(plan.max_model_len, plan.max_in_flight_tokens)
    num_blocks = layout.num_blocks(available) if override is None else _positive("num_gpu_blocks_override", override, 0)
    # The stage with the fewest blocks, or, where no stage has any, the deepest in debt.
    limiting = min(range(len(stages)), key=lambda stage: available[stage] / max(1, layout.block_bytes(stage)))
    concurrency = layout.max_concurrency(num_blocks, plan.max_model_len, plan.max_in_flight_tokens)
    block_bytes = layout.block_bytes(limiting)
    stage, unmeasured = stages[limiting], _unmeasured(plan)
    low, high = (num_blocks, num_blocks) if override is not None else _interval(layout, stages, available, unmeasured)
    needed = per_request + (1 if plan.version >= (0, 21, 0) else 0)  # blocks of one request, with the null block
    return MemoryBudget(
        model=plan.arch.name,
        gpu=plan.gpu.name,
        tensor_parallel_size=plan.parallelism.tensor_parallel_size,
        data_parallel_size=plan.parallelism.data_parallel_size,
        enable_expert_parallel=plan.parallelism.enable_expert_parallel,
        pipeline_parallel_size=plan.parallelism.pipeline_parallel_size,
        dtype=plan.arch.dtype,
        quantization=plan.scheme.name,
        gemm_dtype=plan.scheme.gemm_dtype_on(plan.gpu),
        kv_cache_dtype=kv_cache_dtype,
        gpu_memory_utilization=plan.utilization,
        max_model_len=plan.max_model_len,
        max_num_batched_tokens=plan.max_num_batched_tokens,
        max_num_seqs=plan.max_num_seqs,
        vllm_version=vllm_version,
        total_bytes=plan.gpu.memory_bytes,
        requested_bytes=requested,
        weights_bytes=stage.weights,
        activation_peak_bytes=stage.activation,
        non_torch_bytes=stage.non_torch,
        cuda_graph_bytes=stage.cuda_graph,
        available_kv_bytes=available[limiting] if override is None else override * block_bytes,
        required_kv_bytes=needed * block_bytes,
        num_gpu_blocks=num_blocks,
        num_gpu_blocks_low=low,
        num_gpu_blocks_high=high,
        unmeasured=unmeasured,
        block_size=layout.block_size,
        kv_cache_tokens=_kv_cache_tokens(plan, num_blocks, concurrency),
        max_concurrency=concurrency,
        kv_bytes_per_token=kv_bytes_per_token(plan.arch, 1, kv_cache_dtype),
        kv_bytes_per_token_per_gpu=layout.bytes_per_token,
        state_bytes_per_request=layout.state_bytes_per_request,
        layout=layout,
        assumptions=_assumptions(plan, stage) + _interval_assumptions(low, high, unmeasured, override, needed),
    )


def _unmeasured(plan: _Plan) -> tuple[str, ...]:
    return unmeasured_conditions(
        plan.arch,
        plan.gpu,
        plan.parallelism,
        plan.scheme,
        version=plan.version,
        max_num_batched_tokens=plan.max_num_batched_tokens,
        max_num_seqs=plan.max_num_seqs,
    )


def _interval(
    layout: KVLayout, stages: list[_Stage], available: list[int], unmeasured: tuple[str, ...]
) -> tuple[int, int]:
    """Blocks at both ends, were every stage off to the same side."""
    off = [stage.half_width(unmeasured) for stage in stages]
    low = layout.num_blocks([left - half for left, half in zip(available, off, strict=True)])
    high = layout.num_blocks([left + half for left, half in zip(available, off, strict=True)])
    return low, high


def _interval_assumptions(
    low: int, high: int, unmeasured: tuple[str, ...], override: int | None, needed: int
) -> tuple[tuple[str, str, str], ...]:
    if override is not None:
        return ()
    beyond = "; ".join(CONDITIONS[condition] for condition in unmeasured)
    source = f"widened beyond what was measured: {beyond}" if beyond else shipped_residuals().measured.source
    rows = [(f"KV blocks, {LEVEL:.0%} interval", f"{low:,}–{high:,}", source)]
    if low < needed <= high:
        rows.append(("whether vLLM starts", "uncertain", f"one request of max_model_len takes {needed:,} blocks"))
    return tuple(rows)


def _stage(plan: _Plan, stage: int) -> _Stage:
    arch, parallelism = plan.arch, plan.parallelism
    num_layers = len(parallelism.stage_layers(arch.num_hidden_layers, stage))
    attention_layers = sum(map(arch.has_attention, parallelism.stage_layers(arch.num_hidden_layers, stage)))
    tensors = stage_tensors(arch, parallelism, stage)
    return _Stage(
        weights=weight_bytes(plan.scheme, tensors, arch.dtype) + buffers_bytes(arch, parallelism, attention_layers),
        activation=activation_peak_bytes(
            arch,
            parallelism,
            max_num_batched_tokens=plan.max_num_batched_tokens,
            max_num_seqs=plan.max_num_seqs,
            samples=stage == parallelism.pipeline_parallel_size - 1,
            version=plan.version,
            eight_bit=plan.scheme.gemm_dtype_on(plan.gpu) in ("int8", "fp8"),
        ),
        non_torch=non_torch_bytes(parallelism, plan.version, plan.gpu),
        cuda_graph=cuda_graph_bytes(
            arch,
            plan.gpu,
            parallelism,
            num_layers=num_layers,
            max_num_seqs=plan.max_num_seqs,
            enforce_eager=plan.enforce_eager,
            version=plan.version,
        ),
    )


def _kv_cache_tokens(plan: _Plan, num_blocks: int, concurrency: float) -> int:
    # vLLM's "GPU KV cache size": until 0.20 by block table, then by concurrency (get_kv_cache_capacity).
    if plan.version >= (0, 21, 0):
        return int(concurrency * plan.max_model_len)
    smallest = min(group.block_size or plan.layout.block_size for group in plan.layout.groups)
    return num_blocks // len(plan.layout.groups) * smallest


def _assumptions(plan: _Plan, stage: _Stage) -> tuple[tuple[str, str, str], ...]:
    gib = {key: f"{value / GIB:.2f} GiB" for key, value in vars(stage).items()}
    rows = [
        ("total memory", f"{plan.gpu.memory_bytes / GIB:.2f} GiB", plan.gpu.source["memory_bytes"]),
        ("weights", gib["weights"], f"counted tensor by tensor; format {plan.scheme.name}: {plan.scheme.source}"),
        ("activation peak", gib["activation"], _profile_source(plan)),
        ("non-torch", gib["non_torch"], FIT_SOURCE),
        ("CUDA graphs", gib["cuda_graph"], FIT_SOURCE if stage.cuda_graph else "not set aside by this version or mode"),
    ]
    ranks = max(plan.parallelism.tensor_parallel_size, plan.parallelism.pipeline_parallel_size)
    if ranks > 4:
        rows.append(("non-torch beyond 4 ranks", gib["non_torch"], "a guess: the logs end at TP 4"))
    if "gpu" in _unmeasured(plan):
        rows.append(("overheads off H100", "as on H100 80GB", "no start-up log of this GPU was in the fit"))
    rows += _format_assumptions(plan)
    if plan.layout.mamba_cache_mode is not None:
        rows.append(("state cache", _state_cache(plan), STATE_SOURCE))
    if plan.version > NEWEST_RELEASE:
        given, known = (".".join(map(str, version)) for version in (plan.version, NEWEST_RELEASE))
        rows.append(
            ("vLLM release", known, f"{given} is newer than any that was looked at: the rules of {known} apply")
        )
    if plan.version < (0, 32, 0) and has_unequal_blocks(plan.layout.groups):
        rows.append(("KV-cache layout", "as in vLLM 0.32", "earlier releases may cut up such caches otherwise"))
    limit = plan.arch.max_position_embeddings
    if plan.max_model_len > limit:
        rows.append(("max_model_len", f"{plan.max_model_len} > {limit}", "vLLM starts this only with --hf-overrides"))
    return (*rows, *plan.arch.assumptions)


def _format_assumptions(plan: _Plan) -> Iterator[tuple[str, str, str]]:
    scheme = plan.scheme
    if scheme.asked_as is not None:
        why = "the checkpoint's own format of that kind" if scheme.is_native else "the usual format of that name"
        yield ("weight format", f"{scheme.asked_as}: {scheme.name}", why)
    stages = range(plan.parallelism.pipeline_parallel_size)
    tensors = (tensor for stage in stages for tensor in stage_tensors(plan.arch, plan.parallelism, stage))
    cut = next((tensor for tensor in tensors if scheme.cuts_groups(tensor)), None)
    if cut is not None:
        why = f"one rank's {cut.component} matrix has {cut.cols:,} inputs; vLLM refuses files that are not widened"
        yield (f"{scheme.name} groups", f"matrices widened to whole groups of {scheme.group_size}", why)


def _profile_source(plan: _Plan) -> str:
    return V2_RUNNER_SOURCE if uses_v2_runner(plan.arch, plan.version) else FIT_SOURCE


def _state_cache(plan: _Plan) -> str:
    states = max(group.states_per_request for group in plan.layout.groups)
    return f"mode {plan.layout.mamba_cache_mode}: at most {states} per request and layer"


def _utilization(given: float | None, defaults: EngineDefaults) -> float:
    value = defaults.gpu_memory_utilization if given is None else given
    if not 0 < value <= 1:
        raise ValueError(f"gpu_memory_utilization is {value}, must lie in (0, 1]")
    return value


def _max_num_seqs(given: int | None, max_num_batched_tokens: int | None, defaults: EngineDefaults) -> int:
    """vLLM lowers its default to the token budget, refuses a larger one (engine/arg_utils.py, config/scheduler.py)."""
    budget = defaults.max_num_batched_tokens if max_num_batched_tokens is None else max_num_batched_tokens
    value = _positive("max_num_seqs", given, min(defaults.max_num_seqs, budget))
    if value > budget:
        raise ValueError(f"max_num_seqs is {value}, above max_num_batched_tokens {budget}; lower it or raise that")
    return value


def _positive(name: str, given: int | None, default: int) -> int:
    value = default if given is None else given
    if not 1 <= value <= LARGEST:
        raise ValueError(f"{name} is {value}, must be at least 1, at most {LARGEST:,}")
    return value


def require_fit(architecture: Architecture, gpu: GPU, **settings: Any) -> MemoryBudget:
    """The budget of `memory_budget`, or `DoesNotFitError` with what is missing and the smallest change that helps."""
    budget = memory_budget(architecture, gpu, **settings)
    if budget.fits:
        return budget
    if settings.get("num_gpu_blocks_override") is not None:
        needed = _blocks_of_a_request(budget)
        raise DoesNotFitError(
            f"{budget.num_gpu_blocks} KV blocks of {budget.block_size} tokens do not hold one request of max_model_len "
            f"{budget.max_model_len}; raise --num-gpu-blocks-override to {needed} or lower --max-model-len"
        )
    raise DoesNotFitError(
        f"{budget.model} does not fit on {budget.tp * budget.pp} × {gpu.name} (TP {budget.tp}, PP {budget.pp}, "
        f"{budget.quantization}, max_model_len {budget.max_model_len}): {budget.missing_bytes / GIB:.1f} GiB short "
        f"per GPU; {_advice(remedies(architecture, gpu, budget, settings))}"
    )


def _blocks_of_a_request(budget: MemoryBudget) -> int:
    """KV blocks that one request of `max_model_len` needs, where their number is given."""
    return budget.required_kv_bytes * budget.num_gpu_blocks // max(budget.available_kv_bytes, 1)


def _advice(found: list[Remedy]) -> str:
    words = [" ".join(f"{option} {value}" for option, value in remedy.items()) for remedy in found]
    return f"fits with {' or '.join(words)}" if words else "no TP up to 64 nor 8 or 4 bits help; take a larger GPU"


def remedies(arch: Architecture, gpu: GPU, budget: MemoryBudget, settings: dict[str, Any]) -> list[Remedy]:
    """Single changes with which a budget that does not fit would, else the smallest TP that fits a shorter context."""
    if settings.get("num_gpu_blocks_override") is not None:
        return [{"--num-gpu-blocks-override": str(_blocks_of_a_request(budget))}]
    found: list[Remedy] = []
    tp = next(
        (size for size in LARGER_SIZES if size > budget.tp and _fits(arch, gpu, settings, tensor_parallel_size=size)),
        None,
    )
    if tp is not None:
        found.append({"--tensor-parallel-size": str(tp)})
    for name in ("fp8", "awq"):
        fewer_bits = find_quantization(name).weight_bits < find_quantization(budget.quantization).weight_bits
        if fewer_bits and _fits(arch, gpu, settings, quantization=name):
            found.append({"--quantization": name})
            break
    if budget.kv_cache_dtype == "auto" and _fits(arch, gpu, settings, kv_cache_dtype="fp8"):
        found.append({"--kv-cache-dtype": "fp8"})
    for name in ("gpu_memory_utilization", "max_num_batched_tokens", "max_num_seqs"):
        if settings.get(name) is not None and _fits(arch, gpu, settings, **{name: None}):
            default = getattr(memory_budget(arch, gpu, **{**settings, name: None}), name)
            found.append({f"--{name.replace('_', '-')}": str(default)})  # vLLM's own
    length = _longest_fit(arch, gpu, budget, settings)
    if length:
        found.append({"--max-model-len": str(length)})
    return found or _shorter_on_more(arch, gpu, budget, settings)


def _shorter_on_more(arch: Architecture, gpu: GPU, budget: MemoryBudget, settings: dict[str, Any]) -> list[Remedy]:
    for size in LARGER_SIZES:
        length = _longest_fit(arch, gpu, budget, {**settings, "tensor_parallel_size": size})
        if size > budget.tp and length:
            return [{"--tensor-parallel-size": str(size), "--max-model-len": str(length)}]
    return []


def _fits(arch: Architecture, gpu: GPU, settings: dict[str, Any], **change: Any) -> bool:
    try:
        return memory_budget(arch, gpu, **{**settings, **change}).fits
    except ValueError:  # a split that vLLM refuses is no remedy
        return False


def _longest_fit(arch: Architecture, gpu: GPU, budget: MemoryBudget, settings: dict[str, Any]) -> int:
    """The longest `max_model_len` that starts, down to a kilotoken; 0 where none of 1,024 tokens does."""
    low, high = 0, budget.max_model_len // 1024
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _fits(arch, gpu, settings, max_model_len=middle * 1024) else (low, middle - 1)
    return low * 1024
