"""KV in host memory: what is kept, what goes, how copies follow each other."""

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.cases.scheduler_case import SchedulerCase
from conformance.cases.scheduler_cases import offloading_case, simulate, windowed_offloading_case
from conformance.offloading import EngineCore, readable_offloading_steps
from conformance.our_steps import core_steps
from conformance.probes.engine_loop import Load, run_with_transfers
from conformance.reference.vllm.connectors import offloading, offloading_lookup
from conformance.reference.vllm.connectors.offloading import OffloadingConnector
from conformance.reference.vllm.connectors.offloading_scheduler import OffloadingScheduler
from kvcache.layout.kv_layout import KVGroup
from simulator.engines.vllm.connectors.host_cache import (
    ARC,
    EVICTION_POLICIES,
    LRU,
    ARCCachePolicy,
    CacheAccess,
    ChunkKey,
    HostCache,
    RankedLRUCachePolicy,
)
from simulator.engines.vllm.connectors.host_tier import HostLink, HostTier, Transfer, Transfers
from simulator.engines.vllm.engine import EngineConfig, with_release_rules
from simulator.engines.vllm.speculation import Speculation

TIER = HostTier(num_chunks=8, chunk_s=0.25, transfer_s=1.0)
WINDOWED = KVGroup(64), KVGroup(None)
MakeCase = Callable[[int, int], SchedulerCase]


def stored(cache: HostCache, *indices: int, access: CacheAccess | None = None) -> bool:
    """Offered by one request and written at once; False where no room was found."""
    access = CacheAccess() if access is None else access
    new = cache.prepare_store([(0, index, 0) for index in indices], access)
    cache.complete_store(new or ())
    return new is not None


def used_again(cache: HostCache, *indices: int) -> None:
    """By a request that loads chunks and ends."""
    keys, access = [(0, index, 0) for index in indices], CacheAccess()
    cache.prepare_load(keys, access)
    cache.complete_load(keys)
    cache.policy.on_request_finished(access)


def held(cache: HostCache) -> list[int]:
    return [index for index in range(40) if cache.reads((0, index, 0)) is not None]


def test_the_chunk_that_was_used_longest_ago_goes_first() -> None:
    cache = HostCache(3)
    assert stored(cache, 0, 1, 2)
    used_again(cache, 0)
    assert stored(cache, 3)
    assert held(cache) == [0, 2, 3]


@pytest.mark.parametrize("policy", EVICTION_POLICIES)
def test_what_is_read_or_written_stays_and_an_offer_is_taken_as_a_whole(policy: str) -> None:
    cache = HostCache(3, policy)
    assert stored(cache, 0, 1)
    cache.prepare_load([(0, 0, 0)], CacheAccess())
    assert cache.prepare_store([(0, 2, 0)], CacheAccess()) == [(0, 2, 0)]
    assert not stored(cache, 3, 4)
    assert cache.reads((0, 1, 0)) == 0
    assert stored(cache, 3)
    assert cache.reads((0, 0, 0)) == 1


@pytest.mark.parametrize("policy", EVICTION_POLICIES)
def test_chunks_that_are_offered_with_new_ones_do_not_go_for_them(policy: str) -> None:
    cache = HostCache(2, policy)
    assert stored(cache, 0, 1)
    assert cache.prepare_store([(0, 0, 0), (0, 1, 0), (0, 2, 0)], CacheAccess()) is None


@pytest.mark.parametrize("policy", EVICTION_POLICIES)
@given(
    steps=st.lists(st.tuples(st.sampled_from(["store", "read", "done", "use"]), st.integers(0, 11)), max_size=60),
)
def test_the_cache_never_holds_more_than_its_chunks_nor_loses_one_that_is_read(
    policy: str, steps: list[tuple[str, int]]
) -> None:
    cache, read = HostCache(4, policy), list[ChunkKey]()
    for kind, number in steps:
        key = (0, number, 0)
        if kind == "store":
            stored(cache, number)
        elif kind == "read" and cache.reads(key) is not None:
            cache.prepare_load([key], CacheAccess())
            read.append(key)
        elif kind == "done" and read:
            cache.complete_load([read.pop()])
        elif kind == "use" and cache.reads(key) is not None:
            used_again(cache, number)
        assert len(cache) <= 4
        assert all(cache.reads(other) == read.count(other) for other in read)


