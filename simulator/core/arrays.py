"""The compiled core's state before a run."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from files.errors import HeadcountError
from kvcache.layout.kv_layout import group_kinds
from simulator.core import layout, sparse, types
from simulator.core.gateway.arrays import gateway_arrays
from simulator.core.gateway.layout import CLIENT
from simulator.core.may_lag import may_lag
from simulator.core.routing.arrays import has_index, routing_arrays
from simulator.core.sglang.arrays import build_sglang_arrays
from simulator.core.state import Arrays
from simulator.core.vllm.adapter_arrays import adapter_arrays, fill_slots, of_requests
from simulator.core.vllm.disaggregation.arrays import disaggregated_arrays
from simulator.core.vllm.host_tier.arrays import fill_tier, num_rows, tier_arrays
from simulator.core.vllm.image_arrays import encoder_budget, image_arrays
from simulator.core.vllm.layout import BLOCK, GROUP, KIND, MAX_LANES, SEGMENT
from simulator.engines.sglang.engine import EngineConfig as SGLangConfig
from simulator.engines.vllm.engine import EngineConfig
from simulator.engines.vllm.speculation import acceptance_limit
from simulator.fleet.fleet import Fleet, Pool
from simulator.fleet.pool_sizes import ROLES
from simulator.fleet.router import FoundRouter
from simulator.latency.step_time import StepTimes
from workloads.requests import NEXT_FREE, NO_PREDECESSOR, RequestTable

MAX_SAMPLES = 2048
FIRST_SAMPLE_S = 0.05
LOG_WORDS = 1 << 20


def build_arrays(fleet: Fleet, table: RequestTable, router: FoundRouter, *, log_steps: bool, seed: int) -> Arrays:
    """Allocate a run's state, as large as the largest pool needs; what a run does not touch costs no memory."""
    in_segments = all(_is_in_segments(pool.engine) for pool in fleet.pools)
    table, adapter_of = of_requests(fleet, table, seed)
    pools, engines = [_sizes(pool, table, in_segments=in_segments) for pool in fleet.pools], fleet.num_engines
    seqs, plans = max(pool.max_num_seqs for pool in pools), max(pool.engine.plans_in_flight for pool in fleet.pools)
    rows, groups = max(pool.num_rows for pool in pools), max(pool.num_groups for pool in pools)
    blocks = sum(pool.num_engines * of.num_blocks for pool, of in zip(fleet.pools, pools, strict=True))
    if blocks >= 2**31 or table.num_spans >= 2**31:
        raise HeadcountError(f"{blocks:,} KV blocks over {engines:,} replicas are more than one run can hold (2**31)")
    words = sum(pool.num_engines * _words_per_instant(pool, of) for pool, of in zip(fleet.pools, pools, strict=True))
    spans = _spans(table, are_dense=has_index(router), groups=max(groups, 1))
    contents = int(spans["content"].max(initial=-1)) + 1 if has_index(router) else 0
    num_blocks = 0 if in_segments else blocks
    table_shape = engines * rows, max(of.row_words for of in pools)
    arrays = Arrays(
        pools=_pools(fleet, pools, table),
        cursor=_cursor(log_steps, words, table),
        requests=_requests(table) if fleet.num_legs == 1 else np.tile(_requests(table), fleet.num_legs),
        clients=_clients(table),
        next_turn=_next_turns(table),
        think_s=np.ascontiguousarray(table.think_s),
        open_order=_open_order(table),
        shared_queue=np.flatnonzero(table.follows == NEXT_FREE).astype(np.int32),
        spans=spans,
        replicas=np.zeros(engines, layout.REPLICA),
        api_server_free_s=np.zeros((engines, max(pool.api_servers for pool in fleet.pools))),
        totals=np.zeros(engines, layout.TOTALS),
        next_event_s=np.full(_num_nodes(engines), math.inf),
        touched=np.zeros(engines, np.int32),
        **routing_arrays(router, table, fleet, contents),
        **gateway_arrays(fleet, table),
        running=np.zeros((engines, seqs), np.int32),
        decode_fast_forward=np.full((engines, layout.CALENDAR_STEPS), layout.NONE, np.int32),
        free_rows=np.zeros((engines, rows), np.int32),
        last_steps=np.zeros((engines, rows), np.int32),
        tables=sparse.zeros(table_shape, np.int32),
        table_starts=np.zeros((engines * rows, groups), np.int32),
        skip_at=np.zeros(engines * rows, np.int32),
        groups=np.concatenate([_groups(pool) for pool in pools]),
        kinds=_kinds(pools),
        group_order=np.array([group for pool in pools for kind in pool.kinds for group in kind], np.int32),
        blocks=np.zeros(num_blocks, BLOCK),
        segments=np.zeros(blocks - num_blocks, SEGMENT),
        fresh_states=np.zeros((engines, 3 * max(seqs if pool.caches_states else 0 for pool in pools), 2), np.int32),
        free_queue=np.zeros((engines, max(pool.num_queue_places for pool in pools)), np.int32),
        queue_places=np.zeros(num_blocks, np.int32),
        buckets=np.zeros((engines, max(pool.num_buckets for pool in pools)), np.int32),
        plans=np.zeros((engines, plans), layout.PLAN),
        entries=np.zeros((engines, plans, seqs), layout.PLAN_ENTRY),
        **adapter_arrays(fleet, adapter_of, fleet.num_legs * table.num_attempts, seqs),
        **image_arrays(fleet, table),
        **tier_arrays(fleet, table, table_shape),
        **disaggregated_arrays(fleet, table, router.memory_words(engines)),
        heap=np.zeros(fleet.num_legs * _heap_size(table), layout.HEAP_ENTRY),
        deadlines=np.zeros(_num_waits(table), layout.HEAP_ENTRY),
        samples=np.zeros(MAX_SAMPLES, layout.SAMPLE),
        itl_histogram=np.zeros(layout.ITL_BINS),
        step_time=_padded([np.stack([pool.times.decode, pool.times.prefill, pool.times.floor]) for pool in pools]),
        sampling_time=_padded([pool.times.sampling for pool in pools]),
        shared_time=_padded([_shared_times(pool, table) for pool in fleet.pools]),
        acceptance_limits=_padded([_acceptance_limits(pool.engine) for pool in fleet.pools]).astype(np.int64),
        log=np.zeros(max(LOG_WORDS, 4 * words) if log_steps else 1, np.int32),
        sglang=build_sglang_arrays(fleet, table, seed),
    )
    _initialise_engines(arrays, fleet, pools)
    arrays.cursor["may_lag"] = router.choose is not None and may_lag(arrays, log_steps=log_steps)
    return arrays


