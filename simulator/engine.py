"""The engine settings of one replica, under vLLM's names."""

from dataclasses import dataclass, replace

from kvcache.memory_terms import parse_version

MAX_STEP = 2**20  # tokens or sequences of one step: step times are tables of that length
SCHEDULING_POLICIES = ("fcfs", "priority")
MAX_PLANS_IN_FLIGHT = 2  # vLLM's batch queue under asynchronous scheduling: one step runs, the next is decided


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """What the scheduler of one replica knows; defaults that depend on the GPU are filled in by the caller.

    Raises ValueError for a value that vLLM would refuse.
    """

    num_gpu_blocks: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int = 16
    enable_prefix_caching: bool = True
    async_scheduling: bool = True
    scheduling_policy: str = "fcfs"
    long_prefill_token_threshold: int = 0  # 0: none
    enable_chunked_prefill: bool = True
    scheduler_reserve_full_isl: bool = True  # admit a request only if its whole sequence fits
    threshold_spares_lone_request: bool = True  # this rule with the next: a release's, see `with_release_rules`
    skipped_victim_shifts_scan: bool = True
    watermark: float = 0.0  # share of the blocks kept free when a request is admitted beside others

    def __post_init__(self) -> None:
        for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("max_num_seqs", "max_num_batched_tokens"):
            if getattr(self, name) > MAX_STEP:
                raise ValueError(f"{name} is {getattr(self, name):,}; at most {MAX_STEP:,} can be simulated")
        if self.num_gpu_blocks < 2:
            raise ValueError(
                f"num_gpu_blocks is {self.num_gpu_blocks}; vLLM keeps one null block, so at least 2 are needed"
            )

        if self.scheduling_policy not in SCHEDULING_POLICIES:
            known = ", ".join(SCHEDULING_POLICIES)
            raise ValueError(f"no scheduling policy '{self.scheduling_policy}'; there are {known}")
        if self.long_prefill_token_threshold < 0 or self.long_prefill_token_threshold > self.max_model_len:
            raise ValueError(
                f"long_prefill_token_threshold is {self.long_prefill_token_threshold}; "
                f"it must lie between 0 (none) and max_model_len, {self.max_model_len}"
            )
        if not 0 <= self.watermark < 1:
            raise ValueError(f"watermark is {self.watermark}; it must be a share of the blocks, from 0 to below 1")
        if not self.enable_chunked_prefill and self.max_num_batched_tokens < self.max_model_len:
            raise ValueError(
                f"without chunked prefill max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least "
                f"max_model_len ({self.max_model_len}); raise it or lower --max-model-len"
            )

    @property
    def watermark_blocks(self) -> int:
        return int(self.watermark * self.num_gpu_blocks)

    @property
    def plans_in_flight(self) -> int:
        """How many steps may be decided and not yet complete."""
        return MAX_PLANS_IN_FLIGHT if self.async_scheduling else 1


def with_release_rules(engine: EngineConfig, vllm_version: str) -> EngineConfig:
    """The settings under a release's own rules, where releases decide differently.

    `threshold_spares_lone_request`: since 0.31 `long_prefill_token_threshold` does not hold back a request that is
    alone. `skipped_victim_shifts_scan`: before 0.28 the scan of running requests passes over one more request where
    the priority policy preempts one that had its turn without being scheduled (vllm/v1/core/sched/scheduler.py,
    `schedule`).
    """
    release = parse_version(vllm_version)
    return replace(
        engine,
        threshold_spares_lone_request=release >= (0, 31, 0),
        skipped_victim_shifts_scan=release >= (0, 28, 0),
    )


RELEASE_RULES = ("threshold_spares_lone_request", "skipped_victim_shifts_scan")
"""Settings that no user chooses."""


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """vLLM's engine arguments; None stands for vLLM's default on that GPU."""

    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    block_size: int = 16
    enforce_eager: bool = False
    enable_prefix_caching: bool = True
    async_scheduling: bool = True
    scheduling_policy: str = "fcfs"
    long_prefill_token_threshold: int = 0
    enable_chunked_prefill: bool = True
    num_gpu_blocks_override: int | None = None
    vllm_version: str = "0.32.0"
    latency_model: str = "physical"
    step_s: float | None = None  # of the constant latency model

    def __post_init__(self) -> None:
        if self.block_size not in (1, 8) and (self.block_size < 1 or self.block_size % 16):
            raise ValueError(f"block_size is {self.block_size}; vLLM takes a multiple of 16, such as 16, 32 or 64")

    def memory_settings(self, tensor_parallel_size: int) -> dict[str, object]:
        """Those that decide memory, as `kvcache.memory.memory_budget` takes them."""
        names = (
            "quantization", "kv_cache_dtype", "gpu_memory_utilization", "max_model_len", "max_num_batched_tokens",
            "max_num_seqs", "block_size", "enforce_eager", "vllm_version", "num_gpu_blocks_override",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names} | {"tensor_parallel_size": tensor_parallel_size}

    def latency_settings(self) -> dict[str, float]:
        """What the latency model takes beside the deployment. Raises ValueError where it takes nothing."""
        if self.step_s is None:
            return {}
        if self.latency_model != "constant":
            raise ValueError("--step-s belongs to --latency-model constant; give both or neither")
        return {"step_s": self.step_s}
