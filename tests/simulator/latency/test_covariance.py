"""How far shipped constants may be off together, and what is drawn from it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache.models.catalog import find_gpu, gpu_names, load_model
from simulator.latency.covariance import FOLDER, MOST_OF_PEAK, covariance_of, multiplied, read_covariance
from simulator.latency.forms import latency_model
from simulator.latency.gpu_constants import GENERAL, constants_for
from simulator.latency.model import (
    ERROR_SEQUENCES,
    FEWEST_SEQUENCES,
    MOST_SEQUENCES,
    LogError,
    served_model,
)

GENERAL_SD = read_covariance(GENERAL).sd
DENSE = served_model(
    architecture=load_model("llama-3.1-8b"), gpu=find_gpu("h100-sxm"), max_num_batched_tokens=2048, max_num_seqs=256
)


@pytest.mark.parametrize("gpu", gpu_names())
def test_every_gpu_has_a_covariance_of_constants_that_it_has(gpu: str) -> None:
    constants = constants_for(find_gpu(gpu))
    found = covariance_of(constants)
    assert np.allclose(found.matrix, found.matrix.T)
    assert np.linalg.eigvalsh(found.matrix).min() > 0
    for name, key in found.terms:
        value = getattr(constants, name)
        assert (key is None) == isinstance(value, float | int)
        assert key is None or key in value or found.matrix.shape == (len(GENERAL_SD),) * 2


def test_constants_that_runs_were_fitted_to_are_known_better_than_those_of_other_gpus() -> None:
    for gpu in ("h100-sxm", "h200-sxm", "b200-sxm"):
        fitted = covariance_of(constants_for(find_gpu(gpu))).sd
        of_general = np.array([sd / GENERAL_SD[term] for term, sd in fitted.items()])
        assert of_general.max() < 1.001  # as much where runs tell nothing
        assert np.mean(of_general < 0.8) > 0.75
    assert covariance_of(constants_for(find_gpu("mi300x"))).sd == GENERAL_SD


@pytest.mark.parametrize("gpu", ["h100-pcie", "h20", "gh200-96gb", "gb200", "rtx-5090", "rtx-pro-6000"])
def test_a_gpu_that_no_fit_has_seen_claims_neither_the_error_nor_the_covariance_of_its_family(gpu: str) -> None:
    fitted, other = (latency_model(replace(DENSE, gpu=find_gpu(name))) for name in ("h100-sxm", gpu))
    assert covariance_of(constants_for(find_gpu(gpu))).sd == GENERAL_SD
    for name in ("tpot_log_error", "ttft_log_error"):
        assert getattr(other, name).half_width > 1.5 * getattr(fitted, name).half_width


def test_every_covariance_file_is_of_some_gpu() -> None:
    used = {constants_for(find_gpu(gpu)).covariance for gpu in gpu_names()}
    assert {path.stem for path in FOLDER.glob("*.toml")} == used


def test_draws_have_the_covariance_that_is_stated() -> None:
    known = constants_for(find_gpu("h100-sxm"))
    covariance, rng = covariance_of(known), np.random.default_rng(0)
    drawn = [covariance.draw(known, rng) for _ in range(2000)]
    glue = np.log([constants.glue_s / known.glue_s for constants in drawn])
    ingress = np.log([constants.ingress_s / known.ingress_s for constants in drawn])
    places = [covariance.terms.index((name, None)) for name in ("glue_s", "ingress_s")]
    expected = covariance.matrix[np.ix_(places, places)]
    assert np.cov(glue, ingress) == pytest.approx(expected, rel=0.15, abs=0.1 * np.sqrt(np.prod(np.diag(expected))))


@given(st.floats(-2.0, 2.0))
def test_a_share_stays_below_its_peak_and_followers_follow(log: float) -> None:
    known = constants_for(find_gpu("h100-sxm"))
    shares = multiplied(known, {("gemm_compute_share", "bf16"): log}).gemm_compute_share
    assert shares["fp16"] == shares["bf16"] <= max(MOST_OF_PEAK, known.gemm_compute_share["bf16"])
    assert shares["fp8"] == known.gemm_compute_share["fp8"]


@pytest.mark.slow
def test_a_drawn_model_differs_by_what_deployments_and_constants_differ_by() -> None:
    model, rng = latency_model(DENSE), np.random.default_rng(3)
    drawn = [model.draw(rng) for _ in range(300)]
    logs = np.log([item.step_times.decode[64] / model.step_times.decode[64] for item in drawn])
    assert abs(logs.mean()) < 0.02
    assert model.tpot_log_error.deployment < logs.std() < 1.5 * model.tpot_log_error.deployment
    assert drawn[0].tpot_log_error == replace(model.tpot_log_error, deployment=0.0)
    left, whole, common = (
        error.deployment for error in (drawn[0].ttft_log_error, model.ttft_log_error, model.tpot_log_error)
    )
    assert np.hypot(left, common) == pytest.approx(whole)


def test_draws_repeat_by_their_seed() -> None:
    first, second = (latency_model(DENSE).draw(np.random.default_rng(9)).step_times.decode for _ in range(2))
    assert (first == second).all()


@pytest.mark.slow
@given(st.floats(0.0, 0.4), st.floats(0.5, 2000.0), st.floats(0.5, 2000.0))
def test_an_interval_widens_with_the_sequences_within_what_was_measured(
    growth: float, one: float, other: float
) -> None:
    error = LogError(deployment=0.05, residual=0.05, growth=growth)
    few, many = sorted((one, other))
    assert error.half_width_at(few) <= error.half_width_at(many)
    assert error.half_width_at(ERROR_SEQUENCES) == error.half_width
    assert error.half_width_at(1) == error.half_width_at(FEWEST_SEQUENCES)
    assert error.half_width_at(10_000) == error.half_width_at(MOST_SEQUENCES)
    low, high = error.interval(2.0, one) or (0.0, 0.0)
    assert low * high == pytest.approx(4.0)


def test_there_is_no_interval_of_nothing() -> None:
    assert LogError(deployment=0.1, residual=0.1).interval(None, 16) is None
    assert LogError(deployment=0.1, residual=0.1).interval(float("nan"), 16) is None
