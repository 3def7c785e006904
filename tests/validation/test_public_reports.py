"""What people published of other GPUs is simulated as well as the pages say."""

import pytest

from tests.validation.data import DATA, needs_data
from validation.accuracy.public_reports import BURST, CLOSED_LOOP, LOADS, load_of, public_reports

# GPU, kind of server: the most that the median error of TPOT may be in %.
MOST = {
    ("a100-80gb", "eager"): 15,
    ("a100-pcie-80gb", "TP 2"): 20,
    ("a100-80gb", "one GPU"): 20,
    ("b200-sxm", "one GPU"): 20,
    ("mi300x", "one GPU"): 20,
}


@pytest.mark.slow
@needs_data
def test_published_points_of_gpus_without_runs_are_within_a_fifth_and_inside_their_intervals() -> None:
    found = public_reports(DATA)
    rows = {(row["gpu"], row["kind"]): row for row in found["rows"]}
    for name, most in MOST.items():
        assert rows[name]["tpot"] <= most, name
        assert rows[name]["inside"] == rows[name]["judged"], name
    assert rows["a100-80gb", "eager"]["tpot_worst"] <= 30
    assert [(row["load"], row["n"] > 0) for row in found["loads"]] == [(load, True) for load in LOADS]
    assert found["refused"] == ["vllm29217-l40s-qwen3vl32b-fp8"]  # the release has no text-only server


def test_a_burst_is_a_load_whose_clients_send_once() -> None:
    assert load_of(["--concurrency", "10", "--num-requests", "10"]) == BURST
    assert load_of(["--concurrency", "10", "--num-requests", "100"]) == CLOSED_LOOP
    assert load_of(["--rate", "16", "--num-requests", "500"]) == LOADS[0]
