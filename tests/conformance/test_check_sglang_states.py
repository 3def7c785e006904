"""Pools of SSM states are compared with SGLang's own code, and a difference would be seen."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.components import sglang_states
from conformance.components.sglang_states import check_sglang_states, random_states_cases


@pytest.mark.slow
def test_pools_are_those_of_sglang_s_own_code(sglang_python: Path) -> None:
    assert check_sglang_states(sglang_python, num_cases=100, seed=secrets.randbelow(2**31)) == {}


@pytest.mark.parametrize("planted", ["slots", "left", "per_request", "kernel_chunk"])
def test_a_planted_difference_is_found(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang's side is our own with one figure changed."""
    cases = list(random_states_cases(3, 4))
    answers = [{"name": case.name, **case.ours()} for case in cases]
    assert planted in answers[0]

    def altered(*_: Any, **__: Any) -> Iterator[dict[str, Any]]:
        yield {"sglang_version": "0"}
        yield answers[0] | {planted: answers[0][planted] + 1}
        yield from answers[1:]

    monkeypatch.setattr(sglang_states, "probe_records", altered)
    found = check_sglang_states(Path("unused"), num_cases=4, seed=3)
    assert list(found) == [f"0 ({cases[0].model})"]
