"""Real measurements, fitted in part and judged on the rest."""

import numpy as np
import pytest

from calibrate.check.runs import check_run
from tests.validation.data import DATA
from validation.accuracy.cycles import judge_cycles
from validation.accuracy.open_runs import judge_rtx
from validation.measured.request_logs import H100_PROMPTS, found_in_cache, h100_runs, rtx_replays

CYCLE_MEAN_PERCENT = 2.0
CYCLE_MEDIAN_PERCENT = 1.5  # found: 0.9 – 1.3; a repeated load's own scatter is a median of 0.4 – 0.8
RTX_PERCENT = 12.0  # with the shipped constants; found: 0.4 – 9.5

pytestmark = pytest.mark.skipif(
    not (DATA / "measured" / "h100_step_cycles.parquet").is_file(), reason="no measurements"
)


@pytest.mark.slow
def test_decode_cycles_held_out_are_within_the_bar() -> None:
    rows = list(judge_cycles(DATA))
    assert len(rows) == 3
    assert max(row["decode_median"] for row in rows) <= CYCLE_MEDIAN_PERCENT
    assert sum(row["decode_mean"] <= CYCLE_MEAN_PERCENT for row in rows) >= 2


def test_requests_on_rtx_gpus_are_predicted_and_told_to_be_overloaded() -> None:
    assert [check_run(item).is_overloaded for item in rtx_replays(DATA)] == [True, True]
    errors = [abs(value) for row in judge_rtx(DATA) for name, value in row.items() if name != "run"]
    assert len(errors) == 12
    assert max(errors) <= RTX_PERCENT


def test_prompts_of_the_h100_logs_come_back_after_100_requests_and_not_before() -> None:
    first_loads = list(h100_runs(DATA))[::2]
    assert len(first_loads) == 8
    for run in first_loads:
        assert run.requests is not None
        lengths = run.requests["prompt_tokens"].to_numpy()
        repeats = [np.mean(lengths[period:] == lengths[:-period]) for period in range(1, H100_PROMPTS + 1)]
        assert repeats[-1] > 0.97  # the others are neighbours that changed places
        assert max(repeats[:-1]) < 0.2


def test_a_prompt_is_found_from_the_second_time_on_and_a_system_prompt_before() -> None:
    found = found_in_cache(np.array([0, 8, 9, 99, 100, 101]), np.array([576, 576, 576, 577, 576, 577]), 100, 9)
    assert found.tolist() == [0, 0, 96, 96, 560, 576]
