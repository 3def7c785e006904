"""Our deployments start where vLLM's own configuration code starts them, with the same settings."""

from pathlib import Path
from typing import Any

import pytest

import headcount as hc
from calibrate.interpreters.interpreters import imported_version
from conformance.components.cases.start_cases import LONGER_THAN_THE_MODEL, START_CASES
from conformance.components.starts import StartComparison, check_starts, compare, our_start
from kvcache.releases import NEWEST_RELEASE


@pytest.fixture(scope="module")
def found(vllm_python: Path) -> dict[str, StartComparison]:
    release = imported_version(vllm_python).split("+")[0]
    if release != NEWEST_RELEASE:
        pytest.skip(f"vLLM {release} keeps its checks elsewhere than {NEWEST_RELEASE}")
    return {each.name: each for each in check_starts(vllm_python, (*START_CASES, LONGER_THAN_THE_MODEL))}


@pytest.mark.slow
@pytest.mark.parametrize("name", [case.name for case in START_CASES])
def test_a_deployment_starts_where_vllm_starts_it_and_as_it_does(name: str, found: dict[str, StartComparison]) -> None:
    one = found[name]
    assert not one.differs, (one.ours, one.theirs, one.settings)


@pytest.mark.slow
def test_a_context_beyond_the_model_s_is_refused_by_vllm_and_warned_of_here(found: dict[str, StartComparison]) -> None:
    theirs = found[LONGER_THAN_THE_MODEL.name].theirs
    assert theirs is not None
    assert "is greater than the derived max_model_len" in theirs
    answer = hc.memory("qwen3-8b", "h100-sxm", **LONGER_THAN_THE_MODEL.args)
    assert any("the server starts only with" in each.text for each in answer.diagnostics)


def test_about_half_of_the_cases_are_refused() -> None:
    refused = [case for case in START_CASES if our_start(case, NEWEST_RELEASE)["refused"] is not None]
    assert len(START_CASES) >= 20
    assert 8 <= len(refused) <= len(START_CASES) - 8


def test_a_server_that_starts_on_one_side_alone_or_otherwise_would_be_seen() -> None:
    case = START_CASES[0]
    theirs: dict[str, Any] = {"vllm_version": NEWEST_RELEASE, **our_start(case, NEWEST_RELEASE)}
    assert not compare(case, theirs).differs
    assert compare(case, theirs | {"refused": "no"}).differs
    (setting,) = compare(case, theirs | {"max_num_seqs": 7}).settings
    assert setting == ("max_num_seqs", 1024, 7)
