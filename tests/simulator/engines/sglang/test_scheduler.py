"""The scheduler's laws: memory is conserved, budgets hold, every request ends; and what SGLang's words mean."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.cases.radix_cases import PAGE_SIZES
from conformance.cases.sglang_cases import STORM_EVERY, random_sglang_case
from conformance.reference.sglang.kv_cache import OutOfKVCacheError
from conformance.reference.sglang.scheduler import ForwardMode, Plan, Scheduler
from conformance.sglang_scheduler import OurLoop, our_batches
from simulator.engines.sglang.engine import SCHEDULE_POLICIES, EngineConfig
from simulator.engines.sglang.request import Request

ONE_ROUND = len(PAGE_SIZES) * len(SCHEDULE_POLICIES)


def engine(**given: Any) -> Scheduler:
    defaults: dict[str, Any] = {"max_total_num_tokens": 1000, "context_len": 1000, "max_running_requests": 8}
    return Scheduler(EngineConfig(**{**defaults, **given}))


def request(number: int, prompt: int = 100, new: int = 10, **given: Any) -> Request:
    defaults: dict[str, Any] = {"spans": ((number, 10_000),)}
    return Request(id=number, num_prompt_tokens=prompt, max_new_tokens=new, **{**defaults, **given})


def turn(scheduler: Scheduler) -> Plan:
    """One batch, processed at once."""
    plan = scheduler.schedule()
    scheduler.complete(plan)
    return plan


def ids(plan: Plan) -> list[int]:
    return [request.id for request in plan.num_tokens]


@settings(max_examples=4)
@given(st.integers(0, 10_000), st.integers(0, ONE_ROUND * STORM_EVERY - 1))
def test_memory_is_conserved_and_every_request_ends(seed: int, number: int) -> None:
    loop = OurLoop(random_sglang_case(seed, number))
    cache, config = loop.scheduler.cache, loop.case.engine
    try:
        while loop.turn():
            held = [each for each in loop.requests if each.holds_kv]
            own_pages = sum(cache.pool.pages_of(each.cache_protected_len, each.kv_len) for each in held)
            in_tree = cache.tree.evictable_size + cache.tree.protected_size
            assert cache.pool.num_pages == cache.pool.num_free_pages + own_pages + in_tree // config.page_size
            assert cache.num_free_rows == config.max_running_requests - len(held) >= 0
            assert all(each.num_output_tokens <= max(each.max_new_tokens, 1) for each in held)
    except OutOfKVCacheError:
        return
    assert not loop.scheduler.has_unfinished_requests
    assert cache.tree.protected_size == 0
    ended = Counter(row for batch in loop.records for row in (*batch["finished"], *batch["aborted"]))
    assert ended == Counter(range(len(loop.requests)))


@settings(max_examples=4)
@given(st.integers(0, 10_000), st.integers(0, ONE_ROUND - 1))
def test_no_batch_exceeds_its_budgets(seed: int, number: int) -> None:
    case = random_sglang_case(seed, number)
    config = case.engine
    for batch in our_batches(case)[0]:
        tokens = sum(tokens for _, tokens in batch["scheduled"])
        assert len(batch["scheduled"]) <= config.max_running_requests + bool(batch["prefixes"])
        assert batch["mode"] != "decode" or tokens == len(batch["scheduled"])
        if batch["mode"] == "extend" and config.chunked_prefill_size is not None:
            assert tokens <= config.chunked_prefill_size


def test_the_same_case_is_decided_the_same_way() -> None:
    assert our_batches(random_sglang_case(1, 6)) == our_batches(random_sglang_case(1, 6))


def test_a_prefill_goes_before_every_decode() -> None:
    scheduler = engine(disable_overlap_schedule=True)
    scheduler.add_request(request(1))
    assert turn(scheduler).forward_mode is ForwardMode.EXTEND
    assert turn(scheduler).forward_mode is ForwardMode.DECODE
    scheduler.add_request(request(2))
    plan = turn(scheduler)
    assert (plan.forward_mode, ids(plan)) == (ForwardMode.EXTEND, [2])
    assert ids(turn(scheduler)) == [1, 2]


def test_a_long_prompt_is_cut_and_goes_on_first() -> None:
    scheduler = engine(chunked_prefill_size=64, disable_overlap_schedule=True)
    scheduler.add_request(request(1, prompt=100))
    scheduler.add_request(request(2, prompt=20))
    assert [*turn(scheduler).num_tokens.values()] == [64]
    plan = turn(scheduler)
    assert ids(plan) == [1, 2]
    assert [*plan.num_tokens.values()] == [36, 20]


def test_a_mixed_batch_decodes_beside_a_prefill() -> None:
    scheduler = engine(enable_mixed_chunk=True, chunked_prefill_size=64, disable_overlap_schedule=True)
    scheduler.add_request(request(1, prompt=30))
    turn(scheduler)
    scheduler.add_request(request(2, prompt=30))
    plan = turn(scheduler)
    assert (plan.forward_mode, ids(plan)) == (ForwardMode.MIXED, [2, 1])
    assert [*plan.num_tokens.values()] == [30, 1]


@pytest.mark.parametrize(("overlap", "places"), [(False, 2), (True, 3)])
def test_with_overlap_a_stop_token_is_seen_a_batch_late(overlap: bool, places: int) -> None:
    scheduler = engine(disable_overlap_schedule=not overlap)
    scheduler.add_request(request(1, num_tokens_to_stop=2))
    plans = [scheduler.schedule()]
    while scheduler.has_unfinished_requests and len(plans) < 9:
        if overlap:
            plans.append(scheduler.schedule())
            scheduler.complete(plans[-2])
        else:
            scheduler.complete(plans[-1])
            plans.append(scheduler.schedule())
    assert sum(1 in ids(plan) for plan in plans) == places


def test_the_next_turn_finds_prompt_and_answer_of_the_one_before() -> None:
    scheduler = engine(disable_overlap_schedule=True)
    scheduler.add_request(request(1, prompt=100, new=10))
    while scheduler.has_unfinished_requests:
        turn(scheduler)
    scheduler.add_request(request(2, prompt=200, spans=((1, 110), (2, 10_000))))
    assert [*turn(scheduler).prefix_lens.values()] == [109]  # the last token's KV was never computed


def test_a_full_cache_retracts_the_shortest_answer_to_the_queue_s_end() -> None:
    scheduler = engine(
        max_total_num_tokens=60, context_len=60, schedule_conservativeness=0.0, disable_overlap_schedule=True
    )
    for number in (1, 2, 3):
        scheduler.add_request(request(number, prompt=10, new=25))
        turn(scheduler)
    plans = [turn(scheduler) for _ in range(12)]
    retracted = [request.id for plan in plans for request in plan.retracted]
    assert retracted[0] == 3
    assert scheduler.new_token_ratio.current > 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"schedule_policy": "lifo"}, "schedule_policy is 'lifo'; choose one of fcfs, lof"),
        ({"radix_eviction_policy": "mru"}, "radix_eviction_policy is 'mru'; choose one of lru"),
        ({"page_size": 0}, "page_size is 0; give at least 1"),
        ({"max_total_num_tokens": -1}, "max_total_num_tokens is -1"),
        ({"page_size": 64, "chunked_prefill_size": 100}, "multiple of the page size"),
        ({"chunked_prefill_size": 0}, "chunked_prefill_size is 0"),
        ({"enable_mixed_chunk": True, "chunked_prefill_size": 8}, "leave no page"),
        ({"schedule_conservativeness": -0.1}, "give at least 0"),
        ({"schedule_policy": "shortest-prefill-first", "disable_radix_cache": True}, "needs the radix cache"),
    ],
)
def test_what_sglang_refuses_is_told(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        engine(**given)


def test_a_prompt_that_cannot_fit_is_refused() -> None:
    scheduler = engine(max_total_num_tokens=200)
    with pytest.raises(ValueError, match="SGLang takes less than 194"):
        scheduler.add_request(request(1, prompt=194))
    assert not scheduler.has_unfinished_requests


def test_an_answer_is_cut_to_what_memory_holds() -> None:
    scheduler = engine(max_total_num_tokens=200, page_size=16, chunked_prefill_size=None)
    longest = request(1, prompt=100, new=1000)
    scheduler.add_request(longest)
    assert longest.max_new_tokens == 200 - 112 - 16 - 1
