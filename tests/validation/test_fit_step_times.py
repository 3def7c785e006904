"""How shipped constants are fitted: on made-up runs whose answer is known."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.measured_run import MeasuredRun
from kvcache.models.catalog import find_gpu
from simulator.latency.covariance import FOLDER as COVARIANCES
from simulator.latency.covariance import MOST_OF_PEAK, covariance_of
from simulator.latency.gpu_constants import constants_for
from validation.constants import derivatives
from validation.constants import step_times as fitting
from validation.constants.cases import Case
from validation.constants.derivatives import constants_texts
from validation.constants.kernel_priors import prior_for

COLUMNS = (("hopper", ("gemm_bandwidth_share", "bf16")), ("hopper", ("glue_s", None)), ("", fitting.OLDER))
WIDE = fitting.Prior(np.zeros(3), 25.0 * np.eye(3), np.full(3, np.inf))
TEXTS = constants_texts()


def problem(rng: np.random.Generator, logs: np.ndarray, *, groups: int, common_sd: float) -> fitting.Problem:
    """400 runs of so many deployments, whose errors beyond these logarithms are common to one or a run's own."""
    jacobian = rng.normal(size=(400, 2, 3))
    of = np.arange(400) % groups
    noise = common_sd * rng.normal(size=(groups, 2))[of] + fitting.OWN * rng.normal(size=(400, 2))
    cases: list[Any] = [SimpleNamespace(group=(int(group),), alike=f"m{group}", tells=(True, True)) for group in of]
    return fitting.Problem(cases, COLUMNS, jacobian @ logs + noise, jacobian, TEXTS)


def test_a_fit_finds_the_logarithms_within_what_it_says_of_them() -> None:
    rng, logs = np.random.default_rng(0), np.array([0.1, -0.3, 0.2])
    distances = []
    for _ in range(20):
        found = fitting.fit(problem(rng, logs, groups=40, common_sd=0.05), np.arange(400), WIDE)
        off = found.logs - logs
        distances.append(off @ np.linalg.solve(found.covariance, off))
    assert 1.5 < np.mean(distances) < 6  # chi-square of 3 degrees of freedom


def test_many_runs_of_one_deployment_move_a_constant_less_than_runs_of_many() -> None:
    """Here every run errs by what moving the second constant would mend."""
    prior = fitting.Prior(np.zeros(3), 0.01 * np.eye(3), np.full(3, np.inf))
    moved = []
    for groups in (1, 40):
        runs = problem(np.random.default_rng(4), np.zeros(3), groups=groups, common_sd=0.0)
        runs.jacobian[:] = np.array([0.0, 1.0, 0.0])
        runs.errors[:] = 0.1
        moved.append(fitting.fit(runs, np.arange(400), prior).logs[1])
    assert 0 < moved[0] < 0.96 * moved[1] < 0.1


def test_no_logarithm_passes_its_bound_and_the_others_make_up_for_it() -> None:
    rng, logs = np.random.default_rng(1), np.array([0.1, -0.3, 0.2])
    bounded = fitting.Prior(WIDE.mean, WIDE.covariance, np.array([0.05, np.inf, np.inf]))
    found = fitting.fit(problem(rng, logs, groups=400, common_sd=0.0), np.arange(400), bounded).logs
    assert found[0] == 0.05
    assert found[1:] == pytest.approx(logs[1:], abs=0.02)


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
    silent = problem(rng, np.zeros(3), groups=40, common_sd=0.02)
    silent.jacobian[:, :, 2] = 0
    prior = fitting.Prior(np.array([0.0, 0.0, 0.4]), np.diag([0.01, 0.01, 0.04]), np.full(3, np.inf))
    found = fitting.fit(silent, np.arange(400), prior)
    assert found.logs[2] == pytest.approx(0.4)
    assert found.covariance[2, 2] == pytest.approx(0.04)


def test_a_figure_that_tells_nothing_is_not_fitted() -> None:
    rng, logs = np.random.default_rng(3), np.array([0.1, -0.3, 0.2])
    half = problem(rng, logs, groups=400, common_sd=0.0)
    half.errors[:, 0] += 1.0
    for case in half.cases:
        case.tells = (False, True)
    assert fitting.fit(half, np.arange(400), WIDE).logs == pytest.approx(logs, abs=0.02)


