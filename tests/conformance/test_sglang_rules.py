"""Every rule of SGLang's scheduler decides something in some case: a wrong one would be seen."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from conformance.cases.radix_cases import PAGE_SIZES
from conformance.cases.sglang_cases import STORM_EVERY, random_sglang_case
from conformance.reference.sglang import scheduler
from conformance.reference.sglang.prefill_adder import PrefillAdder
from conformance.reference.sglang.schedule_policy import SchedulePolicy
from conformance.reference.sglang.scheduler import ScheduleBatch, Scheduler
from conformance.sglang_scheduler import our_batches
from simulator.engines.sglang import new_token_ratio
from simulator.engines.sglang.engine import SCHEDULE_POLICIES
from simulator.engines.sglang.new_token_ratio import NewTokenRatio
from simulator.engines.sglang.radix_cache import InsertResult, RadixCache, TreeNode

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
