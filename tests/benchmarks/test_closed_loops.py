"""Simulated closed-loop runs against runs of real vLLM."""

from functools import partial

import pytest

from benchmarks.accuracy.closed_loops import DENSE_MODELS, compare
from benchmarks.measured.closed_loops import simulate
from benchmarks.measured.launches import Launch
from benchmarks.measured.settings import read_settings
from tests.benchmarks.data import DATA, needs_data

DENSE_ROWS, TPOT_BAR_PERCENT, TTFT_BAR_PERCENT = 12, 12.0, 30.0


@needs_data
@pytest.mark.parametrize("plain", [False, True])
def test_spread_dense_runs_are_within_the_bar(plain: bool) -> None:
    settings, _ = read_settings(DATA)
    dense = sorted((item for item in settings if item.model in DENSE_MODELS), key=repr)
    rows, failed = compare(
        dense[:: len(dense) // DENSE_ROWS], partial(simulate, launch=Launch()) if plain else simulate
    )
    assert failed == 0
    assert len(rows) >= DENSE_ROWS
    assert rows["tpot_error_percent"].abs().median() <= TPOT_BAR_PERCENT
    assert rows["ttft_error_percent"].abs().median() <= TTFT_BAR_PERCENT
