"""How shipped constants are fitted: on made-up runs whose answer is known."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.constants import step_times as fitting
from benchmarks.constants.cases import Case
from benchmarks.constants.kernel_priors import prior_for
from calibrate.measured_run import MeasuredRun
from kvcache.models.catalog import find_gpu
from simulator.latency.covariance import FOLDER as COVARIANCES
from simulator.latency.covariance import MOST_OF_PEAK, covariance_of
from simulator.latency.gpu_constants import constants_for

TERMS = (("gemm_bandwidth_share", None), ("glue_s", None), ("expert_compute_share", "fp8"))
WIDE = fitting.Prior(np.zeros(3), 25.0 * np.eye(3), np.full(3, np.inf))


def problem(rng: np.random.Generator, logs: np.ndarray, *, groups: int, common_sd: float, own_sd: float) -> Any:
    """400 runs of so many deployments, whose errors beyond these logarithms are common to one or a run's own."""
    jacobian = rng.normal(size=(400, 2, 3))
    of = np.arange(400) % groups
    noise = common_sd * rng.normal(size=(groups, 1))[of] + own_sd * rng.normal(size=(400, 2))
    cases = [SimpleNamespace(model=f"m{group}", group=(int(group),), is_open=False, tells=(True, True)) for group in of]
    return fitting.Linearized(cases, TERMS, jacobian @ logs + noise, jacobian)


def test_a_fit_finds_the_logarithms_within_what_it_says_of_them() -> None:
    rng, logs = np.random.default_rng(0), np.array([0.1, -0.3, 0.2])
    distances = []
    for _ in range(20):
        found = fitting.fit(problem(rng, logs, groups=40, common_sd=0.05, own_sd=0.05), np.arange(400), WIDE)
        off = found.logs - logs
        distances.append(off @ np.linalg.solve(found.covariance, off))
    assert 1.5 < np.mean(distances) < 6  # chi-square of 3 degrees of freedom, 40 groups


def test_no_logarithm_passes_its_bound_and_the_others_make_up_for_it() -> None:
    rng, logs = np.random.default_rng(1), np.array([0.1, -0.3, 0.2])
    bounded = fitting.Prior(WIDE.mean, WIDE.covariance, np.array([0.05, np.inf, np.inf]))
    found = fitting.fit(problem(rng, logs, groups=400, common_sd=0.0, own_sd=0.01), np.arange(400), bounded).logs
    assert found[0] == 0.05
    assert found[1:] == pytest.approx(logs[1:], abs=0.02)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_bounded_minimum_is_feasible_and_stationary_where_it_is_free(seed: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(4, 4))
    hessian, target, most = root @ root.T + np.eye(4), rng.normal(size=4), rng.normal(size=4)
    found = fitting.bounded(hessian, target, most)
    assert (found <= most).all()
    free = found < most
    assert (hessian @ found)[free] == pytest.approx(target[free])


def test_what_a_prior_says_stays_where_runs_tell_nothing() -> None:
    rng = np.random.default_rng(2)
    silent = problem(rng, np.zeros(3), groups=40, common_sd=0.02, own_sd=0.02)
    silent.jacobian[:, :, 2] = 0
    prior = fitting.Prior(np.array([0.0, 0.0, 0.4]), np.diag([0.01, 0.01, 0.04]), np.full(3, np.inf))
    found = fitting.fit(silent, np.arange(400), prior)
    assert found.logs[2] == pytest.approx(0.4)
    assert found.covariance[2, 2] == pytest.approx(0.04)


def test_a_figure_that_tells_nothing_is_not_fitted() -> None:
    rng, logs = np.random.default_rng(3), np.array([0.1, -0.3, 0.2])
    half = problem(rng, logs, groups=40, common_sd=0.0, own_sd=0.01)
    half.errors[:, 0] += 1.0
    for case in half.cases:
        case.tells = (False, True)
    assert fitting.fit(half, np.arange(400), WIDE).logs == pytest.approx(logs, abs=0.02)


def test_formats_that_one_kernel_serves_are_fitted_together() -> None:
    """gpt-oss's 4-bit floats on Hopper go through Marlin as 4-bit integers do; on Blackwell they have their own."""
    terms = [("expert_start_s", key) for key in ("mxfp4", "int4", "fp8")]
    for gpu, same in (("h100-sxm", 0.9), ("b200-sxm", 0.0)):
        found = fitting.together(gpu, terms)
        assert np.array_equal(found, np.array([[1.0, same, 0.0], [same, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    prior = fitting.prior_of(("h100-sxm", "h200-sxm"), terms)
    known = constants_for(find_gpu("h100-sxm")).expert_start_s
    at_tables = [known[key] * np.exp(log) for (_, key), log in zip(terms, prior.mean, strict=True)]
    tables = prior_for(find_gpu("h100-sxm")).expert_start_s
    assert at_tables == pytest.approx([tables["int4"], tables["int4"], tables["fp8"]])


def test_values_of_a_file_are_multiplied_with_their_followers() -> None:
    text = (
        'glue_s = { value = 8e-6, unit = "s", source = "x 8" }\n'
        'gemm_compute_share = { value = { bf16 = 0.5, fp16 = 0.4, fp8 = 0.3, int8 = 0.2 }, unit = "bf16 = 1" }\n'
    )
    logs = {("glue_s", None): np.log(2), ("gemm_compute_share", "bf16"): np.log(1.5), ("expert_start_s", "fp4"): 1.0}
    assert fitting.times(text, logs) == (
        'glue_s = { value = 1.6e-05, unit = "s", source = "x 8" }\n'
        'gemm_compute_share = { value = { bf16 = 0.75, fp16 = 0.6, fp8 = 0.3, int8 = 0.2 }, unit = "bf16 = 1" }\n'
    )


def test_there_is_room_for_a_share_up_to_most_of_its_peak_alone() -> None:
    assert fitting.room(["h100-sxm"], ("glue_s", None)) == np.inf
    room = fitting.room(["h100-sxm", "h200-sxm"], ("gemm_bandwidth_share", None))
    known = [fitting.constants_for(fitting.find_gpu(gpu)).gemm_bandwidth_share for gpu in ("h100-sxm", "h200-sxm")]
    assert np.exp(room) * max(known) == pytest.approx(MOST_OF_PEAK)


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("mistralai/Mixtral-8x7B-v0.1", {"bf16"}),
        ("RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic", {"fp8"}),  # its checkpoint's own format
        ("meta-llama/Llama-2-70b-hf", set()),
    ],
)
def test_a_run_tells_of_the_experts_in_its_own_format_alone(model: str, known: set[str]) -> None:
    options = {"model": model, "gpu": "h100-sxm", "tensor_parallel_size": 2}
    case = Case(MeasuredRun(source=Path("log"), tool="vLLM", options=options))
    assert {key for key in ("bf16", "fp8", "mxfp4", "int4") if case.depends_on(("expert_start_s", key))} == known


@pytest.mark.parametrize("family", ["hopper", "blackwell"])
def test_a_covariance_is_written_as_it_stands_in_the_package(family: str) -> None:
    known, path = covariance_of(constants_for(find_gpu(fitting.GPUS[family][0]))), COVARIANCES / f"{family}.toml"
    text = path.read_text(encoding="utf-8")
    comment = "\n".join(line.removeprefix("# ") for line in text.splitlines() if line.startswith("# "))
    assert fitting.covariance_text(known.terms, known.matrix, comment) == text
