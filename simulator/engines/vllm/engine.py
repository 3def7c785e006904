"""The settings that one engine's scheduler goes by, under vLLM's names."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import lcm
from typing import Any

from files.errors import HeadcountError
from files.names import shortened
from kvcache.layout.kv_layout import KVGroup, KVLayout
from kvcache.memory.budget import MemoryBudget
from kvcache.memory.settings import batches_in_flight
from kvcache.releases import (
    BATCH_IN_FLIGHT_PER_STAGE,
    KV_OFFLOADING_AS_READ,
    SCHEDULER_RULES,
    STATES_CACHED_AS_READ,
    UNEQUAL_BLOCKS_CACHED_AS_READ,
    check_simulated,
)
from simulator.engines.vllm.adapter_args import adapters_of_args
from simulator.engines.vllm.adapters import Adapters
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.connectors.host_tier import HostTier
from simulator.engines.vllm.connectors.pulling import KV_ROLES
from simulator.engines.vllm.defaults import check_whole_prompts
from simulator.engines.vllm.images import EncoderLimits, check_prompts
from simulator.engines.vllm.kv_transfer import KVTransfer
from simulator.engines.vllm.speculation import Speculation
from workloads.images import RequestImages

MAX_STEP = 2**20  # tokens or sequences of one step: step times are tables of that length
SCHEDULING_POLICIES = ("fcfs", "priority")


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """What the scheduler of one replica knows; defaults that depend on the GPU are filled in by the caller.

    Raises HeadcountError for a value that vLLM would refuse.
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
    prefill_schedule_interval: int = 1  # steps between those that compute prompts, while others decode; 1: every one
    enable_chunked_prefill: bool = True
    scheduler_reserve_full_isl: bool = True  # admit a request only if its whole sequence fits
    watermark: float = 0.0  # share of the blocks kept free when a request is admitted beside others
    kv_groups: tuple[KVGroup, ...] = (KVGroup(None),)  # layers that share a block table; all draw on one pool
    prefix_cache_retention_interval: int | None = 0  # tokens between a window's cached tails; None: all, 0: at the end
    pipeline_parallel_size: int = 1
    speculation: Speculation | None = None
    host_tier: HostTier | None = None
    kv_role: str | None = None  # of vLLM's NixlConnector, which brings KV from one engine to another; None: without
    encoder: EncoderLimits | None = None  # of images; None: prompts are text alone
    adapters: Adapters | None = None  # LoRA; None: requests use the model alone
    threshold_spares_lone_request: bool = True  # from here on a release's rules, see `with_release_rules`
    skipped_victim_shifts_scan: bool = True
    drafts_share_token_budget: bool = True
    prefix_hit_joins_drafting: bool = True
    passed_over_keep_place: bool = True
    hashes_look_ahead: bool = True
    scan_goes_past_self_preemption: bool = True
    drafts_cached_on_delivery: bool = True
    states_are_fresh_once: bool = True
    host_lru_ranks_requests: bool = True
    restart_offers_again: bool = True
    idle_adapters_count: bool = True
    prefill_interval_counts_own_steps: bool = True
    counts_batches_in_flight: bool = True

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens"):
            if getattr(self, name) > MAX_STEP:
                raise HeadcountError(f"{name} is {getattr(self, name):,}; at most {MAX_STEP:,} can be simulated")
        if self.num_gpu_blocks < 2:
            raise HeadcountError(
                f"num_gpu_blocks is {self.num_gpu_blocks}; vLLM keeps one null block, so at least 2 are needed"
            )
        if self.scheduling_policy not in SCHEDULING_POLICIES:
            known = ", ".join(SCHEDULING_POLICIES)
            raise HeadcountError(f"no scheduling policy {shortened(repr(self.scheduling_policy))}; there are {known}")
        if self.long_prefill_token_threshold < 0 or self.long_prefill_token_threshold > self.max_model_len:
            raise HeadcountError(
                f"long_prefill_token_threshold is {self.long_prefill_token_threshold:,}; "
                f"it must lie between 0 (none) and max_model_len, {self.max_model_len:,}"
            )
        if not 0 <= self.watermark < 1:
            raise HeadcountError(f"watermark is {self.watermark}; it must be a share of the blocks, from 0 to below 1")
        self._check_groups()
        self._check_speculation()
        self._check_connector()
        self._check_adapters()
        if self.prefill_schedule_interval > 1 and (self.host_tier is not None or self.kv_role is not None):
            raise HeadcountError(
                "prefill_schedule_interval is not simulated with KV outside of the GPUs or disaggregation; leave it out"
            )
        if not self.enable_chunked_prefill:
            check_whole_prompts(self.max_num_batched_tokens, self.max_model_len, self.token_budget - self.draft_slots)

    def _check_groups(self) -> None:
        if not self.kv_groups or any(group.window is not None and group.window < 2 for group in self.kv_groups):
            raise HeadcountError("a KV-cache group attends to everything or to a window of at least 2 tokens")
        attention = [group for group in self.kv_groups if not group.is_state]
        if len(attention) > 1 and all(group.window is None for group in attention):
            raise HeadcountError("layers that all attend to everything form one KV-cache group, as in vLLM")
        if any(size % self.block_size for size in self.group_block_sizes):
            raise HeadcountError(f"a KV-cache group's block size must be a multiple of the smallest, {self.block_size}")
        if self.cache_unit > 1 and any(group.is_state or group.chunked for group in self.kv_groups):
            raise HeadcountError(
                "prefix caching is not simulated for models with blocks of unequal size beside states or chunks; give "
                "--no-enable-prefix-caching"
            )
        if self.caches_states:
            self._check_cached_states(attention)
        interval = self.prefix_cache_retention_interval or 0
        unit = self.block_size * self.cache_unit
        if interval < 0 or interval % unit:
            raise HeadcountError(
                f"prefix_cache_retention_interval is {interval:,}; it must be 0 or a multiple of the block size, {unit}"
            )

    def _check_cached_states(self, attention: Sequence[KVGroup]) -> None:
        if not attention:
            raise HeadcountError("vLLM has no prefix caching without attention; give --no-enable-prefix-caching")
        if not self.enable_chunked_prefill:
            raise HeadcountError(
                "without chunked prefill vLLM cannot cache SSM state for prefixes; leave --no-enable-chunked-prefill "
                "out, or give --no-enable-prefix-caching too"
            )

    def _check_speculation(self) -> None:
        if self.speculation is None:
            return
        if any(group.is_state for group in self.kv_groups):
            raise HeadcountError("speculative decoding with state-space layers is not simulated; choose another model")
        if self.pipeline_parallel_size > 1:
            raise HeadcountError("speculative decoding with pipeline parallelism is not simulated; choose one of them")
        attends_to_all = len(self.kv_groups) == 1 and self.kv_groups[0].window is None
        if self.speculation.method == "eagle" and not attends_to_all:
            raise HeadcountError(
                f"speculative method '{self.speculation.drafter}' is simulated for models with full attention in all "
                "layers only; "
                "use draft_model or ngram, or another model"
            )
        width = 1 + self.num_speculative_tokens
        if 0 < self.long_prefill_token_threshold < width:
            raise HeadcountError(
                f"long_prefill_token_threshold is {self.long_prefill_token_threshold}, less than the {width} tokens of "
                "a drafting step, at which vLLM fails; raise it or set it to 0"
            )
        if self.token_budget - self.draft_slots < width:
            raise HeadcountError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens:,}) leaves less than the {width} tokens of a "
                f"drafting step after the drafting slots (max_num_seqs is {self.max_num_seqs:,}); raise the one or "
                "lower the other"
            )

    def _check_connector(self) -> None:
        if self.kv_role is not None and self.kv_role not in KV_ROLES:
            raise HeadcountError(f"no kv_role '{self.kv_role}'; there is {', '.join(KV_ROLES)}")
        if self.kv_role is not None and self.host_tier is not None:
            raise HeadcountError(
                f"{self.host_tier.title} is not simulated with disaggregated prefill/decode; leave "
                f"{self.host_tier.option} "
                "out"
            )
        what = remedy = ""
        if self.host_tier is not None:
            what, remedy = self.host_tier.title, f"leave {self.host_tier.option} out"
        if self.kv_role is not None:
            what, remedy = "disaggregated prefill/decode", "let each engine do both"
        if self.host_tier is None and self.kv_role is None:
            return
        attends_to_all = len(self.kv_groups) == 1 and self.table_groups[0].window is None
        has_states = any(group.is_state for group in self.kv_groups)
        tier = self.host_tier
        is_own = tier is None or not (tier.is_lmcache or tier.is_shared)
        is_even = set(self.group_block_sizes) == {self.block_size}
        slides = is_even and not any(group.chunked for group in self.table_groups)
        is_fair = self.kv_role is None or self.scheduling_policy == "fcfs"
        for is_met, with_what in (
            (not has_states, "models with SSM states"),
            (attends_to_all or is_own, "models whose layers do not all attend to everything"),
            (attends_to_all or slides, "chunked attention or layers with KV blocks of unequal size"),
            (attends_to_all or tier is None or self.host_lru_ranks_requests, "sliding windows before vLLM 0.33"),
            (self.pipeline_parallel_size == 1, "pipeline parallelism"),
            (self.speculation is None, "speculative decoding"),
            (is_fair, "the scheduling policy priority"),
        ):
            if not is_met:
                raise HeadcountError(f"{what} is not simulated with {with_what}; {remedy}")

    def _check_adapters(self) -> None:
        if self.adapters is None:
            return
        runs_over = self.pipeline_parallel_size > 1 and not self.adapters.all_fit and not self.idle_adapters_count
        for is_met, with_what in (
            (self.speculation is None, "speculative decoding"),
            (self.host_tier is None, "KV outside of the GPUs (CPU offloading, LMCache, a remote KV cache)"),
            (self.kv_role is None, "disaggregated prefill/decode"),
        ):
            if not is_met:
                raise HeadcountError(f"LoRA adapters are not simulated with {with_what}; leave one of them out")
        if runs_over:
            raise HeadcountError(
                "vLLM before 0.33 stops where pipeline stages have more LoRA adapters than --max-loras; raise "
                f"--max-loras to {self.adapters.num_adapters:,}, or give --vllm-version 0.33"
            )

    def check_images(self, images: RequestImages) -> None:
        """Raise HeadcountError where vLLM refuses them, or where they are not simulated with what the engine has."""
        features = (
            (self.speculation is not None, "speculative decoding"),
            (self.host_tier is not None, "KV outside of the GPUs (CPU offloading, LMCache, a remote KV cache)"),
            (self.kv_role is not None, "disaggregated prefill/decode"),
            (self.adapters is not None, "LoRA adapters"),
        )
        check_prompts(self.encoder, images, features)

    @property
    def num_usable_blocks(self) -> int:
        """Without the null block."""
        return self.num_gpu_blocks - 1

    @property
    def max_prompt_tokens(self) -> int:
        """Of the longest prompt that leaves room for a token."""
        return self.max_model_len - 1

    @property
    def group_block_sizes(self) -> tuple[int, ...]:
        """Tokens in a block, group by group; a state that is not cached is one block, as long as any request."""
        whole = self.block_size if self.caches_states else -(-self.max_model_len // self.block_size) * self.block_size
        return tuple(whole if group.is_state else group.block_size or self.block_size for group in self.kv_groups)

    @property
    def cache_unit(self) -> int:
        """Prefix hits end where a block of every group does: at multiples of so many of the smallest blocks."""
        if not self.enable_prefix_caching:
            return 1
        return lcm(*self.group_block_sizes) // self.block_size

    @property
    def caches_states(self) -> bool:
        """Whether states are kept at block ends for other requests: vLLM's cache mode `align`."""
        return self.enable_prefix_caching and any(group.is_state for group in self.kv_groups)

    @property
    def table_groups(self) -> tuple[KVGroup, ...]:
        """The groups as their blocks are found again and let go: a cached state is like a window of two tokens.

        The token after a block's end needs the state there, and no later one does.
        """
        if not self.caches_states:
            return self.kv_groups
        return tuple(replace(group, window=2) if group.is_state else group for group in self.kv_groups)

    @property
    def keeps_state_checkpoints(self) -> bool:
        """Whether a chunk leaves a state at the last block's end before its own, beside that at its end."""
        return self.caches_states and all(group.keeps_checkpoints for group in self.kv_groups if group.is_state)

    @property
    def watermark_blocks(self) -> int:
        return int(self.watermark * self.num_gpu_blocks)

    @property
    def plans_in_flight(self) -> int:
        """How many steps may be decided and not yet complete."""
        return batches_in_flight(self.pipeline_parallel_size, self.async_scheduling)

    @property
    def max_in_flight_tokens(self) -> int:
        """The most tokens scheduled and not yet complete for which a window's blocks are counted, as in memory."""
        return (self.plans_in_flight if self.counts_batches_in_flight else 1) * self.max_num_batched_tokens

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
        """Whether the last block of a hit is computed again: what EAGLE keeps of it depends on the next token."""
        return self._has_eagle and not self.hashes_look_ahead

    @property
    def hash_lookahead_tokens(self) -> int:
        """Tokens after a block that its hash covers too: with the one that EAGLE reads, the whole hit can be kept."""
        return int(self._has_eagle and self.hashes_look_ahead)

    @property
    def caches_on_delivery(self) -> bool:
        """Whether the blocks that a step filled are cached when it completes, before the request is scheduled again."""
        return self.async_scheduling or (self.speculation is not None and self.drafts_cached_on_delivery)

    @property
    def _has_eagle(self) -> bool:
        return self.speculation is not None and self.speculation.method == "eagle"


def with_release_rules(engine: EngineConfig, vllm_version: str) -> EngineConfig:
    """The settings under a release's own rules, where releases decide differently.

    Raises HeadcountError for a release of engine V0.
    """
    check_simulated(vllm_version)
    rules: dict[str, Any] = {name: rule.holds_in(vllm_version) for name, rule in SCHEDULER_RULES.items()}
    rules["counts_batches_in_flight"] = BATCH_IN_FLIGHT_PER_STAGE.holds_in(vllm_version)
    return replace(engine, **rules)


def caches_prefixes(layout: KVLayout, vllm_version: str) -> bool:
    """Whether prefix caching is simulated over this layout under a release's rules."""
    if any(group.block_size for group in layout.groups):
        return layout.compresses and UNEQUAL_BLOCKS_CACHED_AS_READ.holds_in(vllm_version)
    if layout.mamba_cache_mode is None:
        return True
    return layout.mamba_cache_mode == "align" and STATES_CACHED_AS_READ.holds_in(vllm_version)


def engine_config(args: EngineArgs, budget: MemoryBudget) -> EngineConfig:
    """The settings of the scheduler under arguments that all have a value, over the pool of this budget."""
    has_caching = args.enable_prefix_caching and caches_prefixes(budget.layout, args.vllm_version)
    own = {item.name: getattr(args, item.name) for item in fields(EngineConfig) if hasattr(args, item.name)}
    pool = {
        "num_gpu_blocks": max(budget.num_gpu_blocks, 2),
        **_in_smallest_blocks(budget.layout),
        "enable_prefix_caching": has_caching,
        "host_tier": _host_tier(args, budget),
        "adapters": adapters_of_args(args, args.vllm_version),
    }
    return with_release_rules(EngineConfig(**{**own, **pool}), args.vllm_version)


def _in_smallest_blocks(layout: KVLayout) -> dict[str, Any]:
    """The block size of the group with the smallest, as vLLM's scheduler counts, and the groups beside it."""
    held = [group.block_size or layout.block_size for group in layout.groups if not group.is_state]
    smallest = min(held, default=layout.block_size)
    if smallest == layout.block_size:
        return {"block_size": layout.block_size, "kv_groups": layout.groups}
    sizes = [None if group.block_size == smallest else group.block_size or layout.block_size for group in layout.groups]
    groups = tuple(replace(group, block_size=size) for group, size in zip(layout.groups, sizes, strict=True))
    return {"block_size": smallest, "kv_groups": groups}


def _host_tier(args: EngineArgs, budget: MemoryBudget) -> HostTier | None:
    """What keeps KV outside of the GPUs. Raises ValueError for another release's rules, or for too little memory."""
    if budget.host is None:
        return None
    config = args.kv_transfer_config or KVTransfer()
    tier = HostTier(
        num_chunks=budget.host.num_chunks,
        chunk_s=budget.host.chunk_s,
        transfer_s=budget.host.transfer_s,
        eviction_policy=config.eviction_policy,
        blocks_per_chunk=budget.host.blocks_per_chunk,
        is_shared=budget.host.is_shared,
        store_chunk_s=budget.host.store_chunk_s,
        is_lmcache=config.lmcache is not None,
    )
    if not KV_OFFLOADING_AS_READ.holds_in(args.vllm_version):
        raise HeadcountError(
            f"{tier.option} is simulated by the rules of vLLM {KV_OFFLOADING_AS_READ.first} and later; leave it out, "
            f"or give --vllm-version {KV_OFFLOADING_AS_READ.since}"
        )
    return tier
