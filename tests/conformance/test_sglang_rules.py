"""Every rule of SGLang's scheduler decides something in some case: a wrong one would be seen."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from conformance.cases.radix_cases import PAGE_SIZES
from conformance.cases.sglang_cases import (
    STORM_EVERY,
    drafting_sglang_case,
    random_sglang_case,
    stateful_drafting_sglang_case,
    stateful_sglang_case,
    windowed_sglang_case,
)
from conformance.reference.sglang import kv_cache, scheduler
from conformance.reference.sglang.kv_cache import KVCache
from conformance.reference.sglang.prefill_adder import PrefillAdder
from conformance.reference.sglang.schedule_policy import SchedulePolicy
from conformance.reference.sglang.scheduler import Plan, ScheduleBatch, Scheduler
from conformance.reference.sglang.state_slots import StateSlots
from conformance.sglang_scheduler import our_batches
from simulator.engines.sglang import new_token_ratio
from simulator.engines.sglang.engine import SCHEDULE_POLICIES, EngineConfig
from simulator.engines.sglang.new_token_ratio import NewTokenRatio
from simulator.engines.sglang.radix_cache import InsertResult, MatchResult, RadixCache, TreeNode
from simulator.engines.sglang.request import Request
from simulator.engines.sglang.tree_states import TreeStates
from simulator.engines.sglang.window_tokens import WindowTokens

CASES = [(seed, number) for seed in (8, 6) for number in range(len(PAGE_SIZES) * len(SCHEDULE_POLICIES) * STORM_EVERY)]
split, insert = RadixCache._split, RadixCache.insert
update_running_batch = Scheduler.update_running_batch


def split_without_use(tree: RadixCache, child: TreeNode, at: int) -> TreeNode:
    used_at = child.last_access_time
    front = split(tree, child, at)
    child.last_access_time = used_at
    return front


def insert_in_one_piece(tree: RadixCache, *given: Any, priority: int = 0, **options: Any) -> InsertResult:
    return insert(tree, *given, **options) if priority == 0 else InsertResult(0, tree.root)


def forget_the_first_prefill(engine: Scheduler) -> ScheduleBatch | None:
    engine.running_batch.extend_num_tokens = 0
    return update_running_batch(engine)


RULES: dict[str, tuple[Any, str, Any]] = {
    "a split counts as a use of the rest": (RadixCache, "_split", split_without_use),
    "an answer is a node of its own": (RadixCache, "insert", insert_in_one_piece),
    "running requests count with what they will write": (PrefillAdder, "_expected_tokens", lambda *_: 0),
    "a retraction evicts for those that stay": (scheduler, "RETRACT_DECODE_STEPS", 0),
    "a retraction sets the ratio": (NewTokenRatio, "after_retraction", lambda *_: None),
    "the ratio falls while decoding": (NewTokenRatio, "decay_step", lambda _: None),
    "the ratio is reset when idle": (NewTokenRatio, "reset", lambda _: None),
    "the ratio counts tokens yet to come": (new_token_ratio, "RETRACT_DECODE_STEPS", 0),
    "who ends by length leaves the next batch": (Scheduler, "_reqs_finishing_inflight", lambda _: set()),
    "waiting prefixes are kept": (SchedulePolicy, "_keep_prefixes", lambda *_: None),
    "one of two alike goes first": (SchedulePolicy, "_duplicates", lambda *_: set()),
    "a chunk leaves room for shorter prompts": (SchedulePolicy, "shortest_prefill_chunk_limit", lambda *_: None),
    "a decode counts its first prefill again": (Scheduler, "update_running_batch", forget_the_first_prefill),
}


match, give_window = RadixCache.match, RadixCache._give_window


def match_without_branches(tree: RadixCache, *given: Any) -> MatchResult:
    node, _ = match(tree, *given)
    return MatchResult(node, node.end)


def leave_tombstones(tree: RadixCache, node: TreeNode, start: int, window_start: int) -> int:
    return give_window(tree, node, start, window_start) if node.has_window else 0


OF_WINDOWS: dict[str, tuple[Any, str, Any]] = {
    "a window slides while a request decodes": (KVCache, "_slide_windows_of_decodes", lambda *_: None),
    "without a tree, it slides between chunks": (KVCache, "_slide_windows_of_chunks", lambda *_: None),
    "it slides now and then": (kv_cache, "WINDOW_EVICTION_INTERVAL", 1),
    "what is used is given up last": (WindowTokens, "touch", lambda *_: None),
    "a lock holds a window": (WindowTokens, "lock", lambda *_: 2**40),
    "the tree's knowledge ends a first insertion": (RadixCache, "match", match_without_branches),
    "a tombstone gets its window back": (RadixCache, "_give_window", leave_tombstones),
    "a new leaf ends with a window": (WindowTokens, "paged_window", 2**40),
    "admission counts windows": (PrefillAdder, "_window_tokens", lambda *_: 0),
    "a chunk waits for windows, or is cut": (PrefillAdder, "rem_window_tokens", 2.0**40),
}


OF_STATES: dict[str, tuple[Any, str, Any]] = {
    "a prefix ends where a state is": (RadixCache, "_is_usable", lambda *_: True),
    "what is used is given up last": (TreeStates, "touch", lambda *_: None),
    "what a match needs is taken at once": (StateSlots, "copy_matched", lambda *_: None),
    "who is not admitted gives it back": (StateSlots, "give_back", lambda *_: None),
    "a branch is tracked where it begins": (StateSlots, "branching_len", lambda *_: None),
    "an answer is tracked": (StateSlots, "track_decode", lambda *_: None),
    "a prompt is tracked": (StateSlots, "track_extend", lambda *_: None),
    "a slot in the middle of the tree is given up alone": (StateSlots, "drop", lambda slots, node: slots._evict(node)),
}


def commit_all(_: Scheduler, request: Request, plan: Plan, num_tokens: int) -> None:
    if request not in plan.prefix_lens:
        request.committed_len += num_tokens


OF_DRAFTS: dict[str, tuple[Any, str, Any]] = {
    "the tree knows pairs of tokens": (EngineConfig, "tree_has_bigrams", False),
    "drafts are verified": (Scheduler, "_num_verified", lambda *_: 1),
    "what ends in a mixed batch leaves its last token out": (Scheduler, "_commit", commit_all),
    "places are held for two verifications": (EngineConfig, "draft_reserve", 4),
}
OF_DRAFTS_WITH_STATES: dict[str, tuple[Any, str, Any]] = {
    "the last boundary that was passed is tracked": (StateSlots, "track_verified", lambda *_: None),
    "a state past the answer's end is not the tree's": (
        StateSlots,
        "_tracked",
        lambda _, request, __: request.tracked_len or 0,
    ),
}
BESIDE = {
    "windows": (OF_WINDOWS, windowed_sglang_case),
    "states": (OF_STATES, stateful_sglang_case),
    "drafts": (OF_DRAFTS, drafting_sglang_case),
    "drafts with states": (OF_DRAFTS_WITH_STATES, stateful_drafting_sglang_case),
}


@pytest.mark.slow
@pytest.mark.parametrize(("about", "rule"), [(about, rule) for about, (rules, _) in BESIDE.items() for rule in rules])
def test_a_case_with_a_pool_beside_comes_out_otherwise_without_the_rule(
    about: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules, drawn = BESIDE[about]
    place, name, instead = rules[rule]
    for seed, number in CASES:
        expected = with_a_pool_beside_as_it_is(about, seed, number)
        with monkeypatch.context() as changed:
            changed.setattr(place, name, instead)
            try:
                found: Any = our_batches(drawn(seed, number))
            except (AssertionError, KeyError, ValueError):
                return  # its own checks see it
        if found != expected:
            return
    pytest.fail(f"no case of {len(CASES)} shows that {rule}")


@cache
def with_a_pool_beside_as_it_is(about: str, seed: int, number: int) -> Any:
    return our_batches(BESIDE[about][1](seed, number))


@cache
def as_it_is(seed: int, number: int) -> Any:
    return our_batches(random_sglang_case(seed, number))


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_a_case_comes_out_otherwise_without_the_rule(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, name, instead = RULES[rule]
    known: Callable[[int, int], Any] = as_it_is
    for seed, number in CASES:
        expected = known(seed, number)
        with monkeypatch.context() as changed:
            changed.setattr(place, name, instead)
            if our_batches(random_sglang_case(seed, number)) != expected:
                return
    pytest.fail(f"no case of {len(CASES)} shows that {rule}")