def _num_nodes(engines: int) -> int:
    """Of a tournament with a leaf for each engine."""
    nodes = leaves = 1
    while leaves < engines:
        leaves *= layout.BRANCHES
        nodes += leaves
    return nodes


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    """What a pool's arrays need for a table; those of its KV blocks are vLLM's alone."""

    vllm: EngineConfig | None
    times: StepTimes
    max_num_seqs: int
    num_rows: int  # block tables
    kinds: tuple[tuple[int, ...], ...] = ()
    in_segments: bool = False
    row_blocks: int = 1  # of the block table, per group
    num_buckets: int = 1
    num_queue_places: int = 1  # of the ring that holds the free blocks: more than twice as many

    @property
    def num_groups(self) -> int:
        return len(self.vllm.kv_groups) if self.vllm else 0

    @property
    def row_words(self) -> int:
        """Of the block table: each block of each group, or places as `vllm.segments` has them."""
        return self.num_groups * (2 + 2 * self.row_blocks if self.in_segments else self.row_blocks)

    @property
    def num_blocks(self) -> int:
        return self.vllm.num_gpu_blocks if self.vllm else 0

    @property
    def caches_states(self) -> bool:
        return self.vllm is not None and self.vllm.caches_states


def _is_in_segments(engine: EngineConfig | SGLangConfig) -> bool:
    """Whether no connector deals with single blocks, and all groups have the smallest blocks, without gaps."""
    if not isinstance(engine, EngineConfig):
        return True
    has_larger_blocks = any(size != engine.block_size for size in engine.group_block_sizes)
    if engine.host_tier is not None or engine.kv_role is not None or has_larger_blocks:
        return False
    has_windows = any(group.window is not None for group in engine.kv_groups)
    return not (has_windows and engine.hash_lookahead_tokens) and not any(group.is_state for group in engine.kv_groups)