def test_under_0_33_the_chunks_of_the_request_that_began_first_go_first_its_tail_before_its_head() -> None:
    cache, accesses = HostCache(4, ranks_requests=True), [CacheAccess(), CacheAccess()]
    assert stored(cache, 0, access=accesses[0])
    assert stored(cache, 20, 21, access=accesses[1])
    assert stored(cache, 1, access=accesses[0])
    for request, gone in ((30, 1), (31, 0), (32, 21)):
        assert stored(cache, request)
        assert cache.reads((0, gone, 0)) is None


def test_arc_keeps_what_was_used_twice_from_prompts_that_come_once() -> None:
    """A run of prompts that nobody asks for again drives everything out of an LRU cache, and nothing out of ARC's."""
    found = {}
    for policy in EVICTION_POLICIES:
        cache = HostCache(8, policy)
        assert stored(cache, 0, 1, 2, 3)
        used_again(cache, 0, 1, 2, 3)
        for index in range(10, 30):
            assert stored(cache, index)
        found[policy] = [index for index in held(cache) if index < 10]
    assert found == {LRU: [], ARC: [0, 1, 2, 3]}


def test_arc_leaves_more_room_to_new_chunks_when_some_that_went_are_asked_for() -> None:
    cache = HostCache(4, ARC)
    assert isinstance(cache.policy, ARCCachePolicy)
    for index in range(6):
        assert stored(cache, index)
    assert list(cache.policy.b1) == [(0, 0, 0), (0, 1, 0)] and cache.policy.target_t1_size == 0
    access = CacheAccess()
    assert stored(cache, 0, access=access)
    assert cache.policy.target_t1_size == 1
    assert stored(cache, 0, access=access)  # the same request once more: nothing is learnt
    assert cache.policy.target_t1_size == 1
    used_again(cache, 0)
    assert list(cache.policy.t2) == [(0, 0, 0)]


def copy(num_chunks: int, *, is_store: bool) -> Transfer:
    return Transfer(request=0, is_store=is_store, keys=[(0, index, 0) for index in range(num_chunks)])


def test_copies_of_one_direction_follow_each_other_and_those_of_the_other_run_beside_them() -> None:
    link = HostLink(TIER)
    loads = [copy(4, is_store=False), copy(8, is_store=False)]
    store = copy(4, is_store=True)
    link.launch(Transfers(loads=loads, stores=[store]), 10.0)  # a step of 10 s: its copies follow
    link.before_step(Transfers(), 10.0)
    assert link.under_way(11.9) == {*loads, store}
    assert link.under_way(12.0) == {loads[1]}
    assert link.under_way(15.0) == set()


def test_a_step_waits_for_a_store_whose_blocks_it_hands_out_again() -> None:
    link, store = HostLink(TIER), copy(4, is_store=True)
    link.launch(Transfers(stores=[store]), 10.0)
    assert link.before_step(Transfers(awaited={store}), 10.0) == 12.0
    told = Transfers()
    link.launch(told, 13.0)
    assert told.over == [store]


