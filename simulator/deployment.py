"""A model on GPUs under vLLM, ready to be simulated."""

from dataclasses import dataclass, replace

from kvcache.errors import DoesNotFitError, SplitError
from kvcache.gpus.gpu import GPU
from kvcache.layout.kv_layout import has_unequal_blocks
from kvcache.memory.budget import MemoryBudget
from kvcache.memory.remedies import require_fit
from kvcache.shape.architecture import Architecture, with_dtype
from simulator.engines.vllm.engine import EngineConfig, EngineOptions, with_release_rules
from simulator.fleet.fleet import Fleet
from simulator.latency.forms import latency_model
from simulator.latency.model import Deployment, LatencyModel

MAX_TENSOR_PARALLEL_SIZE = 8  # GPUs of one node: TP across nodes is not modelled
Assumption = tuple[str, str, str]  # name, value, source
NO_CACHING: Assumption = (
    "prefix caching",
    "off",
    "not simulated for models with states or with blocks of unequal size; with it vLLM serves as many users or more",
)


@dataclass(frozen=True, kw_only=True)
class ReplicaPlan:
    """One replica: what it serves on what, its memory, its scheduler's settings, its step times."""

    deployment: Deployment
    budget: MemoryBudget
    engine: EngineConfig
    latency: LatencyModel

    @property
    def architecture(self) -> Architecture:
        """In the dtype that it is served in."""
        return self.deployment.architecture

    @property
    def gpu(self) -> GPU:
        return self.deployment.gpu

    @property
    def tensor_parallel_size(self) -> int:
        return self.deployment.tensor_parallel_size

    @property
    def data_parallel_size(self) -> int:
        return self.deployment.data_parallel_size

    def fleet(self, num_replicas: int, router: str) -> Fleet:
        """A mixture's ranks keep step with each other; a dense model's share nothing, so each is a replica."""
        ranks = self.data_parallel_size
        together = ranks if self.architecture.is_moe else 1
        return Fleet(
            engine=self.engine,
            step_times=self.latency.step_times,
            num_replicas=num_replicas * ranks // together,
            data_parallel_size=together,
            router=router,
        )

    @property
    def gpus(self) -> int:
        """Of one replica."""
        return self.tensor_parallel_size * self.data_parallel_size

    @property
    def settings(self) -> dict[str, str | int | float]:
        """vLLM's arguments that decide the answer, given or assumed."""
        names = (
            "vllm_version", "quantization", "kv_cache_dtype", "gpu_memory_utilization", "max_model_len",
            "max_num_batched_tokens", "max_num_seqs",
        )  # fmt: skip
        return {name: getattr(self.budget, name) for name in names} | {"async_scheduling": self.engine.async_scheduling}

    @property
    def not_simulated(self) -> tuple[Assumption, ...]:
        """What vLLM would do by default and the simulation leaves out."""
        return () if self.engine.enable_prefix_caching or not self.engine.has_unequal_blocks else (NO_CACHING,)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        return (*self.budget.assumptions, *self.not_simulated, *self.latency.assumptions)


def plan_replica(
    architecture: Architecture, gpu: GPU, options: EngineOptions, *, tensor_parallel_size: int
) -> ReplicaPlan:
    """Raises DoesNotFitError where vLLM would not start, with the smallest change that lets it."""
    budget = require_fit(architecture, gpu, **options.memory_settings(tensor_parallel_size))
    engine = EngineConfig(
        num_gpu_blocks=max(budget.num_gpu_blocks, 2),
        max_model_len=budget.max_model_len,
        max_num_seqs=budget.max_num_seqs,
        max_num_batched_tokens=budget.max_num_batched_tokens,
        block_size=budget.block_size,
        enable_prefix_caching=options.enable_prefix_caching and not has_unequal_blocks(budget.layout.groups),
        async_scheduling=options.is_asynchronous,
        scheduling_policy=options.scheduling_policy,
        long_prefill_token_threshold=options.long_prefill_token_threshold,
        enable_chunked_prefill=options.enable_chunked_prefill,
        scheduler_reserve_full_isl=options.scheduler_reserve_full_isl,
        watermark=options.watermark,
        kv_groups=budget.layout.groups,
        prefix_cache_retention_interval=options.retention_interval,
        speculation=options.speculation,
    )
    engine = with_release_rules(engine, options.vllm_version)
    deployment = Deployment(
        architecture=with_dtype(architecture, options.dtype),
        gpu=gpu,
        tensor_parallel_size=tensor_parallel_size,
        data_parallel_size=options.data_parallel_size,
        enable_expert_parallel=options.enable_expert_parallel,
        quantization=options.quantization,
        kv_cache_dtype=budget.kv_cache_dtype,
        max_num_batched_tokens=budget.max_num_batched_tokens,
        max_num_seqs=budget.max_num_seqs,
        block_size=budget.block_size,
        enforce_eager=options.enforce_eager,
        async_scheduling=options.is_asynchronous,
        vllm_version=options.vllm_version,
    )
    latency = latency_model(deployment, form=options.latency_model, **options.latency_settings())
    latency = replace(latency, step_times=replace(latency.step_times, cold_start_s=options.cold_start_s))
    return ReplicaPlan(deployment=deployment, budget=budget, engine=engine, latency=latency)


def feasible_tensor_parallel_sizes(
    architecture: Architecture, gpu: GPU, options: EngineOptions, *, num_gpus: int
) -> dict[int, ReplicaPlan | str]:
    """Every TP that divides the GPU count, with its plan, or with why it cannot run."""
    ranks = options.data_parallel_size
    if num_gpus % ranks:
        return {1: f"{num_gpus} GPUs are no multiple of --data-parallel-size {ranks}"}
    most = min(num_gpus // ranks, MAX_TENSOR_PARALLEL_SIZE)
    sizes = [size for size in range(1, most + 1) if num_gpus // ranks % size == 0]
    found: dict[int, ReplicaPlan | str] = {}
    for size in sizes:
        if architecture.num_attention_heads % size:
            continue  # vLLM refuses it, and nobody asks for it
        try:
            found[size] = plan_replica(architecture, gpu, options, tensor_parallel_size=size)
        except (DoesNotFitError, SplitError) as error:
            found[size] = str(error)
    return found
