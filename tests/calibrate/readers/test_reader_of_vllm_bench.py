"""A result of vLLM's benchmark says what its options, its arrays and its failures were."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrate.check.run_figures import differences
from calibrate.readers import read_measured
from tests.calibrate.readers.one_run import RUN, only, written
from tests.calibrate.readers.result_writers import finished, vllm_result


def test_vllm_s_load_and_settings_are_read(tmp_path: Path) -> None:
    result = vllm_result(RUN) | {"tensor_parallel_size": "2", "enforce_eager": "True", "gpu": "h100", "burstiness": 0.5}
    run = only(written(tmp_path, result))
    assert dict(run.options) == {"model": "some/model", "tensor_parallel_size": 2, "enforce_eager": True}
    assert run.load["rate"] == math.inf
    assert (run.load["concurrency"], run.load["burstiness"], run.load["num_requests"]) == (4, 0.5, 4)
    assert run.load["input_len"] == pytest.approx((100 + 120 + 90) / 3)


@pytest.mark.parametrize("spelling", ["request_goodput", "request_goodput:"])
def test_both_spellings_of_goodput_are_read(spelling: str, tmp_path: Path) -> None:
    result = vllm_result(RUN)
    del result["request_goodput"]
    assert only(written(tmp_path, result | {spelling: 1.5})).aggregates["goodput_requests_per_s"] == 1.5


def test_a_result_without_details_has_figures_only(tmp_path: Path) -> None:
    run = only(written(tmp_path, vllm_result(RUN, detailed=False)))
    assert run.requests is None
    assert run.aggregates["ttft_s.mean"] == pytest.approx((0.030 + 0.045 + 0.025) / 3)
    assert dict(run.excluded) == {"failed": 1}
    assert "without --save-detailed" in run.notes[0]


def test_an_older_result_without_latencies_sums_its_gaps(tmp_path: Path) -> None:
    result = vllm_result(RUN)
    del result["latencies"], result["start_times"]
    table = only(written(tmp_path, result)).requests
    assert table is not None
    np.testing.assert_allclose(table["e2e_s"], [0.052, 0.144, 0.025])
    assert table["arrival_s"].isna().all()


def test_a_ramped_rate_is_no_rate(tmp_path: Path) -> None:
    run = only(written(tmp_path, vllm_result(RUN) | {"ramp_up_strategy": "linear"}))
    assert "rate" not in run.load
    assert "ramped up, linearly" in run.notes[0]


def test_arrays_of_unequal_length_are_refused(tmp_path: Path) -> None:
    result = vllm_result(RUN)
    result["ttfts"] = result["ttfts"][:-1]
    with pytest.raises(ValueError, match=r"unequal length .*input_lens 4, .*ttfts 3"):
        read_measured(written(tmp_path, result))


def test_a_run_of_embeddings_is_refused(tmp_path: Path) -> None:
    result = {"tokenizer_id": "m", "duration": 1.0, "completed": 3, "total_input_sequences": 3}
    with pytest.raises(ValueError, match="a run of embeddings"):
        read_measured(written(tmp_path, result))


@pytest.mark.parametrize(
    ("array", "value", "reason"),
    [
        ("output_lens", 0, "no output tokens"),
        ("input_lens", 0, "no prompt tokens"),
        ("ttfts", -0.1, "negative duration"),
        ("latencies", -1.0, "negative duration"),
        ("latencies", 0.001, "end before first token"),
        ("latencies", 0.0, "no end to end time"),
        ("ttfts", 0.0, "no time to first token"),
        ("ttfts", None, "no time to first token"),
        ("ttfts", math.inf, "infinite time or count"),
        ("start_times", "yesterday", "no time of sending"),
        ("itls", [0.01, -5.0], "negative duration"),
        ("errors", "Traceback", "failed"),
    ],
)
def test_a_request_that_cannot_be_is_counted_out(array: str, value: Any, reason: str, tmp_path: Path) -> None:
    result = vllm_result(finished(RUN))
    result[array][1] = value
    run = only(written(tmp_path, result))
    assert run.requests is not None
    assert list(run.requests["prompt_tokens"]) == [100, 90]
    assert dict(run.excluded) == {reason: 1}
    assert len(run.itl_s or ()) == 2


def test_a_tool_s_figure_that_its_requests_do_not_give_is_found(tmp_path: Path) -> None:
    result = vllm_result(RUN) | {"mean_ttft_ms": 50.0}
    (found,) = [found for found in differences(only(written(tmp_path, result))) if "ttft" in found.name]
    assert (found.name, found.tool) == ("ttft_s.mean", 0.05)
    assert found.relative == pytest.approx(-1 / 3)
