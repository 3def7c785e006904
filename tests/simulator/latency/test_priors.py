"""Constants from kernel tables alone: complete, with sources, and what they change."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from kvcache.models.catalog import find_gpu, gpu_names, load_model
from simulator.latency.forms import latency_model
from simulator.latency.gpu_constants import constants_for
from simulator.latency.model import AverageStep, LatencyModel, breakdown, served_model
from simulator.latency.step_time import BatchSums
from validation.accuracy.closed_loops import compare
from validation.constants.kernel_priors import PRIORS, prior_for
from validation.measured.closed_loops import simulate
from validation.measured.settings import read_settings

DATA = Path(__file__).parents[4] / "shared" / "data"


def model(name: str = "qwen3-30b-a3b", gpu: str = "h100-sxm", **changes: object) -> LatencyModel:
    """The model from priors, some of them changed."""
    deployment = served_model(
        architecture=load_model(name), gpu=find_gpu(gpu), max_num_batched_tokens=4096, max_num_seqs=256
    )
    constants = replace(prior_for(find_gpu(gpu)), **changes)  # type: ignore[arg-type]
    return latency_model(deployment, constants=constants)


@pytest.mark.parametrize("gpu", gpu_names())
def test_every_gpu_has_priors_with_sources_that_claim_no_run(gpu: str) -> None:
    priors = prior_for(find_gpu(gpu))
    assert set(priors.sources) == set(constants_for(find_gpu(gpu)).sources)
    assert all(value and source for value, source in priors.sources.values())
    assert not any("fitted on" in source for _, source in priors.sources.values())
    assert not priors.is_measured
    assert priors.tpot_log_error.total >= 0.2


def test_every_prior_file_is_reachable() -> None:
    used = {prior_for(find_gpu(name)).name for name in gpu_names()}
    assert used == {path.stem for path in PRIORS.glob("*.toml")}


def test_a_gpu_goes_by_its_own_tables_then_its_familys_then_general_values() -> None:
    h200, h100, b300, mi300x = (prior_for(find_gpu(name)) for name in ("h200-sxm", "h100-sxm", "b300-sxm", "mi300x"))
    assert h200.name != h100.name
    assert h200.decode_attention_compute_share != h100.decode_attention_compute_share
    assert b300.gemm_compute_share == prior_for(find_gpu("b200-sxm")).gemm_compute_share
    assert mi300x.name == "general"
    assert {h200.glue_s, h100.glue_s, b300.glue_s} == {mi300x.glue_s}


def test_a_release_before_other_kernels_goes_by_its_own() -> None:
    gpu = find_gpu("b200-sxm")
    newest, older, named = (prior_for(gpu, vllm_version=name) for name in (None, "0.15.1", "0.32.0"))
    assert older.expert_compute_share["fp8"] < 0.7 * newest.expert_compute_share["fp8"]
    assert older.expert_compute_share["fp4"] == newest.expert_compute_share["fp4"]
    assert older.gemm_compute_share == newest.gemm_compute_share
    assert named == newest


def test_extra_positions_lengthen_prefill_alone() -> None:
    plain, more = (model(prefill_attention_extra_positions=count).step_times for count in (0, 500))
    assert np.array_equal(plain.decode, more.decode)
    assert more.prefill[0] == plain.prefill[0]
    # 500 positions more for each token are as much as 500 tokens of context read by each.
    assert more.prefill[1000] - plain.prefill[1000] == pytest.approx(500 * 1000 * more.prefill_s)
    assert more.prefill_s == plain.prefill_s


def test_expert_activations_are_moved_once_per_token_and_expert_chosen() -> None:
    plain, more = (
        model(expert_activation_bytes_per_element=dict.fromkeys(("bf16", "fp8"), size)).step_times for size in (0, 10)
    )
    arch, gpu = load_model("qwen3-30b-a3b"), find_gpu("h100-sxm")
    moved = 10 * 4096 * arch.experts.num_experts_per_tok * arch.hidden_size * arch.num_moe_layers
    assert more.decode[4096] - plain.decode[4096] == pytest.approx(moved / gpu.memory_bandwidth_bytes_per_s)


def test_causes_add_up_to_a_step_with_prefill() -> None:
    latency = model("llama-3.1-8b")
    sums = BatchSums()
    sums.add(start=0, end=4096, is_sampled=True, is_decode=False, window=latency.step_times.window)
    step = AverageStep(
        tokens=4096, sequences=1, sampled=1, prefill_tokens=4096, prefill_work=sums.prefill_work, prefill_share=1.0,
        window_prefill_work=sums.window_prefill_work,
    )  # fmt: skip
    assert sum(breakdown(latency, step).values()) == pytest.approx(latency.step_times.step_s(sums))


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "measured" / "silicon_vllm_runs.csv").is_file(), reason="no measurements at hand")
def test_without_any_fit_to_runs_output_times_are_within_the_bar() -> None:
    settings, _ = read_settings(DATA)
    rows, failed = compare(sorted(settings, key=repr)[::8], partial(simulate, from_kernel_tables=True))
    assert failed == 0
    assert rows["tpot_error_percent"].abs().median() <= 11
    assert rows["ttft_error_percent"].abs().median() <= 22
