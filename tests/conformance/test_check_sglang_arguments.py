"""Our defaults of SGLang's arguments are compared with SGLang's own code, and a difference would be seen."""

import secrets
from pathlib import Path

import pytest

from conformance.components.sglang_arguments import check_sglang_arguments
from simulator.engines.sglang import defaults


@pytest.mark.slow
def test_defaults_are_those_of_sglang_s_own_code(sglang_python: Path) -> None:
    assert check_sglang_arguments(sglang_python, num_cases=500, seed=secrets.randbelow(2**31)) == {}


@pytest.mark.slow
def test_a_wrong_default_would_be_seen(sglang_python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = defaults.prefill_graph_sizes
    monkeypatch.setattr(defaults, "prefill_graph_sizes", lambda longest: sizes(longest)[2:])
    found = check_sglang_arguments(sglang_python, num_cases=50, seed=1)
    assert any("mem_fraction_static" in each for each in found.values())
