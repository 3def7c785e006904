"""The compiled core's state before a run."""

import math

import numpy as np
from numpy.typing import NDArray

from kvcache.layout.kv_layout import group_kinds
from simulator.core import layout
from simulator.core.layout import NONE, Arrays
from simulator.engines.vllm.engine import EngineConfig
from simulator.engines.vllm.speculation import acceptance_limit
from simulator.fleet.fleet import ROUTERS, Fleet
from workloads.requests import NEXT_FREE, NO_PREDECESSOR, RequestTable

MAX_SAMPLES = 2048
FIRST_SAMPLE_S = 0.05
LOG_WORDS = 1 << 20


def build_arrays(fleet: Fleet, table: RequestTable, *, log_steps: bool) -> Arrays:
    """Allocate a run's state; what a run does not touch costs no memory."""
    engine, replicas, count = fleet.engine, fleet.num_engines, table.num_requests
    rows = min(engine.max_num_seqs, count, engine.num_gpu_blocks) + 1
    blocks = replicas * engine.num_gpu_blocks
    row_blocks = math.ceil(_most_slots(engine, table) / engine.block_size)
    kinds = group_kinds(engine.kv_groups)
    if blocks >= 2**31 or table.num_spans >= 2**31:
        raise ValueError(f"{blocks:,} KV blocks over {replicas:,} replicas are more than one run can hold (2**31)")
    buckets = 1 << max(int(engine.num_gpu_blocks).bit_length(), 4)
    arrays = Arrays(
        parameters=_parameters(fleet, rows - 1, buckets - 1, row_blocks, log_steps),
        cursor=_cursor(),
        requests=_requests(table),
        next_turn=_next_turns(table),
        think_s=np.ascontiguousarray(table.think_s),
        open_order=_open_order(table),
        shared_queue=np.flatnonzero(table.follows == NEXT_FREE).astype(np.int32),
        spans=_spans(table),
        replicas=np.zeros(replicas, layout.REPLICA),
        totals=np.zeros(replicas, layout.TOTALS),
        next_event_s=np.full(2 * max(1 << (replicas - 1).bit_length(), 1), math.inf),
        outstanding=np.zeros(replicas, np.int32),
        touched=np.zeros(replicas, np.int32),
        running=np.zeros((replicas, rows - 1), np.int32),
        free_rows=np.arange(replicas * rows, dtype=np.int32)[::-1].reshape(replicas, rows)[::-1].copy(),
        tables=np.zeros((replicas * rows, len(engine.kv_groups) * row_blocks), np.int32),
        table_starts=np.zeros((replicas * rows, len(engine.kv_groups)), np.int32),
        skip_at=np.zeros(replicas * rows, np.int32),
        groups=_groups(engine),
        kinds=_kinds(kinds),
        group_order=np.concatenate(kinds).astype(np.int32),
        blocks=np.zeros(blocks, layout.BLOCK),
        buckets=np.full((replicas, buckets), NONE, np.int32),
        plans=np.zeros((replicas, engine.plans_in_flight), layout.PLAN),
        entries=np.zeros((replicas, engine.plans_in_flight, rows - 1), layout.PLAN_ENTRY),
        heap=np.zeros(_heap_size(table), layout.HEAP_ENTRY),
        samples=np.zeros(MAX_SAMPLES, layout.SAMPLE),
        itl_histogram=np.zeros(layout.ITL_BINS),
        step_time=np.ascontiguousarray(
            np.stack([fleet.step_times.decode, fleet.step_times.prefill, fleet.step_times.floor])
        ),
        sampling_time=fleet.step_times.sampling,
        shared_time=fleet.step_times.shared,
        log=np.zeros(_log_words(fleet, rows) if log_steps else 1, np.int32),
    )
    _check_tables(arrays, engine, fleet.data_parallel_size)
    _initialise_replicas(arrays, rows)
    _initialise_blocks(arrays, engine.num_gpu_blocks)
    return arrays


def _check_tables(arrays: Arrays, engine: EngineConfig, ranks: int) -> None:
    assert arrays.step_time.shape[1] > engine.max_num_batched_tokens, "the step times do not reach the token budget"
    assert arrays.shared_time.shape[0] > ranks * engine.max_num_batched_tokens or ranks == 1, (
        "the shared times are short"
    )
    assert arrays.sampling_time.shape[0] >= arrays.running.shape[1] + 1, "the sampling times do not reach max_num_seqs"


def _log_words(fleet: Fleet, rows: int) -> int:
    instant = fleet.num_engines * (fleet.engine.plans_in_flight + 2) * (6 * rows + 16)
    return max(LOG_WORDS, 4 * instant)


def _heap_size(table: RequestTable) -> int:
    """Sessions, plus clients of the shared queue, that may think at once."""
    return int((table.follows < 0).sum()) + 1


def _most_slots(engine: EngineConfig, table: RequestTable) -> int:
    """The most tokens that a request of the table has slots for."""
    longest = int((table.prompt_tokens.astype(np.int64) + table.output_tokens).max(initial=1))
    drafted = (engine.plans_in_flight + 1) * (1 + engine.num_speculative_tokens) + engine.num_lookahead_tokens
    return min(longest + drafted, engine.max_model_len)


