"""Our scheduler is compared with vLLM's, and a difference would be seen."""

import inspect
import json
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from conformance import scheduler as checker
from conformance.cases.features import features, main_options
from conformance.cases.scheduler_case import SchedulerCase
from conformance.cases.scheduler_cases import (
    ABOUT,
    CASES,
    EAGLE,
    REFUND,
    TEN,
    TWENTY,
    WATERMARK_ALONE,
    images_case,
    random_case,
    states_case,
)
from conformance.our_steps import core_steps, readable_steps
from conformance.reference.vllm import kv_cache_manager, scheduler, states
from conformance.reference.vllm.encoder import Encoder, EncoderCacheManager
from conformance.reference.vllm.kv_cache_manager import KVCacheManager
from conformance.reference.vllm.scheduler import Scheduler
from conformance.reference.vllm.states import tokens_up_to_state
from conformance.scheduler import Comparison, check_scheduler
from conformance.step_records import first_difference
from kvcache.layout.kv_layout import KVGroup
from kvcache.releases import NEWEST_RELEASE, SCHEDULER_RULES
from simulator.engines.vllm.engine import EngineConfig
from simulator.engines.vllm.speculation import Speculation


def test_a_case_is_decided_by_its_seed_and_number_alone() -> None:
    one, again, other = random_case(3, 5), random_case(3, 5), random_case(3, 6)
    assert json.dumps(one.to_json()) == json.dumps(again.to_json()) != json.dumps(other.to_json())


@pytest.mark.slow
def test_every_option_occurs_often_and_with_every_other() -> None:
    """At least 50 times in the 2,000 cases of a release, so 10 in 400; speculation with a pipeline is refused."""
    options: Counter[str] = Counter()
    pairs: Counter[tuple[str, ...]] = Counter()
    for number in range(400):
        case = random_case(0, number)
        options.update(f"{option}: {value}" for option, value in features(case).items())
        pairs.update(combinations(main_options(case), 2))
    assert len(options) == 22
    assert min(options.values()) >= 10, options
    together = {name for pair in pairs for name in pair}
    exclusive = {
        ("prefix caching: off", "prefix caching: on"),
        ("scheduling: asynchronous", "scheduling: synchronous"),
        ("latent attention", "window"),
        ("pipeline", "speculation"),
    }
    assert set(combinations(sorted(together), 2)) - set(pairs) == exclusive
    assert min(pairs.values()) >= 10, pairs


CHANGED_RULES: dict[str, Callable[[EngineConfig], EngineConfig]] = {
    **{
        name: lambda engine, name=name: replace(engine, **{name: False})  # type: ignore[misc]
        for name in SCHEDULER_RULES
    },
    "the window's length": lambda engine: with_windows(engine, lambda group: replace(group, window=group.window + 1)),
    "chunks for windows": lambda engine: with_windows(engine, lambda group: replace(group, chunked=not group.chunked)),
    "order of the groups": lambda engine: replace(engine, kv_groups=engine.kv_groups[::-1]),
    "checkpoints of states": lambda engine: replace(engine, kv_groups=with_checkpoints(engine.kv_groups)),
    "one state more": lambda engine: with_states(engine, 1),
    "blocks of equal size": lambda engine: replace(
        engine, kv_groups=tuple(replace(group, block_size=None) for group in engine.kv_groups)
    ),
    "which windows stay cached": lambda engine: replace(
        engine, prefix_cache_retention_interval=0 if engine.prefix_cache_retention_interval is None else None
    ),
    "one stage more": lambda engine: replace(
        engine, pipeline_parallel_size=engine.pipeline_parallel_size + (engine.pipeline_parallel_size > 1)
    ),
    "lookahead": lambda engine: with_method(engine, "draft_model", "ngram"),
    "the last hit": lambda engine: with_method(engine, "eagle", "ngram"),
    "one draft more": lambda engine: with_speculation(
        engine, lambda old: replace(old, num_speculative_tokens=old.num_speculative_tokens + 1)
    ),
}


RULES_ABOUT = {
    "states_are_fresh_once": "states",
    "checkpoints of states": "states",
    "host_lru_ranks_requests": "offloading",
    "restart_offers_again": "offloading",
    "idle_adapters_count": "lora",
    "prefill_interval_counts_own_steps": "interval",
}


def with_checkpoints(groups: tuple[KVGroup, ...]) -> tuple[KVGroup, ...]:
    return tuple(replace(group, states_per_request=5 - group.states_per_request) for group in groups)


def with_windows(engine: EngineConfig, change: Callable[[Any], KVGroup]) -> EngineConfig:
    groups = (group if group.window is None else change(group) for group in engine.kv_groups)
    return replace(engine, kv_groups=tuple(groups))


