"""Worked cases of the published rules that routers follow, by hand."""

from types import SimpleNamespace
from typing import Any

import pytest

from simulator.fleet.router import find_router


def chosen(name: str, *views: dict[str, Any]) -> list[int]:
    """What one router decides on one view after the other; what a view leaves out is 0 for every engine."""
    router = find_router(name)
    made, found = router.make(1), []
    for given in views:
        count = len(next(value for value in given.values() if isinstance(value, list)))
        base: dict[str, Any] = {name: [0] * count for name in router.sees}
        base.update(
            num_engines=count, candidates=list(range(count)), prompt_tokens=100, session=1, last=None, time_s=0.0,
            role="serve",
        )  # fmt: skip
        found.append(made.choose(SimpleNamespace(**{**base, **given})))  # type: ignore[arg-type]
    return found


def test_vllm_s_balancer_takes_ties_in_turn() -> None:
    idle = {"outstanding": [0, 0, 0]}
    assert chosen("vllm-dp", idle, idle, idle, idle) == [0, 1, 2, 0]


def test_vllm_s_balancer_takes_the_larger_of_its_own_count_and_the_report() -> None:
    assert chosen("vllm-dp", {"outstanding": [1, 0], "running": [0, 3]}) == [0]
    assert chosen("vllm-dp", {"outstanding": [5, 0], "running": [0, 3]}) == [1]


def test_vllm_s_balancer_counts_what_it_sent_since_the_report_as_waiting() -> None:
    assert chosen("vllm-dp", {"outstanding": [0, 0], "running": [2, 0], "waiting": [0, 1], "sent": [0, 2]}) == [0]


def test_vllm_s_balancer_shuns_a_queue_where_the_kv_cache_is_full() -> None:
    """Two wait at 90 % usage: 2 + 2 × 6 × 0.4 = 6.8, between 6 and 7."""
    view = {"waiting": [2, 0], "kv_usage": [0.9, 0.2]}
    assert chosen("vllm-dp", {**view, "running": [0, 6]}, {**view, "running": [0, 7]}) == [1, 0]


def test_production_stack_goes_where_the_longest_prefix_went_whatever_the_load() -> None:
    assert chosen("prefixaware", {"matched_tokens": [32, 64, 0], "outstanding": [0, 99, 0]}) == [1]
    many = chosen("prefixaware", *[{"matched_tokens": [64, 0, 64]}] * 40)
    assert set(many) == {0, 2}


@pytest.mark.parametrize(
    ("matched", "loads", "expected"),
    [
        ([0, 31], [0, 64], 1),  # over 0.3 of the prompt; loads differ by no more than 64
        ([0, 30], [0, 64], 0),  # 0.3 is not over 0.3
        ([0, 100], [0, 65], 0),  # imbalanced
        ([0, 100], [131, 196], 1),  # by 65, but 196 is not over 1.5 × 131
        ([0, 100], [129, 195], 0),
    ],
)
@pytest.mark.parametrize("name", ["cache-aware", "vllm-cache-aware"])
def test_a_gateway_follows_the_cache_unless_loads_differ_by_both_thresholds(
    name: str, matched: list[int], loads: list[int], expected: int
) -> None:
    assert chosen(name, {"matched_tokens": matched, "outstanding": loads}) == [expected]


def test_of_engines_that_match_alike_sglang_s_gateway_takes_the_first_sent_and_vllm_s_the_least_loaded() -> None:
    view = {"matched_tokens": [90, 90, 50], "outstanding": [1, 3, 0]}
    assert chosen("cache-aware", {**view, "matched_at": [7, 2, 1]}) == [1]
    assert chosen("vllm-cache-aware", view) == [0]


def test_the_gateways_compare_a_match_with_the_threshold_in_the_precision_of_their_code() -> None:
    """As both real servers did: 0.7 in single precision is a little less than 0.7."""
    at_threshold = {"matched_tokens": [0, 70], "outstanding": [0, 1]}
    assert chosen("cache-aware:cache_threshold=0.7", at_threshold) == [0]
    assert chosen("vllm-cache-aware:cache_threshold=0.7", at_threshold) == [1]


def test_llm_d_s_default_profile_sums_queue_cache_and_prefix() -> None:
    """2 × queue + 2 × free cache + 3 × prefix: 0 + 2 × 0.5 + 3 × 0.5 = 2.5 beside 2 + 2 × 0.2 = 2.4, then 2.6."""
    view = {"waiting": [4, 0], "matched_tokens": [64, 0], "prompt_tokens": 128}
    assert chosen("llm-d", {**view, "kv_usage": [0.5, 0.8]}, {**view, "kv_usage": [0.5, 0.7]}) == [0, 1]