def test_formats_that_one_kernel_serves_are_fitted_together() -> None:
    """gpt-oss's 4-bit floats on Hopper go through Marlin as 4-bit integers do; on Blackwell they have their own."""
    for family, same in (("hopper", 0.9), ("blackwell", 0.0)):
        columns = [(family, ("expert_start_s", key)) for key in ("mxfp4", "int4", "fp8")]
        assert np.array_equal(
            fitting.together(columns), np.array([[1.0, same, 0.0], [same, 1.0, 0.0], [0.0, 0.0, 1.0]])
        )
    columns = [("hopper", ("expert_start_s", key)) for key in ("mxfp4", "int4", "fp8")]
    known = constants_for(find_gpu("h100-sxm")).expert_start_s
    mean = fitting.prior_of(columns, TEXTS).mean
    at_tables = [known[str(key)] * np.exp(log) for (_, (_, key)), log in zip(columns, mean, strict=True)]
    tables = prior_for(find_gpu("h100-sxm")).expert_start_s
    assert at_tables == pytest.approx([tables["int4"], tables["int4"], tables["fp8"]])


def test_shipped_constants_are_the_fit_s_and_fitting_them_again_changes_nothing() -> None:
    """Values, multiplied from the files about which derivatives are, go into the files that are shipped."""
    logs = {("glue_s", None): np.log(2)}
    now = 'glue_s = { value = 3e-6, unit = "s", source = "new" }\n'
    then = fitting.times('glue_s = { value = 8e-6, unit = "s", source = "old" }\n', logs)
    once = fitting.with_values(now, then, logs)
    assert once == 'glue_s = { value = 1.6e-05, unit = "s", source = "new" }\n'
    assert fitting.with_values(once, then, logs) == once


def test_a_constant_is_found_where_its_file_inherits_it() -> None:
    for gpu in ("h100-sxm", "h200-sxm", "b200-sxm"):
        known = constants_for(find_gpu(gpu))
        assert fitting.reference(TEXTS, gpu, ("host_base_s", None)) == known.host_base_s
        assert fitting.reference(TEXTS, gpu, ("gemm_compute_share", "fp8")) == known.gemm_compute_share["fp8"]


def test_kept_derivatives_are_those_that_were_made(tmp_path: Path) -> None:
    families, texts = derivatives.load()
    derivatives.save(families, texts, tmp_path / "again.npz")
    again, same = derivatives.load(tmp_path / "again.npz")
    assert texts == same
    for family, known in families.items():
        assert known.terms == again[family].terms == fitting.terms_of(family)
        assert np.array_equal(known.slopes, again[family].slopes)


def test_what_a_gpu_has_for_itself_comes_on_top_of_its_family() -> None:
    term = ("eager_layer_s", None)
    columns = (("blackwell", term), ("b300-sxm", term), ("", fitting.OLDER))
    known = fitting.Problem([], columns, np.empty((0, 2)), np.empty((0, 2, 3)), TEXTS)
    logs = np.array([0.1, -0.4, 0.2])
    assert fitting.logs_of("b200-sxm", known, logs)[term] == pytest.approx(0.1)
    assert fitting.logs_of("b300-sxm", known, logs)[term] == pytest.approx(-0.3)
    assert fitting.logs_of("h100-sxm", known, logs) == {fitting.OLDER: 0.2}
    # Nothing is said of it but by runs: tables stand for the same time on both GPUs.
    mean = fitting.prior_of(columns, TEXTS).mean
    times = [constants_for(find_gpu(name)).eager_layer_s for name in ("b200-sxm", "b300-sxm")]
    assert times[0] * np.exp(mean[0]) == pytest.approx(times[1] * np.exp(mean[0] + mean[1]))


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
    assert fitting.room(("hopper", ("glue_s", None)), TEXTS) == np.inf
    room = fitting.room(("hopper", ("gemm_bandwidth_share", "bf16")), TEXTS)
    known = [constants_for(find_gpu(gpu)).gemm_bandwidth_share["bf16"] for gpu in ("h100-sxm", "h200-sxm")]
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
