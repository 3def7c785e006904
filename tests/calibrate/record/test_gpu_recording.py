"""Real vLLM 0.26 on one H200: what constants that never saw it say of its steps, its memory and its clients."""

from dataclasses import replace

import numpy as np
import pytest

from calibrate.check.replay import measured_figures, replay, simulated_figures
from calibrate.check.steps import CHUNKS, DECODES, check_steps, recorded_deployment
from calibrate.fit.steps import errors_percent, fit_steps, steps_of
from calibrate.readers import read_measured
from calibrate.record.recording_files import read_recording
from kvcache.gpus.gpu import find_gpu
from kvcache.models.catalog import load_model
from simulator.engines.memory import memory_budget
from simulator.latency.gpu_constants import constants_for
from validation.recorded_steps import FOLDER

# The largest error in % of a batch of decodes, and of steps full of prompt tokens; the median of decodes.
LARGEST = {
    "h200-llama-3.1-8b": (5, 5, 2),
    "h200-qwen3-30b-a3b": (20, 18, 5),
    "h200-qwen3-32b-fp8": (10, 4, 1.5),
}
RECORDINGS = {name: read_recording(FOLDER.parent / name) for name in LARGEST}
SERVED = sorted((FOLDER.parent / "h200-llama-3.1-8b-served").glob("*.json"))


@pytest.mark.parametrize("name", RECORDINGS)
def test_steps_that_no_fit_saw_take_about_what_shipped_constants_say(name: str) -> None:
    """docs/measurements/calibration.md shows all three."""
    checked = check_steps(RECORDINGS[name], {})
    decode, chunk = checked.tables[DECODES], checked.tables[CHUNKS]
    assert checked.is_expected
    assert len(decode) >= 20 and len(chunk) >= 4
    most, most_of_prompts, median = LARGEST[name]
    assert decode["error"].abs().max() <= most
    assert decode["error"].abs().median() <= median
    assert chunk["error"].abs().max() <= most_of_prompts


@pytest.mark.parametrize("name", RECORDINGS)
def test_one_recording_brings_its_own_server_within_three_percent(name: str) -> None:
    served = recorded_deployment(RECORDINGS[name], {}).served
    steps = [steps_of(RECORDINGS[name], served)]
    before = constants_for(served.gpu)
    after = fit_steps(steps).posterior.constants(before)
    errors = [float(np.median(np.abs(errors_percent(steps, each, kind="decode")))) for each in (before, after)]
    assert errors[1] <= 3
    assert errors[0] > 3 or name != "h200-qwen3-30b-a3b"  # of which the shipped constants are furthest off


def test_experts_of_random_weights_are_taken_to_be_chosen_evenly() -> None:
    """Taken as chosen unevenly, as by a trained router, 32 sequences seem to take a seventh more than simulated."""
    recording = RECORDINGS["h200-qwen3-30b-a3b"]
    unevenly = replace(recording, environment={**recording.environment, "experts": None})
    even, uneven = (check_steps(each, {}).tables[DECODES]["error"] for each in (recording, unevenly))
    few = even.index.get_level_values("sequences") == 32
    assert even[few].abs().max() <= 7
    assert (uneven[few] < even[few] - 14).all()


def test_what_the_user_says_of_experts_wins() -> None:
    recording = RECORDINGS["h200-qwen3-30b-a3b"]
    strategy = "VLLM_MOE_ROUTING_SIMULATION_STRATEGY"
    for given, wanted in (
        ("HF_HOME=/x", ("HF_HOME=/x", f"{strategy}=uniform_random")),
        (f"{strategy}=normal_routing", (f"{strategy}=normal_routing",)),
    ):
        assert recorded_deployment(recording, {"environment": given}).served.args.environment == wanted


def test_clients_of_a_server_that_no_fit_saw_wait_about_as_long_as_simulated() -> None:
    """But for 256 clients, whose tokens the API server or the client takes too late; where they wait is not judged."""
    served = {"model": "llama-3.1-8b", "gpu": "h200-sxm", "vllm_version": "0.26.0", "max_model_len": 16_384}
    errors = {}
    for path in SERVED:
        (run,) = read_measured(path)
        simulated = simulated_figures(replay(run, served).simulate())
        errors[path.stem] = 100 * (simulated["e2e_s.mean"] / measured_figures(run)["e2e_s.mean"] - 1)
    too_fast = errors.pop("concurrency-256-prompts-256")
    assert len(errors) == 7 and max(map(abs, errors.values())) <= 8
    closed = [abs(error) for name, error in errors.items() if name.startswith("concurrency")]
    assert len(closed) == 5 and float(np.median(closed)) <= 4
    assert max(abs(error) for name, error in errors.items() if name.startswith("rate")) <= 6
    assert too_fast < -20


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
