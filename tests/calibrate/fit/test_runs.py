"""Constants found again in measured runs, through the simulator."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from calibrate.check.replay import replay
from calibrate.fit import terms as fit_terms
from calibrate.fit.inputs import Inputs
from calibrate.fit.profile_fit import fit, fit_measured
from calibrate.fit.runs import (
    RunData,
    RunFit,
    errors_at,
    fit_runs,
    left_out_errors,
    log_errors,
    next_runs,
    run_data,
    run_learning_curve,
)
from calibrate.fit.terms import USUAL_TPOT, prior_terms
from tests.calibrate.recorded import closed_run, measured_closed_run, recording

TRUTH = {"gemm_bandwidth_share": -0.2, "gemm_compute_share": -0.3, "glue_s": 0.4, "ingress_offset_s": 0.02}
TERMS = prior_terms(("gemm_bandwidth_share", "gemm_compute_share", "glue_s", "ingress_offset_s", "expert_start_s"))


@pytest.fixture(scope="module")
def fitted() -> Iterator[tuple[RunData, RunFit]]:
    data = run_data([replay(measured_closed_run(concurrency, TRUTH)) for concurrency in (1, 8, 24, 64)])
    yield data, fit_runs(data, terms=TERMS)


def test_runs_that_were_not_fitted_are_predicted(fitted: tuple[RunData, RunFit]) -> None:
    _, found = fitted
    other = run_data([replay(measured_closed_run(concurrency, TRUTH)) for concurrency in (4, 40)])
    shipped = errors_at(other, (), np.empty(0))
    errors = errors_at(other, found.posterior.terms, found.posterior.mean)
    assert np.abs(shipped).min() > 0.05
    assert np.abs(errors).max() < 0.03


def test_terms_that_change_no_run_are_left_out(fitted: tuple[RunData, RunFit]) -> None:
    names = [term.name for term in fitted[1].posterior.terms]
    assert "expert_start_s" not in names  # the model has no experts
    assert "ingress_offset_s" in names


def test_the_truth_lies_within_the_posterior(fitted: tuple[RunData, RunFit]) -> None:
    found = fitted[1].posterior
    off = found.mean - np.array([TRUTH[term.name] for term in found.terms])
    distance = off @ np.linalg.solve(found.covariance, off)
    assert distance < 18.5  # chi-square with 4 degrees of freedom, 99.9 %


def test_each_run_is_predicted_from_the_others(fitted: tuple[RunData, RunFit]) -> None:
    data, found = fitted
    errors = left_out_errors(data, found)
    assert errors.shape == (4, 2)
    assert np.median(np.abs(errors)) < 0.05
    tpot, _ = log_errors(errors)
    assert 0 < tpot.total < USUAL_TPOT.total * 1.5


def test_errors_fall_with_the_number_of_runs(fitted: tuple[RunData, RunFit]) -> None:
    curve = run_learning_curve(*fitted)
    assert list(curve) == [1, 2, 3]
    assert curve[3]["tpot_median_percent"] < curve[1]["tpot_median_percent"]


def test_the_next_run_takes_variance_off(fitted: tuple[RunData, RunFit]) -> None:
    best = next_runs(*fitted, count=100)
    reductions = [item.reduction for item in best]
    assert reductions == sorted(reductions, reverse=True)
    assert all(0 <= value < 1 for value in reductions)
    assert {(item.input_len, item.output_len) for item in best} == {(512, 64)}


def test_few_held_out_runs_are_weighed_against_the_usual_error() -> None:
    none, one, many = (log_errors(np.full((count, 2), 0.01))[0].total for count in (0, 1, 100))
    assert none == pytest.approx(USUAL_TPOT.total)
    assert none > one > many


def test_measured_runs_become_a_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: fit_terms.PRIOR_SD[name] for name in ("gemm_bandwidth_share", "ingress_offset_s")}
    monkeypatch.setattr("calibrate.fit.runs.PRIOR_SD", few)
    overloaded = closed_run(4, aggregates={"ttft_s.mean": 9.0}, excluded={"failed": 6})
    runs = (*(measured_closed_run(size, {"gemm_bandwidth_share": -0.2}) for size in (1, 16)), overloaded)
    found = fit_measured(Inputs(runs=runs, recordings=(), sha256="ab"), {}, name="mine")
    assert [term.name for term in found.profile.terms] == list(few)
    assert found.profile.data["runs"] == 2
    assert found.left_out == ("c4.json: overloaded, 6 of 12 requests failed",)
    assert found.profile.held_out["tpot_median_percent"] < 3 < found.before["tpot_median_percent"]
    assert found.profile.ranges["sequences"].high > 8
    assert found.own["tpot_median_percent"] < 2 and found.own["ttft_median_percent"] < 5


@pytest.mark.slow
def test_a_fit_that_misses_its_own_data_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads of one server, half of them ten times slower than the rest: no constants give both."""
    few = {name: fit_terms.PRIOR_SD[name] for name in ("gemm_bandwidth_share", "ingress_offset_s")}
    monkeypatch.setattr("calibrate.fit.runs.PRIOR_SD", few)
    runs = [measured_closed_run(size, {}) for size in (1, 4, 8, 16)]
    for place in (1, 3):
        slow = {name: 10 * value for name, value in runs[place].aggregates.items()}
        runs[place] = replace(runs[place], aggregates=slow)
    inputs = Inputs(runs=tuple(runs), recordings=(), sha256="")
    with pytest.raises(
        ValueError, match=r"misses its own data: .*TPOT by \d+ % .*limit 14 %.*worst are c.* give --force"
    ):
        fit(inputs, {}, name="x")
    assert fit(inputs, {}, name="x", force=True).own["tpot_median_percent"] > 14


