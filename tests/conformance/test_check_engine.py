"""Our schedule is compared with a real engine's at inference, and a difference would be seen."""

import json
import secrets
from collections.abc import Generator
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from conformance.cases.scheduler_case import SchedulerCase
from conformance.components import engine as checker
from conformance.components.cases.engine_cases import ATTENTIONS, NUM_REQUESTS, EngineCase, engine_case
from conformance.components.engine import check_engine
from conformance.our_steps import core_steps, readable_steps
from conformance.step_records import num_prefix_hits
from kvcache.releases import NEWEST_RELEASE


def test_a_case_is_decided_by_its_seed_alone() -> None:
    one, again, other = engine_case(3), engine_case(3), engine_case(4)
    assert json.dumps(one.to_json()) == json.dumps(again.to_json()) != json.dumps(other.to_json())


@pytest.mark.slow
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("seed", range(12))
def test_every_seed_s_case_is_worth_an_engine(seed: int, attention: str) -> None:
    case = engine_case(seed, attention).scheduler
    case.table.validate()
    steps = core_steps(case)
    assert len(steps) >= 1_000
    assert sum(len(step["preempted"]) for step in steps) >= 20
    assert num_prefix_hits(steps) >= 5
    assert sum(len(step["finished"]) for step in steps) == NUM_REQUESTS
    assert not case.engine.async_scheduling


def test_an_answer_s_content_is_shared_by_turns_of_one_session_alone() -> None:
    table = engine_case(5).scheduler.table
    tails, shared = table.span_content[1::2], table.span_end[::2]
    assert (shared < table.prompt_tokens).all()
    for row in range(1, NUM_REQUESTS):
        earlier = set(tails[:row].tolist())
        assert (tails[row] in earlier) == (table.follows[row] >= 0)


def test_the_engine_is_idle_between_the_two_waves() -> None:
    steps = core_steps(engine_case(0).scheduler)
    drained = [step["running"] + step["waiting"] == len(step["finished"]) for step in steps[:-1]]
    assert any(drained)


@pytest.mark.slow
def test_a_hybrid_case_has_a_layer_of_the_model_for_each_group() -> None:
    for seed in range(10):
        case = engine_case(seed, "hybrid")
        windows = [group.window for group in case.scheduler.engine.kv_groups]
        assert case.model["num_hidden_layers"] == len(case.model["layer_types"]) == len(windows)
        assert windows == [case.model["sliding_window"]] * (len(windows) - 1) + [None]


def replay(monkeypatch: pytest.MonkeyPatch, start: dict[str, Any], steps: list[dict[str, Any]]) -> None:
    """vLLM's side is told what to answer."""

    def told(*_: Any, **__: Any) -> Generator[dict[str, Any]]:
        yield start
        yield from steps

    monkeypatch.setattr(checker, "probe_records", told)


@cache
def own_steps(seed: int) -> list[dict[str, Any]]:
    return readable_steps(engine_case(seed).scheduler)


def own_answer(seed: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Our own side in vLLM's words."""
    case, steps = engine_case(seed).scheduler, deepcopy(own_steps(seed))
    start = {
        "vllm_version": NEWEST_RELEASE,
        "settings": {"block_size": case.engine.block_size, "async_scheduling": False},
        "kv_cache_groups": [{"spec": "FullAttentionSpec", "sliding_window": None}],
    }
    return start, steps


@pytest.mark.slow
def test_an_engine_that_decides_as_we_do_differs_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    start, steps = own_answer(2)
    replay(monkeypatch, start, steps)
    found = check_engine(Path("unused"), seed=2)
    assert found.difference is None
    assert found.steps == len(steps)
    assert found.preemptions >= 20
    assert found.prefix_hits >= 20
    assert found.finished == NUM_REQUESTS
    assert json.loads(json.dumps(found.to_json()))["difference"] is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "planted", ["scheduled", "preempted", "finished", "free_blocks", "running", "waiting", "new", "extra", "missing"]
)
def test_a_planted_difference_is_found(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    start, steps = own_answer(2)
    change(steps, planted)
    replay(monkeypatch, start, steps)
    found = check_engine(Path("unused"), seed=2)
    assert found.difference is not None
    told = json.loads(json.dumps(found.to_json()))["difference"]
    if planted == "missing":
        assert told["vllm"] is None
    elif planted == "extra":
        assert told["ours"] is None
    else:
        assert told["vllm"]["step"] == 801


def change(steps: list[dict[str, Any]], planted: str) -> None:
    step = steps[800]
    if planted == "extra":
        steps.append(dict(step))
    elif planted == "missing":
        steps.pop()
    elif planted == "scheduled":
        step["scheduled"] = {request: tokens + 1 for request, tokens in step["scheduled"].items()}
    elif planted == "new":
        step["new"] = {0: 123456}
    elif planted in ("preempted", "finished"):
        step[planted] = [*step[planted], 77]
    else:
        step[planted] += 1


def test_settings_that_the_engine_changed_are_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    start, steps = own_answer(2)
    replay(monkeypatch, start | {"settings": {"block_size": 128}}, steps)
    with pytest.raises(
        ValueError, match=rf"vLLM {NEWEST_RELEASE} runs with settings of its own: block_size is 128, not 32"
    ):
        check_engine(Path("unused"), seed=2)


def test_layer_groups_that_the_case_has_not_are_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    start, steps = own_answer(2)
    start["kv_cache_groups"] = [{"sliding_window": 64}, {"sliding_window": None}]
    replay(monkeypatch, start, steps)
    with pytest.raises(ValueError, match=r"its layer groups have the windows \[64, None\], not \[None\]"):
        check_engine(Path("unused"), seed=2)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'ModuleNotFoundError: No module named vllm' >&2\nexit 1", "ModuleNotFoundError: No module named vllm"),
        ("exit 0", "it printed nothing"),
    ],
)
def test_an_interpreter_without_vllm_is_one_clear_error(script: str, message: str, tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    fake.chmod(0o755)
    with pytest.raises(ValueError, match=rf"could not be run by .*python: {message}"):
        check_engine(fake, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_no_step_differs_from_a_real_engine_s_at_inference(inferring_vllm_python: Path, attention: str) -> None:
    """A new seed each time, so that every run looks at a load that nobody has seen."""
    seed = secrets.randbelow(2**31)
    print(f"seed {seed}")
    found = check_engine(inferring_vllm_python, seed=seed, attention=attention)
    assert found.difference is None, (seed, found.difference)
    assert found.steps >= 1_000
    assert found.preemptions >= 20
    assert found.prefix_hits >= 5
    assert found.finished == NUM_REQUESTS


@pytest.mark.slow
def test_a_real_engine_differs_from_a_core_with_one_block_less(
    inferring_vllm_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the comparison is worth: the engine at inference is seen to differ from another pool's schedule."""

    def smaller(case: EngineCase, _version: str) -> SchedulerCase:
        engine = case.scheduler.engine
        return replace(case.scheduler, engine=replace(engine, num_gpu_blocks=engine.num_gpu_blocks - 1))

    monkeypatch.setattr(checker, "_of_release", smaller)
    assert check_engine(inferring_vllm_python, seed=0).difference is not None
