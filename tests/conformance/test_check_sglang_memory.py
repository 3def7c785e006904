"""SGLang's pools of windows and of SSM states are compared with its own code, and a difference would be seen."""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from conformance.components import sglang_memory
from conformance.components.sglang_memory import Differences
from conformance.components.sglang_pools import check_sglang_pools, random_pools_cases
from conformance.components.sglang_states import check_sglang_states, random_states_cases

CHECKS: Final[dict[str, tuple[Callable[..., Differences], Callable[..., Iterator[Any]]]]] = {
    "windows": (check_sglang_pools, random_pools_cases),
    "states": (check_sglang_states, random_states_cases),
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [("windows", 50), ("states", 100)])
def test_pools_are_those_of_sglang_s_own_code(kind: str, count: int, sglang_python: Path) -> None:
    check, _ = CHECKS[kind]
    assert check(sglang_python, num_cases=count, seed=secrets.randbelow(2**31)) == {}


@pytest.mark.parametrize(
    ("kind", "planted"),
    [
        *(("windows", name) for name in ("window", "window_kv_tokens", "max_total_num_tokens")),
        *(("states", name) for name in ("slots", "left", "per_request", "kernel_chunk")),
    ],
)
def test_a_planted_difference_is_found(kind: str, planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang's side is our own with one figure changed."""
    check, drawn = CHECKS[kind]
    cases = list(drawn(3, 4))
    answers = [{"name": case.name, **case.ours()} for case in cases]
    assert planted in answers[0]

    def altered(*_: Any, **__: Any) -> Iterator[dict[str, Any]]:
        yield {"sglang_version": "0"}
        yield answers[0] | {planted: answers[0][planted] + 1}
        yield from answers[1:]

    monkeypatch.setattr(sglang_memory, "probe_records", altered)
    found = check(Path("unused"), num_cases=4, seed=3)
    assert list(found) == [f"0 ({cases[0].model})"]
