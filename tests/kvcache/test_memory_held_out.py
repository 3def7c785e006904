"""The memory model on models that its constants were not fitted on."""

from pathlib import Path

import pytest

from tests.benchmark_module import benchmark_module

DATA = Path(__file__).parents[3] / "shared" / "data"


@pytest.mark.skipif(not (DATA / "measured" / "kv_capacity.csv").is_file(), reason="no measurements at hand")
def test_kv_tokens_of_models_held_out_of_the_fit() -> None:
    memory = benchmark_module("memory")
    rows = memory.read_rows(DATA)
    assert len(rows) >= 25
    errors = memory.kv_errors(rows, [memory.held_out(row, rows) for row in rows])
    assert errors["mean"] < 1
    assert errors["worst"] < 5
