"""KV pools of models with sliding windows are compared with SGLang's own code, and a difference would be seen."""

import secrets
from pathlib import Path

import pytest

from conformance.components.sglang_pools import check_sglang_pools
from kvcache.memory import window_pools


@pytest.mark.slow
def test_pools_are_those_of_sglang_s_own_code(sglang_python: Path) -> None:
    assert check_sglang_pools(sglang_python, num_cases=50, seed=secrets.randbelow(2**31)) == {}


@pytest.mark.slow
def test_a_wrong_window_would_be_seen(sglang_python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(window_pools._OWN_POOL, "gpt_oss", 0)
    found = check_sglang_pools(sglang_python, num_cases=25, seed=1)
    assert found and all("gpt-oss" in name for name in found)