def _groups(engine: EngineConfig) -> NDArray[np.void]:
    values = np.zeros(len(engine.kv_groups), layout.GROUP)
    for place, (group, block_size) in enumerate(zip(engine.kv_groups, engine.group_block_sizes, strict=True)):
        values[place]["ratio"] = block_size // engine.block_size
        if group.window is None:
            continue
        values[place]["window"] = min(group.window, 2**30)
        values[place]["chunked"] = group.chunked
        values[place]["cap"] = group.blocks_per_request(engine.max_model_len, engine.max_in_flight_tokens, block_size)
        values[place]["tail"] = 0 if group.chunked else math.ceil((group.window - 1) / block_size)
    return values


def _kinds(kinds: tuple[tuple[int, ...], ...]) -> NDArray[np.void]:
    values = np.zeros(len(kinds), layout.KIND)
    values["count"] = [len(kind) for kind in kinds]
    values["first"] = np.cumsum(values["count"]) - values["count"]
    return values


def _parameters(
    fleet: Fleet, max_num_seqs: int, bucket_mask: int, row_blocks: int, log_steps: bool
) -> NDArray[np.void]:
    engine, times = fleet.engine, fleet.step_times
    values = np.zeros(1, layout.PARAMETERS)
    values["num_replicas"] = fleet.num_engines
    values["ranks"] = fleet.data_parallel_size
    values["num_blocks"] = engine.num_gpu_blocks
    values["max_num_seqs"] = max_num_seqs
    for name in (
        "block_size", "max_model_len", "max_num_batched_tokens", "token_budget", "plans_in_flight", "decode_stagger",
        "draft_slots", "drops_last_hit", "prefix_hit_joins_drafting", "long_prefill_token_threshold",
        "skipped_victim_shifts_scan", "passed_over_keep_place", "threshold_spares_lone_request", "watermark_blocks",
    ):  # fmt: skip
        values[name] = getattr(engine, name)
    values["pipeline_stages"] = engine.pipeline_parallel_size
    values["num_groups"] = len(engine.kv_groups)
    values["num_kinds"] = len(group_kinds(engine.kv_groups))
    values["num_windows"] = sum(group.window is not None for group in engine.kv_groups)
    values["row_blocks"] = row_blocks
    interval = engine.prefix_cache_retention_interval
    values["retention_interval"] = NONE if interval is None else interval
    values["speculative_tokens"] = engine.num_speculative_tokens
    values["lookahead_tokens"] = engine.num_lookahead_tokens
    if engine.speculation is not None:
        values["acceptance_limit"] = acceptance_limit(engine.speculation.acceptance_rate)
    values["takes_quiet_steps"] = engine.pipeline_parallel_size == 1 and engine.speculation is None
    values["prefix_caching"] = engine.enable_prefix_caching
    values["asynchronous"] = engine.async_scheduling
    values["by_priority"] = engine.scheduling_policy == "priority"
    values["chunked_prefill"] = engine.enable_chunked_prefill
    values["reserve_full_isl"] = engine.scheduler_reserve_full_isl
    values["router"] = ROUTERS[fleet.router]
    values["bucket_mask"] = bucket_mask
    values["log_steps"] = log_steps
    for name in (
        "window", "ingress_request_s", "ingress_token_s", "ingress_s", "decode_base_s", "context_s", "window_context_s",
        "prefill_s", "window_prefill_s",
        "host_base_s", "gap_s", "host_sequence_s", "cold_start_s",
    ):  # fmt: skip
        values[name] = getattr(times, name)
    return values


def _cursor() -> NDArray[np.void]:
    values = np.zeros(1, layout.CURSOR)
    values["sample_every_s"] = values["next_sample_s"] = FIRST_SAMPLE_S
    values["stalled_request"] = NONE
    return values


def _requests(table: RequestTable) -> NDArray[np.void]:
    values = np.zeros(table.num_requests, layout.REQUEST)
    values["prompt"] = table.prompt_tokens
    values["max_tokens"] = table.output_tokens
    values["arrival_s"] = table.arrival_s
    values["span_start"] = table.span_start
    values["priority"] = table.priority
    values["row"] = values["replica"] = values["cached_tokens"] = NONE
    for name in ("scheduled_s", "first_token_s", "finish_s", "last_token_s"):
        values[name] = math.nan
    return values


def _next_turns(table: RequestTable) -> NDArray[np.int32]:
    following = np.full(table.num_requests, NONE, np.int32)
    turns = np.flatnonzero(table.follows >= 0)
    following[table.follows[turns]] = turns
    return following


def _open_order(table: RequestTable) -> NDArray[np.int32]:
    timed = np.flatnonzero(table.follows == NO_PREDECESSOR)
    return timed[np.argsort(table.arrival_s[timed], kind="stable")].astype(np.int32)


def _spans(table: RequestTable) -> NDArray[np.void]:
    values = np.zeros(table.num_spans, layout.SPAN)
    values["content"] = table.span_content
    values["end"] = table.span_end
    return values


def _initialise_replicas(arrays: Arrays, rows: int) -> None:
    state = arrays.replicas
    state["waiting_head"] = state["waiting_tail"] = state["blocked_request"] = NONE
    state["last_completion_s"] = math.nan
    state["num_free_rows"] = rows
    state["num_free_blocks"] = arrays.parameters["num_blocks"] - 1


def _initialise_blocks(arrays: Arrays, num_blocks: int) -> None:
    """One circular free queue per replica, in the order of the block ids, closed by the null block."""
    blocks = arrays.blocks
    ids = np.arange(len(blocks), dtype=np.int32)
    first = ids - ids % num_blocks
    blocks["next"] = first + (ids - first + 1) % num_blocks
    blocks["previous"] = first + (ids - first - 1) % num_blocks
    blocks["key_content"] = blocks["next_in_bucket"] = NONE
