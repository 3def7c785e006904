"""Random fleets with random loads, for the tests that compare two ways to simulate them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from kvcache.layout.kv_layout import KVGroup
from kvcache.releases import SCHEDULER_RULES
from simulator.engines.vllm.engine import EngineConfig
from simulator.engines.vllm.speculation import Speculation
from simulator.fleet.events import Event, Extent
from simulator.fleet.fleet import Fleet, Pool
from simulator.fleet.flow_control import DETECTORS, GLOBAL_STRICT, ROUND_ROBIN, FlowControl
from simulator.fleet.operation import Operations
from simulator.latency.step_time import FloatArray, StepTimes
from workloads.requests import (
    NEXT_FREE,
    NO_PREDECESSOR,
    OPEN_END,
    RequestTable,
    Tenancy,
    Tenant,
    Waits,
    with_waits,
)

ROUTERS = (
    "least-outstanding",
    "power-of-two",
    "random",
    "round-robin",
    "session-affinity",
)
TICK_S = 2.0**-10  # all times are multiples of it, so that sums are exact in any order


@dataclass(frozen=True)
class Case:
    fleet: Fleet
    table: RequestTable


GROUPS = (
    (KVGroup(None), KVGroup(20)),
    (KVGroup(9), KVGroup(9), KVGroup(None)),
    (*(KVGroup(9),) * 4, KVGroup(None)),
    (KVGroup(24, chunked=True), KVGroup(None)),
    (KVGroup(13), KVGroup(40), KVGroup(None)),
    (KVGroup(30),),
)
CACHED_STATES = (  # with prefix caching and chunked prefill, without drafts
    (KVGroup(None, is_state=True, states_per_request=2), KVGroup(None)),
    (KVGroup(None), *(KVGroup(None, is_state=True, states_per_request=3),) * 3),
    (KVGroup(None, is_state=True, states_per_request=3), KVGroup(20), KVGroup(None)),
)
UNEQUAL_GROUPS = (  # without prefix caching, without drafts
    (KVGroup(None, is_state=True), KVGroup(None)),
    (KVGroup(None), KVGroup(20), KVGroup(None, is_state=True), KVGroup(None, is_state=True)),
    (KVGroup(20, block_size=32), KVGroup(None)),
    (KVGroup(20, block_size=32), KVGroup(40, block_size=32)),
    (KVGroup(24, chunked=True), KVGroup(None, block_size=48)),
    (KVGroup(None, is_state=True), KVGroup(9), KVGroup(None, block_size=32)),
    (KVGroup(None, is_state=True),),
)


@st.composite
def speculations(draw: st.DrawFn, groups: tuple[KVGroup, ...], *, most: int) -> Speculation:
    methods = ["draft_model", "ngram"] if len(groups) > 1 or groups[0].window else ["draft_model", "ngram", "eagle"]
    count, rates = draw(st.integers(1, most)), st.sampled_from([0.0, 0.5, 0.9, 1.0])
    return Speculation(
        method=draw(st.sampled_from(methods)),
        num_speculative_tokens=count,
        acceptance_rate=draw(rates | st.tuples(*[rates] * count)),
    )


@st.composite
def cases(draw: st.DrawFn, *, max_requests: int = 60, max_replicas: int = 3, min_requests: int = 1) -> Case:
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    table = random_table(
        rng, draw(st.integers(min_requests, max_requests)), kind=draw(st.sampled_from(["open", "turns", "shared"]))
    )
    num_pools = draw(st.sampled_from([1, 1, 2, 3])) if max_replicas > 1 else 1
    made = tuple(draw(pools(rng, table, max_replicas=max_replicas)) for _ in range(num_pools))
    return Case(Fleet(pools=made, router=draw(st.sampled_from(ROUTERS))), table)


def in_segments(case: Case) -> Case:
    """The same fleet of engines that keep prefixes, in blocks of one size and without states."""
    longest = int((case.table.prompt_tokens + case.table.output_tokens).max())
    made = []
    for pool in case.fleet.pools:
        engine = pool.engine
        groups = tuple(replace(group, block_size=None) for group in engine.kv_groups if not group.is_state)
        groups = groups or (KVGroup(None),)
        needed = -(-(longest + 1) // engine.block_size) + -(-(40 if engine.speculation else 0) // engine.block_size)
        num_gpu_blocks = engine.num_gpu_blocks - (len(engine.kv_groups) - len(groups)) * needed
        engine = replace(engine, kv_groups=groups, enable_prefix_caching=True, num_gpu_blocks=num_gpu_blocks)
        made.append(replace(pool, engine=engine))
    return replace(case, fleet=replace(case.fleet, pools=tuple(made)))


@st.composite
def pools(draw: st.DrawFn, rng: np.random.Generator, table: RequestTable, *, max_replicas: int) -> Pool:
    engine = draw(engines(table))
    has_ranks = engine.pipeline_parallel_size == 1 and max_replicas > 1
    return Pool(
        engine=engine,
        step_times=random_step_times(rng, engine.max_num_batched_tokens, engine.max_num_seqs),
        num_servers=draw(st.integers(1, max_replicas)),
        data_parallel_size=draw(st.sampled_from([1, 1, 1, 2, 3])) if has_ranks else 1,
        api_servers=draw(st.sampled_from([1, 1, 2, 4])),
    )


@st.composite
def engines(draw: st.DrawFn, table: RequestTable) -> EngineConfig:
    """Settings under which the table's requests all fit, often barely."""
    block_size = draw(st.sampled_from([4, 8, 16]))
    longest = int((table.prompt_tokens + table.output_tokens).max())
    needed = -(-(longest + 1) // block_size)
    budget = draw(st.sampled_from([7, 16, 64, 512]))
    max_num_seqs = min(draw(st.sampled_from([1, 2, 5, 64])), budget // 2)  # a draft model takes a slot of each
    policy = draw(st.sampled_from(["fcfs", "fcfs", "priority"]))
    cut_off = draw(st.sampled_from([0, 0, 0, int(table.output_tokens.min()) // 2]))
    max_model_len = max(longest + draw(st.integers(1, 20)) - cut_off, int(table.prompt_tokens.max()) + 1)
    prefix_caching = draw(st.booleans())
    has_others = draw(st.booleans())
    others = CACHED_STATES if prefix_caching else UNEQUAL_GROUPS
    groups = draw(st.sampled_from(others if has_others else [(), (), *GROUPS])) or (KVGroup(None),)
    stages = draw(st.sampled_from([1, 1, 1, 2, 3]))
    drafts = st.none() if has_others else st.none() | speculations(groups, most=min(4, budget - max_num_seqs - 2))
    speculation = None if stages > 1 else draw(drafts)
    lookahead = 40 if speculation else 0
    return EngineConfig(
        num_gpu_blocks=1
        + (needed + -(-lookahead // block_size)) * len(groups)
        + draw(st.sampled_from([0, 1, 3, 8, 40])),
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        block_size=block_size,
        enable_prefix_caching=prefix_caching,
        async_scheduling=draw(st.booleans()),
        scheduling_policy=policy,
        long_prefill_token_threshold=min(draw(st.sampled_from([0, 0, 5, 20])), max_model_len),
        kv_groups=groups,
        prefix_cache_retention_interval=draw(st.sampled_from([None, 0, 2 * block_size])),
        pipeline_parallel_size=stages,
        speculation=speculation,
        **{name: draw(st.booleans()) for name in SCHEDULER_RULES},
        # By priority and without it, two requests may preempt each other for ever: in vLLM too.
        scheduler_reserve_full_isl=policy == "priority" or draw(st.sampled_from([True, True, False])),
        watermark=draw(st.sampled_from([0.0, 0.0, 0.05])),
    )


def random_shared_times(rng: np.random.Generator, budget: int) -> Callable[[FloatArray], FloatArray]:
    table = np.sort(rng.integers(0, 20, 4 * budget + 1)) * TICK_S
    return lambda tokens: table[tokens.astype(np.int64)]


def random_step_times(rng: np.random.Generator, budget: int, max_num_seqs: int) -> StepTimes:
    decode = np.sort(rng.integers(1, 40, budget + 1)) * TICK_S
    return StepTimes(
        decode=decode,
        prefill=decode + TICK_S,
        floor=np.full(budget + 1, 8 * TICK_S),
        sampling=np.arange(max_num_seqs + 1) * TICK_S,
        shared=random_shared_times(rng, budget),
        decode_base_s=TICK_S,
        context_s=TICK_S / 64,
        window=int(rng.integers(1, 40)),
        window_context_s=TICK_S / 32,
        prefill_s=TICK_S / 64,
        window_prefill_s=TICK_S / 64,
        host_base_s=6 * TICK_S,
        host_sequence_s=TICK_S,
        stream_sequence_s=float(rng.integers(0, 4)) * TICK_S,
        gap_s=TICK_S,
        ingress_request_s=float(rng.integers(0, 3)) * TICK_S,
        ingress_token_s=float(rng.integers(0, 2)) * TICK_S / 64,
        ingress_s=float(rng.integers(0, 3)) * TICK_S,
        cold_start_s=float(rng.integers(0, 3)) * 100 * TICK_S,
        cold_stalls=int(rng.integers(1, 4)),
        cold_apart_s=float(rng.integers(0, 3)) * 200 * TICK_S,
    )


@st.composite
def impatient_cases(draw: st.DrawFn, *, max_requests: int = 60, max_replicas: int = 3, min_requests: int = 1) -> Case:
    """Cases whose clients give up, time out, try again; at times where many other things happen."""
    case = draw(cases(max_requests=max_requests, max_replicas=max_replicas, min_requests=min_requests))
    rng, count = np.random.default_rng(draw(st.integers(0, 2**32 - 1))), case.table.num_requests
    longest = draw(st.sampled_from([20, 200, 2000]))  # ticks
    patience = rng.integers(1, longest, count) * TICK_S
    has_patience = rng.random(count) < draw(st.sampled_from([0.0, 0.5, 1.0]))
    resumes = np.full(count, -1, np.int32)
    turns = np.flatnonzero(case.table.follows >= 0)
    if draw(st.booleans()):
        resumes[case.table.follows[turns]] = turns
    waits = Waits(
        patience_s=np.where(has_patience, patience, np.inf),
        timeout_s=np.where(rng.random(count) < 0.8, draw(st.sampled_from([np.inf, 1, 100, 1000])), np.inf) * TICK_S,
        backoff_s=rng.integers(0, 200, (draw(st.integers(0, 3)), count)) * TICK_S,
        resumes=resumes,
    )
    return Case(case.fleet, with_waits(case.table, waits))


@st.composite
def gateway_cases(draw: st.DrawFn, *, max_requests: int = 60, max_replicas: int = 2) -> Case:
    """Cases of tenants with quotas, behind a gateway that holds requests while the fleet is saturated."""
    has_queue = draw(st.sampled_from([True, True, True, False]))
    control = draw(flow_controls()) if has_queue else None
    kind = draw(st.sampled_from([cases, impatient_cases]))
    case = draw(kind(max_requests=max_requests, max_replicas=max_replicas, min_requests=max_requests // 3))
    table = case.table.scaled_arrivals(draw(st.sampled_from([1.0, 8.0, 64.0])))
    return Case(replace(case.fleet, flow_control=control), draw(tenanted(table, has_queue=has_queue)))


@st.composite
def operations(draw: st.DrawFn) -> Operations:
    """Crashes and updates of a fixed fleet whose starts all take as long; how many replicas is the fleet's."""
    kinds, times = st.sampled_from(["crash", "zone", "update"]), st.sampled_from([0.0, 0.25, 1.5])
    start_s = draw(times)
    events = [
        Event(
            kind=draw(kinds),
            time_s=draw(st.integers(0, 3000)) * TICK_S,
            extent=Extent(replicas=draw(st.integers(1, 3)), restarts_after_s=draw(times)),
        )
        for _ in range(draw(st.integers(1, 3)))
    ]
    return Operations(
        min_replicas=1,
        max_replicas=1,
        events=tuple(events),
        start_s=lambda _: start_s,
        grace_s=draw(st.sampled_from([0.0, 0.5, 5.0])),
        retries=draw(st.sampled_from([True, True, False])),
    )


@st.composite
def tenanted(draw: st.DrawFn, table: RequestTable, *, has_queue: bool = True) -> RequestTable:
    """The same requests, sent by tenants who may have quotas."""
    limits = st.sampled_from([np.inf, np.inf, 60.0, 700.0, 9000.0])
    tenants = [Tenant(name, draw(limits), 40 * draw(limits)) for name in "abc"[: draw(st.integers(1, 3))]]
    of = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).integers(0, len(tenants), table.num_requests)
    tenancy = Tenancy(tuple(tenants), of.astype(np.int32)[table.first_turns()])
    return table if has_queue and draw(st.booleans()) else replace(table, tenancy=tenancy)


@st.composite
def flow_controls(draw: st.DrawFn) -> FlowControl:
    """Its own times are those where many other things happen; metrics are those of the moment."""
    return FlowControl(
        detector=draw(st.sampled_from(tuple(DETECTORS))),
        queue_depth_threshold=draw(st.sampled_from([0.5, 1.0, 5.0])),
        kv_cache_util_threshold=draw(st.sampled_from([0.02, 0.2, 0.8])),
        refresh_metrics_s=0.0,
        max_concurrency=draw(st.sampled_from([0.25, 1.0, 2.0])),
        fairness_policy=draw(st.sampled_from([GLOBAL_STRICT, ROUND_ROBIN])),
        max_requests=draw(st.sampled_from([0, 0, 3, 12])),
        band_max_requests=draw(st.sampled_from([5000, 2, 6])),
        default_request_ttl_s=draw(st.sampled_from([0.0, 100 * TICK_S, 1000 * TICK_S])),
        no_endpoint_request_ttl_s=draw(st.sampled_from([0.0, 300 * TICK_S])),
        dispatch_every_s=draw(st.sampled_from([TICK_S, 8 * TICK_S])),
        sweep_every_s=draw(st.sampled_from([8 * TICK_S, 64 * TICK_S])),
    )


def random_table(rng: np.random.Generator, count: int, *, kind: str) -> RequestTable:
    """Loads with shared prefixes: open, sessions of growing context, or clients that share one queue."""
    families = rng.integers(0, 4, count)
    prompt = rng.integers(1, 90, count).astype(np.int32)
    output = rng.integers(1, 30, count).astype(np.int32)
    follows = np.full(count, NO_PREDECESSOR, np.int64)
    content = np.arange(10, 10 + count, dtype=np.int64)
    if kind == "turns":
        for row in range(1, count):
            if rng.random() < 0.7:
                follows[row] = row - 1
                prompt[row] = prompt[row - 1] + output[row - 1] + rng.integers(1, 20)
                content[row], families[row] = content[row - 1], families[row - 1]
                if prompt[row] > 200:
                    prompt[row], content[row] = rng.integers(1, 90), 10 + row
    if kind == "shared":
        follows[min(4, count) :] = NEXT_FREE
    timed = follows == NO_PREDECESSOR
    arrival = np.where(timed, rng.integers(0, 40 * count, count) * TICK_S * 4, np.nan)
    if kind == "shared":
        arrival = np.where(timed, 0.0, np.nan)
    return RequestTable(
        arrival_s=arrival,
        follows=follows,
        think_s=np.where(follows >= 0, rng.integers(0, 50, count) * TICK_S, 0.0),
        prompt_tokens=prompt,
        output_tokens=output,
        priority=rng.integers(0, 3, count).astype(np.int32),
        span_start=np.arange(count, dtype=np.int64) * 2,
        span_count=np.full(count, 2, np.int32),
        span_content=np.stack([families, content], axis=1).ravel(),
        span_end=np.stack([rng.integers(1, 60, 4)[families], np.full(count, OPEN_END)], axis=1)
        .astype(np.int32)
        .ravel(),
    )