def _sizes(pool: Pool, table: RequestTable, *, in_segments: bool) -> _Sizes:
    engine, times = pool.engine, pool.step_times
    seqs = min(engine.max_num_seqs, table.num_requests, engine.num_usable_blocks + 1)
    assert len(times.decode) > engine.max_num_batched_tokens, "the step times do not reach the token budget"
    assert len(times.sampling) > seqs, "the sampling times do not reach max_num_seqs"
    if not isinstance(engine, EngineConfig):
        return _Sizes(vllm=None, times=times, max_num_seqs=seqs, num_rows=1)
    return _Sizes(
        vllm=engine,
        times=times,
        kinds=group_kinds(engine.table_groups),
        max_num_seqs=seqs,
        num_rows=num_rows(engine, table, seqs),
        row_blocks=math.ceil(_most_slots(engine, table) / engine.block_size),
        in_segments=in_segments,
        num_buckets=(1 if in_segments else 4) << max(int(engine.num_gpu_blocks).bit_length(), 4),
        num_queue_places=1 if in_segments else 2 << int(engine.num_gpu_blocks).bit_length(),
    )


def _shared_times(pool: Pool, table: RequestTable) -> NDArray[np.float64]:
    """By the tokens that a server's ranks schedule together: no more than their budgets, nor than all requests have."""
    engine = pool.engine
    in_table = int((table.prompt_tokens.astype(np.int64) + table.output_tokens).sum())
    drafted = table.num_requests * (engine.speculation.width if engine.speculation else 0)
    budget = pool.data_parallel_size * engine.max_num_batched_tokens if pool.data_parallel_size > 1 else 0
    times = pool.step_times.shared(np.arange(min(budget, in_table + drafted) + 1, dtype=np.float64))
    assert np.isfinite(times).all() and (times >= 0).all(), "a negative or non-finite time shared by ranks"
    return times


def _acceptance_limits(engine: EngineConfig | SGLangConfig) -> NDArray[np.float64]:
    """By position; whole numbers, which floats hold exactly."""
    rates = engine.speculation.rates if engine.speculation else ()
    return np.array([acceptance_limit(rate) for rate in rates], np.float64)


def _words_per_instant(pool: Pool, sizes: _Sizes) -> int:
    """The most words that one engine logs at one instant."""
    return (pool.engine.plans_in_flight + 2) * (6 * sizes.max_num_seqs + 16)


