"""`headcount calibrate check-scheduler`: our decisions beside those of the real engines' own schedulers."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance import sglang_scheduler
from conformance.cases.scheduler_cases import CASES
from conformance.cases.sglang_cases import random_sglang_case
from conformance.checks import CHECKS
from conformance.sglang_scheduler import our_batches
from tests.headcount.conftest import Ran

Check = Callable[..., dict[str, Any]]


@pytest.fixture
def checked(headcount: Callable[..., Ran]) -> Check:
    """What the command found; its seed is a new one each time, so that every run looks at cases nobody has seen."""

    def run(*words: object) -> dict[str, Any]:
        done = headcount("calibrate", "check-scheduler", *words, "--json")
        assert done.code == 0, done
        found: dict[str, Any] = json.loads(done.out)
        assert found["differing_cases"] == 0
        return found

    return run


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--engine", "sgland"), "no engine 'sgland'; did you mean 'sglang'?"),
        (("--engine", "sglang", "--about", "lora"), "no --about of SGLang 'lora'; "),
        (("--python", "/nonexistent"), "/nonexistent is not a Python interpreter; give "),
    ],
)
def test_what_cannot_be_compared_is_told_in_one_line(
    words: tuple[str, ...], told: str, headcount: Callable[..., Ran]
) -> None:
    done = headcount("calibrate", "check-scheduler", *words)
    assert done.code == 2
    assert told in done.err
    assert "Traceback" not in done.err


def test_the_help_names_what_cases_can_be_about(headcount: Callable[..., Ran]) -> None:
    said = re.sub(r"-\s+", "-", headcount("calibrate", "check-scheduler", "--help").out)  # lines may end at a hyphen
    assert all(about in said for checks in CHECKS.values() for about in checks)


@pytest.mark.parametrize("differs", [False, True])
def test_a_difference_is_shown_and_ends_with_1(
    differs: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, headcount: Callable[..., Ran]
) -> None:
    """SGLang's side is our own, at last with one figure changed."""

    def altered(*_: Any, **__: Any) -> Any:
        yield {"sglang_version": "0.5.23"}
        batches, crashed = our_batches(random_sglang_case(4, 0))
        batches[20]["free"] += differs
        yield {"name": "4/0", "crashed": crashed, "records": batches}

    monkeypatch.setattr(sglang_scheduler, "probe_records", altered)
    monkeypatch.setattr("headcount.cli.commands.calibrate_check_scheduler.interpreter_for", lambda *_: tmp_path)
    done = headcount("calibrate", "check-scheduler", "--engine", "sglang", "--cases", 1, "--seed", 4)
    assert done.code == differs
    assert f"; {int(differs)} cases differ" in done.out
    assert ("ours: " in done.out) is differs


@pytest.mark.slow
@pytest.mark.parametrize("about", ["windows", "states", "speculative", "speculative-states", "speculative-windows"])
def test_no_batch_differs_from_sglang_s_own_scheduler_with_pools_beside_or_speculation(
    sglang_python: Path, checked: Check, about: str
) -> None:
    found = checked("--engine", "sglang", "--about", about, "--python", sglang_python, "--cases", 6)
    assert found["cases"] == 6
    assert found["batches"] > 500


@pytest.mark.slow
def test_no_batch_differs_from_sglang_s_own_scheduler(sglang_python: Path, checked: Check) -> None:
    found = checked("--engine", "sglang", "--python", sglang_python, "--cases", 100)
    assert found["cases"] == 100
    assert found["batches"] > 10_000
    assert found["retractions"] > 50
    assert found["radix_hits"] > 300


@pytest.mark.slow
def test_no_operation_is_answered_otherwise_than_by_sglang_s_own_trees(sglang_python: Path, checked: Check) -> None:
    found = checked("--engine", "sglang", "--about", "radix-tree", "--python", sglang_python, "--cases", 30)
    assert found["cases"] == 2 * 30  # in Rust, in Python
    assert found["hits"] > 1_000
    assert found["evictions"] > 200


@pytest.mark.slow
@pytest.mark.parametrize("about", [about for about in CASES if about != "compressed"])
def test_no_step_differs_from_vllm_s_own_scheduler(vllm_python: Path, checked: Check, about: str) -> None:
    found = checked("--about", about, "--python", vllm_python, "--cases", 200)
    assert found["cases"] == 200
    assert found["steps"] > 50_000
    assert found["preemptions"] > 500
    assert found["prefix_hits"] > 500
    assert found["resumed_hits"] > 100


@pytest.mark.slow
def test_no_step_differs_over_blocks_of_unequal_size(vllm_python: Path, checked: Check) -> None:
    found = checked("--about", "compressed", "--python", vllm_python, "--cases", 40)
    assert found["cases"] == found["options"]["block sizes: unequal"] == 40
    assert found["preemptions"] > 50
    assert found["prefix_hits"] > 100


@pytest.mark.slow
@pytest.mark.parametrize("about", ["offloading", "offloading-windows", "store"])
def test_no_step_differs_from_vllm_s_own_scheduler_with_a_host_tier(
    vllm_python: Path, checked: Check, about: str
) -> None:
    """vLLM's own connector decides on both of its sides."""
    found = checked("--about", about, "--python", vllm_python, "--cases", 40)
    assert found["cases"] == 40
    assert found["steps"] > 4_000
    assert found["prefix_hits"] > 50


@pytest.mark.slow
def test_no_step_differs_from_vllm_s_own_schedulers_with_prefill_and_decode_disaggregated(
    vllm_python: Path, checked: Check
) -> None:
    """The scheduler side of vLLM's own NixlConnector decides on both of its sides."""
    found = checked("--about", "disaggregated", "--python", vllm_python, "--cases", 100)
    assert found["cases"] == 100
    assert found["steps"] > 25_000
    assert found["preemptions"] > 100
    assert found["resumed_hits"] > 10


@pytest.mark.slow
def test_no_step_differs_from_vllm_s_own_schedulers_where_prefill_engines_push(
    vllm_python: Path, checked: Check
) -> None:
    """The same with its NixlPushConnector."""
    found = checked("--about", "push", "--python", vllm_python, "--cases", 60)
    assert found["cases"] == 60
    assert found["steps"] > 30_000
    assert found["preemptions"] > 60


@pytest.mark.slow
def test_no_choice_differs_from_vllm_s_own_balancer(vllm_python: Path, checked: Check) -> None:
    found = checked("--about", "balancer", "--python", vllm_python, "--cases", 40)
    assert found["cases"] == 40
    assert found["choices"] > 1_000
    assert found["reports"] > 100
