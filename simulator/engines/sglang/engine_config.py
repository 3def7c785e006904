"""What SGLang's scheduler decides by, of the arguments and the memory budget."""

from typing import TYPE_CHECKING

from simulator.engines.sglang.attention_groups import LESS_CAREFUL
from simulator.engines.sglang.engine import EngineConfig

if TYPE_CHECKING:
    from kvcache.memory.budget import MemoryBudget
    from simulator.engines.sglang.arguments import SGLangArgs


def engine_config(args: "SGLangArgs", budget: "MemoryBudget") -> EngineConfig:
    """The settings of the scheduler under arguments that all have a value, over the pool of this budget."""
    has_draft_model = args.speculation is not None and args.speculation.method == "draft_model"  # mixes no batches
    return EngineConfig(
        max_total_num_tokens=budget.kv_cache_tokens,
        context_len=args.context_length,
        max_running_requests=budget.max_num_seqs,
        page_size=args.page_size,
        chunked_prefill_size=args.chunk_of_rank if args.chunked_prefill_size > 0 else None,
        max_prefill_tokens=args.max_prefill_tokens,
        schedule_policy=args.schedule_policy,
        schedule_conservativeness=args.schedule_conservativeness * (LESS_CAREFUL if args.attn_dp_size > 1 else 1.0),
        enable_mixed_chunk=args.enable_mixed_chunk and not has_draft_model,
        disable_overlap_schedule=args.disable_overlap_schedule,
        disable_radix_cache=args.disable_radix_cache,
        radix_eviction_policy=args.radix_eviction_policy,
        sliding_window_size=budget.kept_window,
        swa_max_total_num_tokens=budget.window_kv_tokens or 0,
        max_mamba_cache_size=budget.state_slots or 0,
        mamba_radix_cache_strategy=args.mamba_radix_cache_strategy,
        mamba_chunk_size=budget.state_kernel_chunk or 1,
        mamba_track_interval=args.mamba_track_interval,
        speculation=args.speculation,
    )
