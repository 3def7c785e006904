"""The engine settings of one replica, under vLLM's names."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kvcache.layout.kv_layout import KVGroup, has_unequal_blocks
from kvcache.releases import (
    ASYNC_SCHEDULING,
    ASYNC_SCHEDULING_WITH_DRAFT_MODEL,
    DEFAULT_RELEASE,
    NO_RETENTION_INTERVAL,
    SCHEDULER_RULES,
    check_simulated,
)
from simulator.latency.profile import read_profile

MAX_STEP = 2**20  # tokens or sequences of one step: step times are tables of that length
SCHEDULING_POLICIES = ("fcfs", "priority")
SPECULATIVE_METHODS = ("eagle", "draft_model", "ngram")
MAX_SPECULATIVE_TOKENS = 64


@dataclass(frozen=True, kw_only=True)
class Speculation:
    """Speculative decoding: `num_speculative_tokens` drafts per step, each accepted while those before it were.

    "eagle" stands for EAGLE, EAGLE-3 and MTP with one module. Raises ValueError for a value out of range.
    """

    method: str
    num_speculative_tokens: int
    acceptance_rate: float  # of a draft token, given that those before it were accepted

    def __post_init__(self) -> None:
        if self.method not in SPECULATIVE_METHODS:
            known = ", ".join(SPECULATIVE_METHODS)
            raise ValueError(f"no speculative method '{self.method}' can be simulated; there are {known}")
        if not 1 <= self.num_speculative_tokens <= MAX_SPECULATIVE_TOKENS:
            raise ValueError(
                f"num_speculative_tokens is {self.num_speculative_tokens}; "
                f"it must lie between 1 and {MAX_SPECULATIVE_TOKENS}"
            )
        if not 0 <= self.acceptance_rate <= 1:
            raise ValueError(f"acceptance_rate is {self.acceptance_rate}; it is a share, from 0 to 1")

    @property
    def num_lookahead_tokens(self) -> int:
        """Slots past a step's own tokens that the drafter writes to (vLLM `num_lookahead_tokens`)."""
        return 0 if self.method == "ngram" else self.num_speculative_tokens

    @property
    def draft_slots(self) -> int:
        """What each sequence takes of the token budget beside its tokens (`max_num_new_slots_for_drafting`)."""
        return 1 if self.method == "draft_model" else 0


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
    watermark: float = 0.0  # share of the blocks kept free when a request is admitted beside others
    kv_groups: tuple[KVGroup, ...] = (KVGroup(None),)  # layers that share a block table; all draw on one pool
    prefix_cache_retention_interval: int | None = 0  # tokens between a window's cached tails; None: all, 0: at the end
    pipeline_parallel_size: int = 1
    speculation: Speculation | None = None
    threshold_spares_lone_request: bool = True  # from here on a release's rules, see `with_release_rules`
    skipped_victim_shifts_scan: bool = True
    drafts_share_token_budget: bool = True
    prefix_hit_joins_drafting: bool = True
    passed_over_keep_place: bool = True

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
                f"long_prefill_token_threshold is {self.long_prefill_token_threshold:,}; "
                f"it must lie between 0 (none) and max_model_len, {self.max_model_len:,}"
            )
        if not 0 <= self.watermark < 1:
            raise ValueError(f"watermark is {self.watermark}; it must be a share of the blocks, from 0 to below 1")
        self._check_groups()
        self._check_speculation()
        if self.pipeline_parallel_size < 1:
            raise ValueError(f"pipeline_parallel_size is {self.pipeline_parallel_size}; it must be at least 1")
        budget = self.token_budget - self.draft_slots
        if not self.enable_chunked_prefill and budget < self.max_model_len:
            drafting = f", less drafting slots {budget:,}," if budget < self.max_num_batched_tokens else ""
            raise ValueError(
                f"without chunked prefill max_num_batched_tokens ({self.max_num_batched_tokens:,}{drafting}) must be "
                f"at least max_model_len ({self.max_model_len:,}); raise it or lower --max-model-len"
            )

    def _check_groups(self) -> None:
        if not self.kv_groups or any(group.window is not None and group.window < 2 for group in self.kv_groups):
            raise ValueError("a KV-cache group attends to everything or to a window of at least 2 tokens")
        attention = [group for group in self.kv_groups if not group.is_state]
        if len(attention) > 1 and all(group.window is None for group in attention):
            raise ValueError("layers that all attend to everything form one KV-cache group, as in vLLM")
        if any(size % self.block_size for size in self.group_block_sizes):
            raise ValueError(f"a KV-cache group's block size must be a multiple of the smallest, {self.block_size}")
        if self.has_unequal_blocks and self.enable_prefix_caching:
            raise ValueError(
                "prefix caching is not simulated for models with states or with blocks of unequal size; "
                "give --no-enable-prefix-caching"
            )
        interval = self.prefix_cache_retention_interval or 0
        if interval < 0 or interval % self.block_size:
            raise ValueError(
                f"prefix_cache_retention_interval is {interval:,}; it must be 0 or a multiple of the block size, "
                f"{self.block_size}"
            )

    def _check_speculation(self) -> None:
        if self.speculation is None:
            return
        if any(group.is_state for group in self.kv_groups):
            raise ValueError("speculative decoding with state-space layers is not simulated; choose another model")
        if self.pipeline_parallel_size > 1:
            raise ValueError("speculative decoding with pipeline parallelism is not simulated; choose one of them")
        if self.speculation.method == "eagle" and len(self.kv_groups) + (self.kv_groups[0].window is not None) > 1:
            raise ValueError(
                "speculative method 'eagle' is simulated for models with full attention in all layers only; "
                "use draft_model or ngram, or another model"
            )
        width = 1 + self.num_speculative_tokens
        if 0 < self.long_prefill_token_threshold < width:
            raise ValueError(
                f"long_prefill_token_threshold is {self.long_prefill_token_threshold}, less than the {width} tokens of "
                "a drafting step, at which vLLM fails; raise it or set it to 0"
            )
        if self.token_budget - self.draft_slots < width:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens:,}) leaves less than the {width} tokens of a "
                f"drafting step beside the drafting slots (max_num_seqs is {self.max_num_seqs:,}); raise the one or "
                "lower the other"
            )

    @property
    def group_block_sizes(self) -> tuple[int, ...]:
        """Tokens in a block, group by group; a state is one block, as long as any request."""
        whole = -(-self.max_model_len // self.block_size) * self.block_size
        return tuple(whole if group.is_state else group.block_size or self.block_size for group in self.kv_groups)

    @property
    def has_unequal_blocks(self) -> bool:
        """Whether groups differ in what a block of theirs holds."""
        return has_unequal_blocks(self.kv_groups)

    @property
    def watermark_blocks(self) -> int:
        return int(self.watermark * self.num_gpu_blocks)

    @property
    def plans_in_flight(self) -> int:
        """How many steps may be decided and not yet complete: vLLM's `max_concurrent_batches`."""
        return self.pipeline_parallel_size + self.async_scheduling

    @property
    def max_in_flight_tokens(self) -> int:
        """The most tokens that may be scheduled and not yet complete."""
        return self.plans_in_flight * self.max_num_batched_tokens

    @property
    def decode_stagger(self) -> int:
        """Steps between two decodes of one request: asynchronous pipelines send each microbatch around in turn."""
        return self.pipeline_parallel_size if self.async_scheduling and self.pipeline_parallel_size > 1 else 0

    @property
    def num_speculative_tokens(self) -> int:
        return self.speculation.num_speculative_tokens if self.speculation else 0

    @property
    def num_lookahead_tokens(self) -> int:
        return self.speculation.num_lookahead_tokens if self.speculation else 0

    @property
    def draft_slots(self) -> int:
        """What each scheduled sequence takes of the token budget beside its tokens."""
        return self.speculation.draft_slots if self.speculation and self.drafts_share_token_budget else 0

    @property
    def token_budget(self) -> int:
        """What a step may schedule, drafting slots included where they share it."""
        if self.speculation is None or self.drafts_share_token_budget:
            return self.max_num_batched_tokens
        return self.max_num_batched_tokens - self.speculation.draft_slots * self.max_num_seqs

    @property
    def drops_last_hit(self) -> bool:
        """Whether the last block of a prefix hit is computed again, since EAGLE needs its hidden states."""
        return self.speculation is not None and self.speculation.method == "eagle"


def with_release_rules(engine: EngineConfig, vllm_version: str) -> EngineConfig:
    """The settings under a release's own rules, where releases decide differently.

    Raises ValueError for a release of engine V0.
    """
    check_simulated(vllm_version)
    rules: dict[str, Any] = {name: rule.holds_in(vllm_version) for name, rule in SCHEDULER_RULES.items()}
    return replace(engine, **rules)


def default_retention_interval(vllm_version: str) -> int | None:
    """`prefix_cache_retention_interval` where the user gives none."""
    return 0 if NO_RETENTION_INTERVAL.holds_in(vllm_version) else None


def default_async_scheduling(vllm_version: str, speculation: Speculation | None = None) -> bool:
    """`async_scheduling` where the user gives none."""
    if speculation is not None and speculation.method != "eagle":
        return speculation.method == "draft_model" and ASYNC_SCHEDULING_WITH_DRAFT_MODEL.holds_in(vllm_version)
    return ASYNC_SCHEDULING.holds_in(vllm_version)


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """vLLM's engine arguments; None stands for vLLM's default on that GPU."""

    data_parallel_size: int = 1  # attention replicas that share a mixture's experts
    enable_expert_parallel: bool = False
    dtype: str = "auto"
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    block_size: int | None = None
    enforce_eager: bool = False
    enable_prefix_caching: bool = True
    async_scheduling: bool | None = None  # the release's
    scheduling_policy: str = "fcfs"
    long_prefill_token_threshold: int = 0
    enable_chunked_prefill: bool = True
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    prefix_cache_retention_interval: int | None = None  # the release's
    speculation: Speculation | None = None
    num_gpu_blocks_override: int | None = None
    vllm_version: str = DEFAULT_RELEASE
    latency_model: str = "physical"
    step_s: float | None = None  # of the constant latency model
    latency_profile: Path | None = None  # of the physical latency model
    cold_start_s: float = 0.0  # what each replica's first step takes longer

    def __post_init__(self) -> None:
        if self.data_parallel_size < 1:
            raise ValueError(f"data_parallel_size is {self.data_parallel_size}; it must be at least 1")
        if self.block_size not in (None, 1, 8) and (self.block_size < 1 or self.block_size % 16):
            raise ValueError(f"block_size is {self.block_size}; vLLM takes a multiple of 16, such as 16, 32 or 64")
        if self.async_scheduling and self.speculation is not None and self.speculation.method == "ngram":
            raise ValueError(
                "async_scheduling: vLLM refuses it with drafts by n-grams; leave --async-scheduling out, "
                "or draft with eagle or a draft model"
            )
        if self.speculation is not None and self.latency_model != "constant":
            raise ValueError(
                "speculative decoding: its decisions are simulated, how long drafting takes is not known here; "
                "leave --speculative-config out, or give --latency-model constant with a --step-s that you measured"
            )

    @property
    def retention_interval(self) -> int | None:
        """Tokens between a sliding window's cached tails, or None for all of them; see `EngineConfig`."""
        if self.prefix_cache_retention_interval is None:
            return default_retention_interval(self.vllm_version)
        return self.prefix_cache_retention_interval

    @property
    def is_asynchronous(self) -> bool:
        """Whether the next step is decided while one runs."""
        if self.async_scheduling is None:
            return default_async_scheduling(self.vllm_version, self.speculation)
        return self.async_scheduling

    def memory_settings(self, tensor_parallel_size: int) -> dict[str, object]:
        """Those that decide memory, as `kvcache.memory.budget.memory_budget` takes them."""
        names = (
            "data_parallel_size", "enable_expert_parallel", "dtype", "quantization", "kv_cache_dtype",
            "gpu_memory_utilization",
            "max_model_len", "max_num_batched_tokens", "max_num_seqs", "block_size", "enforce_eager", "vllm_version",
            "num_gpu_blocks_override", "enable_prefix_caching",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names} | {"tensor_parallel_size": tensor_parallel_size}

    def latency_settings(self) -> dict[str, Any]:
        """What the latency model takes beside the deployment. Raises ValueError where it takes nothing."""
        if self.latency_profile is not None:
            if self.latency_model != "physical" or self.step_s is not None:
                raise ValueError("--latency-profile belongs to --latency-model physical; leave out one or the other")
            return {"profile": read_profile(self.latency_profile)}
        if self.step_s is None:
            return {}
        if self.latency_model != "constant":
            raise ValueError("--step-s belongs to --latency-model constant; give both or neither")
        return {"step_s": self.step_s}
