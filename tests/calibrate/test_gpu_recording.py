"""A recording of real vLLM 0.26 on one H200: what constants that never saw it say of its steps and its memory."""

import numpy as np
import pytest

from benchmarks.recorded_steps import FOLDER
from calibrate.check.steps import CHUNKS, DECODES, check_steps, recorded_deployment
from calibrate.fit.steps import errors_percent, fit_steps, steps_of
from calibrate.record.recording_files import read_recording
from kvcache.gpus.gpu import find_gpu
from kvcache.models.catalog import load_model
from simulator.engines.memory import memory_budget
from simulator.latency.gpu_constants import constants_for

RECORDING = read_recording(FOLDER)


def test_steps_that_no_fit_saw_take_about_what_shipped_constants_say() -> None:
    tables = check_steps(RECORDING, {}).tables
    decode, chunk = tables[DECODES], tables[CHUNKS]
    assert len(decode) >= 20 and len(chunk) >= 4
    assert decode["error"].abs().max() <= 12
    assert decode["error"].abs().median() <= 8
    assert chunk["error"].abs().max() <= 6


def test_one_recording_brings_its_own_server_within_three_percent() -> None:
    served = recorded_deployment(RECORDING, {}).served
    steps = [steps_of(RECORDING, served)]
    before = constants_for(served.gpu)
    after = fit_steps(steps).posterior.constants(before)
    errors = [float(np.median(np.abs(errors_percent(steps, each, kind="decode")))) for each in (before, after)]
    assert errors[1] <= 3 < errors[0]


@pytest.mark.parametrize(
    ("model", "utilization", "tokens"),
    [("llama-3.1-8b", 0.92, 919_824), ("gpt-oss-20b", 0.92, 3_429_666), ("qwen3-30b-a3b", 0.93, 783_200)],
)
def test_the_kv_cache_is_as_large_as_that_server_logged(model: str, utilization: float, tokens: int) -> None:
    """'GPU KV cache size' of its start-up log; max_model_len 36,864, 8,192 batched tokens, 128 sequences."""
    budget = memory_budget(
        load_model(model), find_gpu("h200-sxm"), vllm_version="0.26.0", gpu_memory_utilization=utilization,
        max_model_len=36_864, max_num_batched_tokens=8_192, max_num_seqs=128,
    )  # fmt: skip
    assert budget.kv_cache_tokens == pytest.approx(tokens, rel=0.006)
    assert budget.kv_cache_tokens_low <= tokens <= budget.kv_cache_tokens_high