def with_states(engine: EngineConfig, more: int) -> EngineConfig:
    states = tuple(group for group in engine.kv_groups if group.is_state)
    return replace(engine, kv_groups=engine.kv_groups + states[:more])


def with_speculation(engine: EngineConfig, change: Callable[[Speculation], Speculation]) -> EngineConfig:
    return engine if engine.speculation is None else replace(engine, speculation=change(engine.speculation))


def with_method(engine: EngineConfig, old: str, new: str) -> EngineConfig:
    return with_speculation(engine, lambda found: replace(found, method=new if found.method == old else found.method))


@pytest.mark.slow
@pytest.mark.parametrize("rule", CHANGED_RULES)
def test_a_rule_that_were_wrong_would_be_seen(rule: str) -> None:
    """The cases have the power to tell: decided by another rule, several of them come out otherwise."""
    changed = 0
    for number in range(200):
        case, steps = decided_case(number, RULES_ABOUT.get(rule, "all"))
        try:
            other = replace(case, engine=CHANGED_RULES[rule](case.engine))
        except ValueError:  # the case cannot have that
            continue
        changed += other.engine != case.engine and core_steps(other) != steps
        if changed >= 2:
            return
    pytest.fail(f"{changed} of 200 cases differ")


@cache
def decided_case(number: int, about: str) -> tuple[SchedulerCase, list[dict[str, Any]]]:
    case = ABOUT[about](2, number)
    return case, core_steps(case)


@pytest.mark.slow
def test_many_cases_preempt_or_hit_prefixes() -> None:
    preempted = hit = 0
    for number in range(60):
        case = random_case(1, number)
        steps = core_steps(case)
        preempted += sum(len(step["preempted"]) for step in steps) >= 10
        hit += any(tokens > 0 for step in steps for tokens in step["new"].values())
    assert preempted >= 8
    assert hit >= 20