@pytest.mark.parametrize(
    ("given_values", "message"),
    [
        ({"num_chunks": 0}, "must hold 1 block of KV at least: raise --kv-offloading-size"),
        ({"chunk_s": -1.0}, "chunk_s is -1.0; it must be a finite time of 0 s or more"),
        ({"transfer_s": float("nan")}, "transfer_s is nan"),
        ({"chunk_s": float("inf")}, "chunk_s is inf"),
        ({"eviction_policy": "ark"}, "no eviction_policy 'ark'; did you mean 'arc'"),
    ],
)
def test_a_tier_that_cannot_be_is_refused(given_values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        HostTier(**{"num_chunks": 8, "chunk_s": 0.1} | given_values)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"kv_groups": WINDOWED, "host_lru_ranks_requests": False}, "sliding windows before vLLM 0.33"),
        ({"kv_groups": WINDOWED, "host_tier": replace(TIER, is_shared=True)}, "models whose layers do not all attend"),
        ({"kv_groups": (KVGroup(64, chunked=True), KVGroup(None))}, "chunked attention or layers with KV blocks"),
        ({"pipeline_parallel_size": 2}, "pipeline parallelism"),
        (
            {"speculation": Speculation(method="ngram", num_speculative_tokens=2, acceptance_rate=0.5)},
            "speculative decoding",
        ),
    ],
)
def test_what_is_not_simulated_with_a_tier_is_refused(settings: dict[str, Any], what: str) -> None:
    sizes = {"num_gpu_blocks": 99, "max_model_len": 99, "max_num_seqs": 9, "max_num_batched_tokens": 99}
    with pytest.raises(ValueError, match=f"is not simulated with {what}.*; leave --kv-(offloading|store)-size out"):
        EngineConfig(**sizes, **({"host_tier": TIER} | settings))


@pytest.mark.parametrize("make", [offloading_case, windowed_offloading_case])
@pytest.mark.parametrize("number", range(12))
def test_every_block_and_chunk_is_free_or_held_when_all_is_over(make: MakeCase, number: int) -> None:
    case = make(3, number)
    load = Load(case.to_json()["requests"])
    core = EngineCore(case, load)
    run_with_transfers(load, core, max_steps=3000)
    core.offloading.blocks.pool.check()
    if core.has_unfinished:
        return
    assert core.offloading.blocks.pool.num_free == case.engine.num_gpu_blocks - 1
    assert not core.offloading.connector.transfers


def no_wait(link: HostLink, asked: Transfers, now_s: float) -> float:
    link._now_s = max(link._now_s, now_s)
    link._submit(link.unsubmitted)
    link.unsubmitted = []
    return now_s


def receive_without_caching(scheduler: OffloadingScheduler, request: Any) -> bool:
    if request not in scheduler._loaded:
        return False
    scheduler._loading.discard(request)
    scheduler._loaded.discard(request)
    request.num_computed_tokens = min(request.num_computed_tokens, request.num_tokens - 1)
    return True


@pytest.mark.parametrize("vllm_version", ["0.32.0", "0.33.0"])
@pytest.mark.parametrize("number", range(20))
def test_the_compiled_core_decides_as_the_readable_scheduler(number: int, vllm_version: str) -> None:
    case = offloading_case(7, number)
    case = replace(case, engine=with_release_rules(case.engine, vllm_version))
    readable, core = compared(readable_offloading_steps(case)), compared(core_steps(case))
    assert readable[: len(core)] == core  # a stalled core ends, the readable scheduler waits for the next arrival


@pytest.mark.parametrize("number", range(20))
def test_the_compiled_core_keeps_windows_in_cpu_memory_as_the_readable_scheduler(number: int) -> None:
    case = windowed_offloading_case(7, number)
    readable, core = compared(readable_offloading_steps(case)), compared(core_steps(case))
    assert readable[: len(core)] == core


@pytest.mark.slow
def test_the_compiled_core_keeps_windows_as_the_readable_scheduler_in_many_cases() -> None:
    """A new seed each time."""
    seed = secrets.randbelow(2**31)
    found = num_steps = 0
    for number in range(150):
        case = windowed_offloading_case(seed, number)
        readable, core = compared(readable_offloading_steps(case)), compared(core_steps(case))
        assert readable[: len(core)] == core, (seed, number)
        num_steps += len(core)
        found += bool(simulate(case).totals["host_hit_tokens"].sum())
    assert num_steps > 20_000 and found > 20