def _padded(tables: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The pools' tables under each other, each as long as the longest."""
    values = np.zeros((len(tables), *np.max([table.shape for table in tables], axis=0)))
    for place, table in enumerate(tables):
        values[place][tuple(map(slice, table.shape))] = table
    return values


def _heap_size(table: RequestTable) -> int:
    """Sessions, plus clients of the shared queue, that may think at once; of cancelled requests events may be left.

    One more is for the gateway's next look at its queue.
    """
    return max(_num_waits(table), int((table.follows < 0).sum()) + 1) + 1


def _num_waits(table: RequestTable) -> int:
    """Attempts whose clients may not wait for ever."""
    return 0 if table.waits is None else table.num_requests * table.num_attempts


def _most_slots(engine: EngineConfig, table: RequestTable) -> int:
    """The most tokens that a request of the table has slots for."""
    longest = int((table.prompt_tokens.astype(np.int64) + table.output_tokens).max(initial=1))
    drafted = (engine.plans_in_flight + 1) * (1 + engine.num_speculative_tokens) + engine.num_lookahead_tokens
    return min(longest + drafted, engine.max_model_len)


def _groups(pool: _Sizes) -> NDArray[np.void]:
    values, engine = np.zeros(pool.num_groups, GROUP), pool.vllm
    if engine is None:
        return values
    for place, (group, block_size) in enumerate(zip(engine.table_groups, engine.group_block_sizes, strict=True)):
        values[place]["block_ratio"] = block_size // engine.block_size
        if group.window is None:
            continue
        values[place]["window"] = min(group.window, 2**30)
        values[place]["chunked"], values[place]["is_state"] = group.chunked, group.is_state
        if not group.is_state:
            most = group.blocks_per_request(engine.max_model_len, engine.max_in_flight_tokens, block_size)
            values[place]["cap"] = most
        values[place]["tail"] = 0 if group.chunked else math.ceil((group.window - 1) / block_size)
    values["is_like_last"][1:] = values[1:] == values[:-1]
    values["lanes"] = _lanes(values["is_like_last"]) if pool.in_segments else 1
    windows = -(-values["window"] // engine.block_size)
    values["asked"] = sorted(range(pool.num_groups), key=lambda place: (windows[place] > 0, -windows[place]))
    return values


def _lanes(is_like_last: NDArray[np.int32]) -> NDArray[np.int32]:
    """By group, how many there are from it on that are alike."""
    lanes = np.ones(len(is_like_last), np.int32)
    for place in reversed(range(len(lanes) - 1)):
        lanes[place] += lanes[place + 1] * (is_like_last[place + 1] and lanes[place + 1] < MAX_LANES)
    return lanes


def _kinds(pools: list[_Sizes]) -> NDArray[np.void]:
    values = np.zeros(sum(len(pool.kinds) for pool in pools), KIND)
    values["count"] = [len(kind) for pool in pools for kind in pool.kinds]
    values["first"] = np.cumsum(values["count"]) - values["count"]
    return values


def _pools(fleet: Fleet, sizes: list[_Sizes], table: RequestTable) -> NDArray[np.void]:
    values = np.zeros(len(sizes), layout.POOL)
    values["ranks"] = [pool.data_parallel_size for pool in fleet.pools]
    values["api_servers"] = [pool.api_servers for pool in fleet.pools]
    for place, (pool, of) in enumerate(zip(fleet.pools, sizes, strict=True)):
        values[place]["engine"] = layout.SGLANG if of.vllm is None else layout.VLLM
        values[place]["max_num_seqs"] = of.max_num_seqs
        values[place]["plans_in_flight"] = pool.engine.plans_in_flight
        values[place]["pipeline_stages"] = pool.engine.pipeline_parallel_size
        if of.vllm is not None:
            _fill_vllm(values[place], of, of.vllm)
            fill_tier(values[place], of.vllm, table)
            values[place]["encoder_budget"] = encoder_budget(of.vllm, table)
        values[place]["role"] = ROLES.index(pool.role)
        values[place]["shortest_step_s"] = of.times.shortest_s * layout.BARELY_LESS
        _fill_times(values[place], of.times)
    for first, count in (("first_group", "num_groups"), ("first_kind", "num_kinds")):
        values[first] = np.cumsum(values[count]) - values[count]
    return values


def _fill_vllm(values: types.Pool, sizes: _Sizes, engine: EngineConfig) -> None:
    """An engine's settings under the names of the core."""
    values["row_blocks"] = sizes.row_blocks
    values["in_segments"] = sizes.in_segments
    values["bucket_mask"] = sizes.num_buckets - 1
    values["queue_mask"] = sizes.num_queue_places - 1
    values["num_kinds"] = len(sizes.kinds)
    for name in (
        "block_size", "max_model_len", "max_num_batched_tokens", "token_budget", "decode_stagger",
        "draft_slots", "drops_last_hit", "prefix_hit_joins_drafting", "long_prefill_token_threshold",
        "skipped_victim_shifts_scan", "passed_over_keep_place", "threshold_spares_lone_request", "watermark_blocks",
        "prefill_interval_counts_own_steps",
        "scan_goes_past_self_preemption", "hash_lookahead_tokens", "caches_on_delivery",
        "states_are_fresh_once", "cache_unit", "idle_adapters_count",
    ):  # fmt: skip
        values[name] = getattr(engine, name)
    values["num_groups"] = len(engine.kv_groups)
    values["num_windows"] = sum(group.window is not None for group in engine.table_groups)
    if engine.caches_states:
        states = [place for place, group in enumerate(engine.kv_groups) if group.is_state]
        values["num_states"], values["first_state"] = len(states), states[0]
        values["state_checkpoints"] = engine.keeps_state_checkpoints
    interval = engine.prefix_cache_retention_interval
    values["retention_interval"] = layout.NONE if interval is None else interval
    values["speculative_tokens"] = engine.num_speculative_tokens
    values["lookahead_tokens"] = engine.num_lookahead_tokens
    values["takes_quiet_steps"] = engine.pipeline_parallel_size == 1 and engine.speculation is None
    values["prefix_caching"] = engine.enable_prefix_caching
    values["asynchronous"] = engine.async_scheduling
    values["prefill_interval"] = engine.prefill_schedule_interval
    values["by_priority"] = engine.scheduling_policy == "priority"
    values["chunked_prefill"] = engine.enable_chunked_prefill
    values["reserve_full_isl"] = engine.scheduler_reserve_full_isl
    fill_slots(values, engine)


def _fill_times(values: types.Pool, times: StepTimes) -> None:
    """Under the same names."""
    for name in values.dtype.names:
        if hasattr(times, name):
            values[name] = getattr(times, name)


def _cursor(log_steps: bool, log_reserve: int, table: RequestTable) -> NDArray[np.void]:
    values = np.zeros(1, layout.CURSOR)
    if table.waits is not None:
        values["has_clients"] = True
    values["log_steps"], values["log_reserve"] = log_steps, log_reserve
    values["control_s"] = math.inf
    values["sample_every_s"] = values["next_sample_s"] = FIRST_SAMPLE_S
    values["stalled_request"] = values["unrouted"] = layout.NONE
    return values


def _requests(table: RequestTable) -> NDArray[np.void]:
    values = np.zeros(table.num_requests, layout.REQUEST)
    values["prompt"] = table.prompt_tokens
    values["max_tokens"] = table.output_tokens
    values["arrival_s"] = table.arrival_s
    values["span_start"] = table.span_start
    values["priority"] = table.priority
    values["row"] = values["replica"] = values["cached_tokens"] = layout.NONE
    for name in ("scheduled_s", "first_token_s", "finish_s", "last_token_s"):
        values[name] = math.nan
    if table.num_attempts == 1:
        return values
    attempts = np.tile(values, table.num_attempts)
    attempts["arrival_s"][table.num_requests :] = math.nan
    return attempts


def _clients(table: RequestTable) -> NDArray[np.void]:
    values = np.zeros(_num_waits(table), CLIENT)
    if table.waits is not None:
        values["patience_s"] = np.tile(table.waits.patience_s, table.num_attempts)
        values["timeout_s"] = np.tile(table.waits.timeout_s, table.num_attempts)
        values["resumes"] = np.tile(table.waits.resumes, table.num_attempts)
        values["backoff_s"][table.num_requests :] = table.waits.backoff_s.ravel()
    return values


def _next_turns(table: RequestTable) -> NDArray[np.int32]:
    following = np.full(table.num_requests, layout.NONE, np.int32)
    turns = np.flatnonzero(table.follows >= 0)
    following[table.follows[turns]] = turns
    return following


def _open_order(table: RequestTable) -> NDArray[np.int32]:
    timed = np.flatnonzero(table.follows == NO_PREDECESSOR)
    return timed[np.argsort(table.arrival_s[timed], kind="stable")].astype(np.int32)


def _spans(table: RequestTable, *, are_dense: bool, groups: int) -> NDArray[np.void]:
    """Content ids fit 32 bits with a group of layers; dense ones lie below the number of spans."""
    from workloads.numbering import numbered  # noqa: PLC0415  the compiler, where something is simulated

    values, content = np.zeros(table.num_spans, layout.SPAN), table.span_content
    is_large = content.max(initial=0) >= (max(len(content), 1) if are_dense else 2**31 // groups)
    values["content"], values["end"] = numbered(content) if is_large else content, table.span_end
    return values


def _initialise_engines(arrays: Arrays, fleet: Fleet, sizes: list[_Sizes]) -> None:
    """Empty engines, pool by pool, server by server; the core lays out an engine's blocks as it is first used."""
    state = arrays.replicas
    state["waiting_head"] = state["waiting_tail"] = state["blocked_request"] = layout.NONE
    state["last_completion_s"] = math.nan
    engine, block = 0, 0
    for place, (pool, size) in enumerate(zip(fleet.pools, sizes, strict=True)):
        count, num_blocks = pool.num_engines, size.num_blocks
        engines, numbers = slice(engine, engine + count), np.arange(count)
        state["pool"][engines] = place
        state["leader"][engines] = engine + numbers - numbers % pool.data_parallel_size
        state["first_block"][engines] = block + numbers * num_blocks
        state["num_usable_blocks"][engines] = state["num_free_blocks"][engines] = pool.engine.num_usable_blocks
        state["num_free_rows"][engines] = size.num_rows
        if isinstance(pool.engine, EngineConfig):
            state["last_prefill_step"][engines] = -pool.engine.prefill_schedule_interval
        engine, block = engine + count, block + count * num_blocks