def test_groups_that_all_have_larger_blocks_than_the_smallest_are_no_other_case() -> None:
    """The core once counted them as blocks of the smallest size, and sought blocks that were not there for ever."""
    num_preemptions = 0
    for number in range(20):
        case = random_case(8, number)
        groups = tuple(KVGroup(20 * place, block_size=4 * case.engine.block_size) for place in range(1, 2 + number % 3))
        blocks = len(groups) * -(-case.engine.max_model_len // (4 * case.engine.block_size)) + 2 + number % 5
        engine = replace(
            case.engine, kv_groups=groups, num_gpu_blocks=blocks, enable_prefix_caching=False, speculation=None
        )
        case = replace(case, engine=engine, has_latent_attention=False)
        steps = readable_steps(case)
        assert first_difference(engine, core_steps(case), steps, of="compiled core", case=number) is None
        num_preemptions += sum(len(step["preempted"]) for step in steps)
    assert num_preemptions > 50


MUTANTS = {  # a method of the readable scheduler, what it does, what it must not do
    "the watermark counts though nothing runs": (WATERMARK_ALONE, "_admit", "if self.running else 0", ""),
    "a preempted request gives nothing back": (REFUND, "_schedule_running", "refund + slots if refund else 0", "0"),
    "it gives its drafting slot not back": (REFUND, "_schedule_running", "refund + slots if refund else 0", "refund"),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_scheduler_that_breaks_a_rare_rule_is_seen_within_200_cases(
    mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, name, right, wrong = MUTANTS[mutant]
    source = textwrap.dedent(inspect.getsource(getattr(Scheduler, name)))
    assert source.count(right) == 1
    names = dict(vars(scheduler))
    exec(source.replace(right, wrong), names)
    for number in range(kind, 200, TEN):
        case = random_case(6, number)
        steps = readable_steps(case)
        with monkeypatch.context() as mutated:
            mutated.setattr(Scheduler, name, names[name])
            if readable_steps(case) != steps:
                return
    pytest.fail("no case differs")


def test_hashes_that_covered_eagle_s_blocks_alone_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [random_case(6, number) for number in range(EAGLE, 200, TWENTY)]
    before = [readable_steps(case) for case in cases]
    monkeypatch.setattr(EngineConfig, "hash_lookahead_tokens", 0)
    assert sum(readable_steps(case) != steps for case, steps in zip(cases, before, strict=True)) >= len(cases) // 2


STATE_MUTANTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "a state can be gone on from at once": (KVCacheManager, "_is_fresh", lambda *_: False),
    "no chunk leaves a checkpoint": (kv_cache_manager, "leaves_checkpoint", lambda *_: False),
    "chunks end anywhere": (scheduler, "tokens_up_to_state", lambda _, chunk, *__: chunk.end - chunk.start),
    "another's prefix ends no chunk": (
        scheduler, "tokens_up_to_state", lambda config, chunk, known, _: tokens_up_to_state(config, chunk, known, 0)
    ),
    "a block larger than the budget waits": (
        states, "_aligned_end", lambda config, _, end: end // config.block_size * config.block_size
    ),
}  # fmt: skip


@pytest.mark.parametrize("mutant", STATE_MUTANTS)
def test_a_scheduler_that_keeps_states_otherwise_is_seen_within_60_cases(
    mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, name, wrong = STATE_MUTANTS[mutant]
    for number in range(60):
        case = states_case(8, number)
        steps = readable_steps(case)
        with monkeypatch.context() as mutated:
            mutated.setattr(target, name, wrong)
            if readable_steps(case) != steps:
                return
    pytest.fail("no case differs")


IMAGE_MUTANTS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "an image is never found in the cache": (EncoderCacheManager, "check_and_update_cache", lambda *_: False),
    "the budget does not count": (EncoderCacheManager, "can_allocate", lambda *_: True),
    "embeddings are kept until the request ends": (EncoderCacheManager, "free_computed", lambda *_: None),
    "a preempted request gives no budget back": (Encoder, "unschedule", lambda *_: None),
}  # fmt: skip


@pytest.mark.parametrize("mutant", IMAGE_MUTANTS)
def test_a_scheduler_that_encodes_otherwise_is_seen_within_200_cases(
    mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, name, wrong = IMAGE_MUTANTS[mutant]
    for number in range(200):
        case = images_case(8, number)
        steps = readable_steps(case)
        with monkeypatch.context() as mutated:
            mutated.setattr(target, name, wrong)
            try:
                if readable_steps(case) != steps:
                    return
            except (AssertionError, StopIteration, KeyError):  # its own bookkeeping breaks
                return
    pytest.fail("no case differs")


PLANTED = [
    "scheduled",
    "order",
    "preempted",
    "finished",
    "free_blocks",
    "running",
    "waiting",
    "new",
    "resumed",
    "extra",
]


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_difference_is_found(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's side is our own with one thing changed."""

    def altered(_python: Path, _cases: Any, found: Comparison) -> Iterator[list[dict[str, Any]]]:
        found.vllm_version = NEWEST_RELEASE
        theirs = deepcopy(steps_of_one_case())
        change(theirs, planted)
        yield theirs

    monkeypatch.setattr(checker, "_probe", altered)
    found = check_scheduler(Path("unused"), num_cases=1, seed=4)
    assert len(found.differences) == 1
    assert found.to_json()["differing_cases"] == 1


@cache
def steps_of_one_case() -> list[dict[str, Any]]:
    return readable_steps(random_case(4, 0))


def change(steps: list[dict[str, Any]], planted: str) -> None:
    step = next(step for step in steps[6:] if len(step["scheduled"]) > 1)
    if planted == "extra":
        steps.append(dict(step))
    elif planted == "scheduled":
        step["scheduled"] = {request: tokens + 1 for request, tokens in step["scheduled"].items()}
    elif planted == "order":
        step["scheduled"] = dict(reversed(step["scheduled"].items()))
    elif planted in ("new", "resumed"):
        step[planted] = {0: 123456}
    elif planted in ("preempted", "finished"):
        step[planted] = [*step[planted], 77]
    else:
        step[planted] += 1


@pytest.mark.parametrize("about", CASES)
@pytest.mark.parametrize("number", range(20))
def test_the_readable_scheduler_decides_as_the_compiled_core(number: int, about: str) -> None:
    case = CASES[about](7, number)
    alone = ("resumed", "encoded")  # the core does not tell
    readable = [{name: value for name, value in step.items() if name not in alone} for step in readable_steps(case)]
    core = core_steps(case)
    assert readable[: len(core)] == core  # a stalled core ends, the readable scheduler waits for the next arrival


def test_a_request_that_computes_nothing_refers_to_no_image() -> None:
    """The readable scheduler once let it: between two chunks, an image that it was within could not go."""
    case = images_case(11, 133)
    slots = [step["free_slots"] for step in readable_steps(case)]
    assert slots == [step["free_slots"] for step in core_steps(case)]


def test_an_interpreter_without_vllm_is_one_clear_error(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 'ModuleNotFoundError: No module named vllm' >&2\nexit 1\n", encoding="utf-8")
    fake.chmod(0o755)
    with pytest.raises(ValueError, match=r"could not be driven by .*python: ModuleNotFoundError: No module named vllm"):
        check_scheduler(fake, num_cases=1, seed=0)