@pytest.mark.parametrize("number", range(12))
def test_no_block_stays_watched_and_no_chunk_is_lost_when_all_is_over(number: int) -> None:
    case = windowed_offloading_case(5, number)
    simulation = simulate(case)
    arrays = simulation.arrays
    if np.isnan(simulation.requests["finish_s"]).any():  # the pool is too small for someone
        return
    assert not arrays.fences.any()
    assert arrays.replicas["num_free_blocks"].tolist() == [case.engine.num_usable_blocks]
    assert case.engine.host_tier is not None
    cache, chunks = arrays.caches[0], arrays.chunks[0]
    of_windows = {int(chunk["key_index"]) % len(case.engine.kv_groups) for chunk in chunks[: cache["num_records"]]}
    assert of_windows <= set(range(len(case.engine.kv_groups)))
    assert cache["num_idle"] + cache["num_free"] == case.engine.host_tier.num_chunks


def compared(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what the core does not tell, and without the number of the step: it counts those without requests."""
    return [{name: value for name, value in step.items() if name not in ("resumed", "step")} for step in steps]


def test_a_dense_model_s_layers_may_be_named() -> None:
    groups = (KVGroup(None, layers=(0, 1)),)
    engine = EngineConfig(
        num_gpu_blocks=99, max_model_len=99, max_num_seqs=9, max_num_batched_tokens=99, host_tier=TIER, kv_groups=groups
    )
    assert engine.host_tier == TIER


def leading(cache: HostCache, keys: Sequence[ChunkKey], *_: int) -> int | None:
    return offloading_lookup._leading(cache, keys)


def one_more(config: EngineConfig, group: int) -> int | None:
    window = config.table_groups[group].window
    return None if window is None else -(-window // config.block_size) + 1


MUTANTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "an ended request's chunks do not count as used": (RankedLRUCachePolicy, "on_request_finished", lambda *_: None),
    "the request that saw a chunk first does not count": (RankedLRUCachePolicy, "on_request_access", lambda *_: None),
    "ARC never takes a chunk for one that is used again": (ARCCachePolicy, "on_request_finished", lambda *_: None),
    "ARC learns nothing from what went": (ARCCachePolicy, "on_store_miss", lambda *_: None),
    "a step never waits for a store": (HostLink, "before_step", no_wait),
    "a load leaves nothing free for others": (OffloadingScheduler, "_num_missing_blocks", lambda *_: 0),
    "blocks are freed while a step writes them": (OffloadingScheduler, "_may_preempt", lambda *_: True),
    "nothing is ever loaded": (offloading, "find_hit", lambda *_: 0),
    "what was loaded is not cached": (
        OffloadingScheduler,
        "_receive",
        receive_without_caching,
    ),
}


WINDOW_MUTANTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "what was given up and handed out is stored": (OffloadingConnector, "_drop_stale", lambda *_: None),
    "every block of a window is stored": (offloading, "is_retained", lambda *_: True),
    "a step never waits for a store": (HostLink, "before_step", no_wait),
    "a window's chunks are needed from the start": (offloading_lookup, "_last_window", leading),
    "a window needs a block more": (offloading_lookup, "loaded_window", one_more),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "mutant"),
    [*((offloading_case, name) for name in MUTANTS), *((windowed_offloading_case, name) for name in WINDOW_MUTANTS)],
)
def test_a_rule_of_offloading_that_were_wrong_would_be_seen(
    make: MakeCase, mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, name, wrong = (MUTANTS if make is offloading_case else WINDOW_MUTANTS)[mutant]
    for number in range(60):
        case = make(8, number)
        steps = readable_offloading_steps(case)
        with monkeypatch.context() as mutated:
            mutated.setattr(target, name, wrong)
            if readable_offloading_steps(case) != steps:
                return
    pytest.fail("no case differs")
