"""Constants found again in steps that they made."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from calibrate.fit.profile_fit import fit_recordings
from calibrate.fit.steps import Steps, errors_percent, fit_steps, held_out, learning_curve, steps_of
from calibrate.fit.terms import PRIOR_SD, prior_terms
from simulator.latency.gpu_constants import constants_for
from tests.calibrate.recorded import DEPLOYMENT, H100, recording

BASE = constants_for(H100)
NAMES = (
    "gemm_bandwidth_share", "gemm_compute_share", "decode_attention_bandwidth_share", "glue_s", "gemm_start_s",
    "prefill_attention_compute_share", "step_gap_offset_s",
)  # fmt: skip


def steps(terms: dict[str, float], **options: float) -> Steps:
    return steps_of(recording(terms, **options), DEPLOYMENT)  # type: ignore[arg-type]


def drawn_terms(rng: np.random.Generator) -> dict[str, float]:
    """From the priors, within what is physical for every format."""
    drawn = {name: float(PRIOR_SD[name] * np.clip(rng.standard_normal(), -1.5, 1.5)) for name in NAMES}
    drawn["step_gap_offset_s"] = abs(drawn["step_gap_offset_s"])
    for name in NAMES:
        if name.endswith("_share"):
            value = getattr(BASE, name)
            room = -np.log(max(value.values()) if isinstance(value, Mapping) else value)
            drawn[name] = min(drawn[name], 0.1, 0.6 * room)
    return drawn


@pytest.mark.slow
def test_the_posterior_covers_the_constants_that_made_the_steps() -> None:
    """Of 95 % intervals over seeds, about 95 % hold the truth: fewer than 85 % in 210 are a chance of 1 in 10^7."""
    scores = []
    for seed in range(30):
        truth = drawn_terms(np.random.default_rng(1000 + seed))
        found = fit_steps([steps(truth, count=600, seed=seed)], terms=prior_terms(NAMES)).posterior
        sd = np.sqrt(np.diag(found.covariance))
        scores += [(item.mean - truth[item.name]) / width for item, width in zip(found.terms, sd, strict=True)]
    inside = float(np.mean(np.abs(scores) < 1.96))
    assert inside >= 0.85
    assert np.abs(scores).max() < 6


def test_step_times_are_found_again_to_a_fraction_of_the_noise() -> None:
    truth = drawn_terms(np.random.default_rng(5))
    found = fit_steps([steps(truth, seed=5)])
    fresh = steps(truth, noise=0.0, seed=6)
    assert np.median(np.abs(errors_percent([fresh], found.posterior.constants(BASE)))) < 0.5
    assert found.noise == pytest.approx(0.02, rel=0.25)


def test_one_step_in_twenty_that_stalled_changes_little() -> None:
    truth = drawn_terms(np.random.default_rng(7))
    clean = steps(truth, seed=7)
    stalled = clean.measured_s.copy()
    stalled[::20] *= np.random.default_rng(0).uniform(2, 20, len(stalled[::20]))
    found = fit_steps([Steps(served=DEPLOYMENT, sums=clean.sums, measured_s=stalled)])
    fresh = steps(truth, noise=0.0, seed=8)
    assert np.median(np.abs(errors_percent([fresh], found.posterior.constants(BASE)))) < 1.0


def test_errors_that_last_widen_the_posterior() -> None:
    """A clock that drifts over blocks of steps says less than as many independent errors of the same size."""
    even = steps({}, seed=3, count=1000)
    rng = np.random.default_rng(3)
    drift = np.repeat(np.exp(0.02 * rng.standard_normal(20)), 50)
    exact = steps({}, seed=3, count=1000, noise=0.0)
    drifting = Steps(served=DEPLOYMENT, sums=exact.sums, measured_s=exact.measured_s * drift)
    terms = prior_terms(("gemm_bandwidth_share",))
    sds = [fit_steps([data], terms=terms).posterior.covariance[0, 0] ** 0.5 for data in (even, drifting)]
    assert sds[1] > 1.5 * sds[0]


def test_what_steps_do_not_tell_stays_at_its_prior() -> None:
    found = fit_steps([steps({"gemm_bandwidth_share": -0.1})]).posterior
    for item, variance in zip(found.terms, np.diag(found.covariance), strict=True):
        if "expert" in item.name or item.name.startswith("all_reduce"):
            assert item.mean == pytest.approx(item.prior_mean, abs=1e-9)
            assert variance**0.5 == pytest.approx(item.prior_sd, rel=1e-6)


def test_no_share_passes_its_peak_and_no_time_falls_below_zero() -> None:
    fast = steps({}, noise=0.0)
    hasty = Steps(served=DEPLOYMENT, sums=fast.sums, measured_s=fast.measured_s / 3)
    constants = fit_steps([hasty]).posterior.constants(BASE)
    assert max(constants.gemm_bandwidth_share.values()) <= 1 + 1e-9
    assert max(constants.gemm_compute_share.values()) <= 1 + 1e-9
    assert constants.step_gap_s >= 0


@pytest.mark.slow
def test_held_out_errors_fall_with_the_number_of_steps() -> None:
    data = [steps({"gemm_bandwidth_share": -0.3, "glue_s": 0.5}, count=500)]
    judged = held_out(data, fit_steps(data)).figures()
    assert judged["all_steps"] == 500
    assert judged["all_median_percent"] < 2.0  # the noise's own median is 1.35 %
    curve = learning_curve(data)
    assert curve[200] <= curve[20]


@pytest.mark.slow
def test_a_recording_becomes_a_profile() -> None:
    fitted = fit_recordings([recording({"gemm_bandwidth_share": -0.2}, count=700)], {}, name="mine", sha256="ab")
    profile = fitted.profile
    assert (profile.gpu, profile.settings["model"], profile.data["steps"]) == (
        "h100-sxm",
        DEPLOYMENT.architecture.name,
        700,
    )
    assert fitted.before["decode_mean_percent"] > 5 > profile.held_out["decode_mean_percent"]
    assert profile.ranges["sequences"].high <= 121
    assert profile.tpot_log_error.total < 0.06


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda table: table.drop(columns="prefill_work"), "no prefill_work"),
        (lambda table: table.assign(tokens=-1), "does not tell every step's tokens"),
        (lambda table: table.assign(tokens=4096), "--max-num-batched-tokens"),
        (lambda table: table.assign(sampled=500), "--max-num-seqs"),
        (lambda table: table.assign(cycle_s=float("nan")), "at least 20"),
        (lambda table: table.head(5), "5 steps with a known time"),
    ],
)
def test_a_recording_that_cannot_be_fitted_is_told(change: object, told: str) -> None:
    whole = recording({})
    assert callable(change)
    with pytest.raises(ValueError, match=told):
        fit_steps([steps_of(replace(whole, steps=change(whole.steps)), DEPLOYMENT)])


def test_a_recording_without_its_model_asks_for_it() -> None:
    with pytest.raises(ValueError, match="give --model"):
        fit_recordings([replace(recording({}), options={})], {}, name="x")
