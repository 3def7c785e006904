"""Our defaults of SGLang's arguments are compared with SGLang's own code, and a difference would be seen."""

import secrets
from pathlib import Path

import pytest

from conformance.components.sglang_arguments import check_sglang_arguments
from simulator.engines.sglang import defaults, kernels


@pytest.mark.slow
def test_servers_start_as_sglang_s_own_code_resolves_them(sglang_python: Path) -> None:
    found = check_sglang_arguments(sglang_python, num_cases=660, seed=secrets.randbelow(2**31))
    assert found.differences == {}
    assert found.compared > 450, found.left_out


@pytest.mark.slow
def test_a_wrong_default_would_be_seen(sglang_python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = defaults.prefill_graph_sizes
    monkeypatch.setattr(defaults, "prefill_graph_sizes", lambda longest: sizes(longest)[2:])
    monkeypatch.setattr(kernels, "page_size", lambda args, *_: args.page_size or 1)
    found = check_sglang_arguments(sglang_python, num_cases=220, seed=1).differences
    assert {"mem_fraction_static", "page_size"} <= {name for each in found.values() for name in each}
