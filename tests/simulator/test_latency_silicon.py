"""Simulated closed-loop runs against runs of real vLLM."""

from pathlib import Path

import pytest

from tests.benchmark_module import benchmark_module

ROOT = Path(__file__).parents[2]
DATA = ROOT / "../shared/data"
DENSE_ROWS, TPOT_BAR_PERCENT, TTFT_BAR_PERCENT = 12, 12.0, 30.0


@pytest.mark.skipif(not (DATA / "measured" / "silicon_vllm_runs.csv").is_file(), reason="no measurements at hand")
@pytest.mark.parametrize("plain", [False, True])
def test_spread_dense_runs_are_within_the_bar(plain: bool) -> None:
    silicon = benchmark_module("silicon")
    settings, _ = silicon.read_settings(DATA)
    dense = sorted((item for item in settings if item.model in silicon.DENSE_MODELS), key=repr)
    rows, failed = silicon.compare(dense[:: len(dense) // DENSE_ROWS], plain=plain)
    assert failed == 0
    assert len(rows) >= DENSE_ROWS
    assert rows["tpot_error_percent"].abs().median() <= TPOT_BAR_PERCENT
    assert rows["ttft_error_percent"].abs().median() <= TTFT_BAR_PERCENT