def test_runs_that_cannot_be_fitted_are_told() -> None:
    with pytest.raises(ValueError, match="no measured run that can be fitted"):
        run_data([])
    with pytest.raises(ValueError, match="neither a TTFT nor a TPOT"):
        run_data([replay(closed_run(2))])
    other = replay(replace(measured_closed_run(1, {}), options={"model": "llama-3.1-8b", "gpu": "h200-sxm"}))
    with pytest.raises(ValueError, match="one GPU at a time"):
        run_data([replay(measured_closed_run(1, {})), other])
    other = replay(
        replace(measured_closed_run(1, {}), options={**other.run.options, "gpu": "h100-sxm", "engine": "sglang"})
    )
    with pytest.raises(ValueError, match="the runs are of SGLang and vLLM; fit one engine at a time"):
        run_data([replay(measured_closed_run(1, {})), other])
    with pytest.raises(ValueError, match="fit one kind"):
        fit(Inputs(runs=(closed_run(1),), recordings=(recording({}),), sha256=""), {}, name="x")
    with pytest.raises(ValueError, match="no constant 'speed'"):
        prior_terms(("speed",))


def test_a_stall_of_a_few_requests_moves_no_constant() -> None:
    """The mean TPOT is 20 % longer by it; of single requests, the others tell."""
    arrival_s = np.cumsum(np.random.default_rng(0).exponential(0.2, 80))
    columns = {"prompt_tokens": 400, "output_tokens": 60, "cached_tokens": np.nan, "session": np.nan}
    bare = pd.DataFrame({"arrival_s": arrival_s, "ttft_s": np.nan, "e2e_s": np.nan, **columns})
    run = replace(closed_run(1), load={"rate": 5.0}, requests=bare)
    times = replay(run).simulate().times
    stalled_s = np.where(np.arange(80) < 8, 1.0, 0.0)
    stalled = bare.assign(ttft_s=times.ttft_s, e2e_s=times.e2e_s + stalled_s)
    data = run_data([replay(replace(run, requests=stalled))])
    errors = errors_at(data, (), np.empty(0))
    assert np.abs(errors).max() < 1e-9
    assert np.exp(data.measured[0, 1]) > 1.2 * np.nanmean(times.tpot_s)
