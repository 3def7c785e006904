"""Our data-parallel ranks are compared with vLLM's, and a difference would be seen."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance import lockstep
from conformance.lockstep import LockstepCase, check_lockstep, core_ranks, lockstep_case, readable_ranks

FEW = 4  # cases of a quick test


def test_a_case_is_decided_by_its_seed_and_number_alone() -> None:
    assert lockstep_case(3, 5).to_json() == lockstep_case(3, 5).to_json() != lockstep_case(3, 6).to_json()


# Of seed 7: a request comes as a wave ends (2, 17, 24), an empty step preempts (50).
@pytest.mark.parametrize(
    ("seed", "number"), [*((5, number) for number in range(FEW)), (7, 2), (7, 17), (7, 24), (7, 50)]
)
def test_the_readable_ranks_and_the_core_decide_alike(seed: int, number: int) -> None:
    case = lockstep_case(seed, number)
    for ours, core in zip(readable_ranks(case), core_ranks(case), strict=True):
        assert [step["scheduled"] for step in ours] == [step["scheduled"] for step in core]


@pytest.mark.slow
@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), number=st.integers(0, 100))
def test_they_decide_alike_in_many_more_cases(seed: int, number: int) -> None:
    test_the_readable_ranks_and_the_core_decide_alike(seed, number)


def test_a_step_that_is_decided_otherwise_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def almost_ours(_: Path, __: str, lines: Iterator[dict[str, Any]], **___: Any) -> Iterator[dict[str, Any]]:
        yield {"vllm_version": "0.33.0"}
        for number, _line in enumerate(lines):
            for rank, steps in enumerate(readable_ranks(lockstep_case(1, number))):
                for step in steps:
                    yield step | {"rank": rank, "waiting": step["waiting"] + (number == 1 and step["step"] == 3)}
            yield {"case": number}

    monkeypatch.setattr(lockstep, "probe_records", almost_ours)
    found = check_lockstep(Path("python"), num_cases=3, seed=1)
    assert (found.cases, [difference.case for difference in found.differences]) == (3, [1])


def test_an_interval_lets_ranks_compute_prompts_in_the_same_steps() -> None:
    """Of cases with one, most are decided otherwise without it."""

    def plain(case: LockstepCase) -> LockstepCase:
        return replace(case, case=replace(case.case, engine=replace(case.case.engine, prefill_schedule_interval=1)))

    asked = [lockstep_case(2, number) for number in range(20)]
    asked = [case for case in asked if case.case.engine.prefill_schedule_interval > 1]
    assert sum(readable_ranks(case) != readable_ranks(plain(case)) for case in asked) >= len(asked) / 3


@pytest.mark.slow
def test_ranks_decide_as_vllm_s_own_engine_cores(vllm_python: Path) -> None:
    found = check_lockstep(vllm_python, num_cases=40, seed=7)
    assert found.differences == []
    assert found.deferred >= 10