def test_llm_d_sends_prompts_that_match_nowhere_in_turn_with_its_no_hit_scorer() -> None:
    cold = {"matched_tokens": [0, 0, 0], "prompt_tokens": 640}
    assert sorted(chosen("llm-d:no_hit_lru_scorer=2", *[cold] * 3)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("given", "tokens", "expected"),
    [
        (":maxTTFTPenaltyMs=0", [10**6, 0, 0], 0),  # always sticks
        ("", [286_000, 0, 1], 0),  # 286,000 / 15,928 is 17.96 s
        ("", [287_000, 0, 1], 1),
        (":affinityThreshold=0.9", [2_000, 0, 1], 1),  # 0.85 is not enough
    ],
)
def test_llm_d_s_guide_sticks_to_the_prefix_until_it_costs_too_much(
    given: str, tokens: list[int], expected: int
) -> None:
    view = {"matched_tokens": [17 * 64, 0, 0], "prompt_tokens": 20 * 64, "prefill_tokens": tokens}
    assert chosen("llm-d-optimized-baseline" + given, view) == [expected]


def test_dynamo_weighs_cached_blocks_against_prefill_and_active_blocks() -> None:
    """In blocks: 10 − 8 + 20 + 10 = 32 beside 10 + 4 of prefill and 10 + 7 active = 31, or with 9 active 33."""
    view = {"prompt_tokens": 160, "cached_tokens": [128, 0], "prefill_tokens": [0, 64]}
    for others, expected in ((7, 1), (9, 0)):
        assert chosen("dynamo-kv", {**view, "active_tokens": [320, 16 * others]}) == [expected]


def test_dynamo_counts_what_active_requests_share_once() -> None:
    view = {"prompt_tokens": 160, "active_tokens": [160, 16]}
    assert chosen("dynamo-kv", {**view, "shared_tokens": [0, 0]}, {**view, "shared_tokens": [160, 0]}) == [1, 0]


def test_aibrix_leaves_a_matching_engine_that_is_much_busier_than_the_mean() -> None:
    assert chosen("aibrix-prefix-cache", {"matched_tokens": [90, 0, 0], "outstanding": [4, 2, 1]}) == [2]
    assert chosen("aibrix-prefix-cache", {"matched_tokens": [90, 50, 0], "outstanding": [4, 2, 1]}) == [1]
    assert chosen("aibrix-prefix-cache", {"matched_tokens": [90, 0, 0], "outstanding": [3, 2, 1]}) == [0]
    assert chosen("aibrix-prefix-cache", {"matched_tokens": [90, 0, 0], "outstanding": [2, 2, 2]}) == [0]


def test_aibrix_lets_only_the_idlest_compete_where_loads_differ_by_more_than_8() -> None:
    assert chosen("aibrix-prefix-cache", {"matched_tokens": [90, 10, 0], "outstanding": [9, 0, 8]}) == [1]


def test_ray_serve_takes_those_that_know_least_where_little_matches() -> None:
    little = {"matched_tokens": [9, 0, 0], "known_tokens": [50, 20, 90]}
    assert chosen("ray-prefix", little, {**little, "matched_tokens": [10, 0, 0]}) == [1, 0]


def test_ray_serve_takes_the_shortest_queue_of_those_that_match_alike() -> None:
    assert chosen("ray-prefix", {"matched_tokens": [50, 50, 50, 0], "outstanding": [3, 2, 4, 0]}) == [1]


def test_a_session_stays_on_the_ring_and_few_move_when_an_engine_comes() -> None:
    before = chosen(
        "session", *[{"session": session, "candidates": [0, 1, 2], "last": [0] * 4} for session in range(400)]
    )
    after = chosen("session", *[{"session": session, "last": [0] * 4} for session in range(400)])
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {3}
    assert 60 <= len(moved) <= 140


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("serve", 1),  # 10 + 10 blocks against 10 - 9 + 10 + 2
        ("prefill", 1),  # active blocks count nothing: 10 against 10 - 9
        ("decode", 0),  # cached blocks count nothing: 10 against 10 + 4, as nothing is shared
    ],
)
def test_dynamo_s_routers_of_prefill_and_of_decode_engines_count_what_these_do(role: str, expected: int) -> None:
    view = {"prompt_tokens": 160, "cached_tokens": [0, 144], "active_tokens": [0, 32], "held_tokens": [0, 64]}
    assert chosen("dynamo-kv", {**view, "role": role}) == [expected]
    if role == "prefill":
        assert chosen("dynamo-kv", {**view, "active_tokens": [0, 1600], "role": role}) == [1]
    if role == "decode":
        assert chosen("dynamo-kv", {**view, "prefill_tokens": [1600, 0], "role": role}) == [0]


@pytest.mark.parametrize(("name", "expected"), [("dynamo-kv", 64), ("dynamo-kv:kv_cache_block_size=32", 32)])
def test_dynamo_counts_in_the_blocks_of_the_engines_unless_told_otherwise(name: str, expected: int) -> None:
    found = find_router(name, 64)
    assert found.parameters["kv_cache_block_size"] == expected == found.upkeep.chunk_tokens
    assert find_router(name).parameters["kv_cache_block_size"] in (16, expected)
