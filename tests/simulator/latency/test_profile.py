"""A latency profile: what it changes, how it is kept, what it refuses."""

import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache.models.catalog import find_gpu, load_model
from simulator.deployment import resolve
from simulator.latency.forms.physical import latency_model
from simulator.latency.gpu_constants import constants_for
from simulator.latency.model import AverageStep, LogError, ServedModel, served_model, steps_outside
from simulator.latency.profile import (
    STEP_SCALE,
    LatencyProfile,
    Range,
    Term,
    digest_of,
    term_names,
    with_terms,
)
from simulator.latency.profile_file import profile_text, read_profile
from simulator.latency.step_time import BatchSums, StepTimes

H100 = find_gpu("h100-sxm")
BASE = constants_for(H100)
DENSE = served_model(
    architecture=load_model("llama-3.1-8b"), gpu=H100, max_num_batched_tokens=2048, max_num_seqs=64,
)  # fmt: skip
EXPERTS = served_model(load_model("mixtral-8x7b"), H100, replace(DENSE.args, tensor_parallel_size=4))


def profile_of(*terms: Term, covariance: np.ndarray | None = None, **changes: object) -> LatencyProfile:
    settings = {
        "name": "mine", "gpu": "h100-sxm", "base": BASE.name, "base_digest": digest_of(BASE), "terms": terms,
        "covariance": np.diag([0.01**2] * len(terms)) if covariance is None else covariance,
        "tpot_log_error": LogError(deployment=0.02, residual=0.03),
        "ttft_log_error": LogError(deployment=0.05, residual=0.06),
        "ranges": {"sequences": Range(low=1, high=64)},
        "settings": {"model": DENSE.architecture.name, "tensor_parallel_size": [1, 2], "enforce_eager": False},
        "data": {"sha256": "ab", "runs": 3}, "held_out": {"tpot_median_percent": 1.5}, "source": "3 runs",
    }  # fmt: skip
    return LatencyProfile(**(settings | changes))


def term(name: str, mean: float = 0.1) -> Term:
    return Term(name=name, prior_mean=0.0, prior_sd=0.2, mean=mean)


PROFILE = profile_of(term("gemm_bandwidth_share", -0.2), term("ingress_offset_s", 0.005))


@pytest.mark.parametrize(
    "deployment", [DENSE, EXPERTS, served_model(DENSE.architecture, H100, DENSE.args, async_scheduling=False)]
)
def test_the_scale_multiplies_every_time_of_a_step_and_none_before_or_after_it(deployment: ServedModel) -> None:
    one = latency_model(deployment).step_times
    two = latency_model(deployment, constants=with_terms(BASE, {STEP_SCALE: np.log(2)})).step_times
    for item in fields(StepTimes):
        factor = 1 if item.name in ("window", "cold_stalls") or item.name.startswith(("ingress", "stream")) else 2
        found, expected = (getattr(times, item.name) for times in (two, one))
        if callable(expected):
            found, expected = (shared(np.arange(100.0)) for shared in (found, expected))
        np.testing.assert_allclose(found, factor * np.asarray(expected), rtol=1e-9)


@given(st.data())
def test_many_steps_take_what_each_takes_alone(data: st.DataObject) -> None:
    deployment = data.draw(st.sampled_from([DENSE, EXPERTS]))
    times = replace(latency_model(deployment).step_times, window=64, window_context_s=1e-9, window_prefill_s=2e-9)
    steps = []
    for _ in range(3):
        sums = BatchSums()
        for start in data.draw(st.lists(st.integers(0, 3000), min_size=1, max_size=8)):
            length = data.draw(st.integers(1, 200))
            sums.add(start=start, end=start + length, is_sampled=True, is_decode=length == 1, window=64)
        steps.append(sums)
    columns = {name: np.array([getattr(sums, name) for sums in steps]) for name in BatchSums.__dataclass_fields__}
    np.testing.assert_allclose(times.steps_s(columns), [times.step_s(sums) for sums in steps], rtol=1e-12)


@given(st.sets(st.sampled_from(term_names()), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_a_profile_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, names: set[str], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(len(names), len(names)))
    terms = tuple(term(name, float(rng.uniform(-1, 1))) for name in sorted(names))
    written = profile_of(*terms, covariance=root @ root.T, source='a "quoted" source\n')
    path = tmp_path_factory.mktemp("profile") / "p.toml"
    path.write_text(profile_text(written), encoding="utf-8")
    found = read_profile(path)
    for item in fields(LatencyProfile):
        if item.name != "covariance":
            assert getattr(found, item.name) == getattr(written, item.name)
    np.testing.assert_array_equal(found.covariance, written.covariance)


MEAN, SPREAD = "it must be a number from -5 to 5", "it must be a standard deviation from 0 to 3"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("schema_version = 1", "{", "is not readable as TOML"),
        ("schema_version = 1", "schema_version = 9", "schema_version is 9"),
        ("schema_version = 1", "", "it has no schema_version; 'headcount calibrate fit' writes one"),
        ("[posterior]", "[other]", "no key 'other'; did you mean 'terms' or 'posterior'?"),
        (
            '"gemm_bandwidth_share"',
            '"gemm_speed"',
            "'gemm_speed'; it must be a known name: did you mean '",
        ),
        ("prior_sd = 0.2", "prior_sd = 0.0", "terms[1].prior_sd is 0.0; it must be a standard deviation above 0"),
        ("mean = 0.005", "mean = nan", f"terms[2].mean is nan; {MEAN}"),
        ("mean = 0.005", "mean = 800.0", f"terms[2].mean is 800.0; {MEAN}: no fit is further from 0"),
        ("mean = -0.2", 'mean = "fast"', f"terms[1].mean is 'fast'; {MEAN}"),
        ("  [0.0001, 0.0],\n", "", "it needs a row and a column for each term"),
        ("[0.0001, 0.0]", "[-0.0001, 0.0]", "negative variance"),
        ("[0.0001, 0.0]", "[0.0001]", "it needs a row and a column for each term"),
        ("[0.0001, 0.0]", str([0.0] * 10_000), "2 rows of up to 10000 numbers"),
        ("[0.0001, 0.0]", "[0.0001, nan]", "posterior.covariance[1][2] is nan; it must be a number from -100"),
        ("covariance = [", "covariance = 3\nx = [", "posterior.covariance is 3; it must be a list"),
        ("deployment = 0.02", "deployment = nan", f"log_error.tpot.deployment is nan; {SPREAD}"),
        ("deployment = 0.02", "deployment = -0.02", f"log_error.tpot.deployment is -0.02; {SPREAD}"),
        ("deployment = 0.02", "deployment = []", f"log_error.tpot.deployment is an empty list; {SPREAD}"),
        ("deployment = 0.02", "deployment = inf", f"log_error.tpot.deployment is inf; {SPREAD}"),
        ("deployment = 0.02", f"deployment = {'9' * 400}", f"log_error.tpot.deployment is {'9' * 59}…; {SPREAD}"),
        ("growth = 0.0", "growth = 1e9", "growth is 1000000000.0; it must be a power"),
        ("residual = 0.03", "x = 1", "no key 'x' in log_error.tpot; "),
        ("sequences = [1, 64]", "sequences = [-1, nan]", "ranges.sequences[1] is -1; it must be a number, at least 0"),
        ("mean = 0.005", "mean = 5.0", "mean is 5; it must be a number of seconds from -1 to 1"),
        ("[held_out]", "[held_out]\nx = nan", "held_out.x is nan; it must be a finite number"),
        ("tensor_parallel_size = [1, 2]", "a = -5", "settings.a is -5; it must be"),
        ("size = [1, 2]", "size = 0", "settings.tensor_parallel_size is 0; it must be a whole number, at least 1"),
        ("size = [1, 2]", "size = [1, 0]", "settings.tensor_parallel_size[2] is 0; it must be"),
        ("sequences = [1, 64]", "sequences = [64, 1]", "a range begins at 64 and ends at 1"),
        ("sequences =", "seqences =", "no key 'seqences' in ranges; did you mean 'sequences'"),
        ('name = "mine"', "name = 3", "name is 3; it must be text"),
        ('gpu = "h100-sxm"', "", "'gpu' is missing; give it"),
        ("tensor_parallel_size = [1, 2]", "a = {}", "settings.a is a table; it must be"),
        ("tensor_parallel_size = [1, 2]", 'engine = "tgi"', "settings.engine is "),
    ],
)
def test_a_file_that_is_no_profile_is_told(old: str, new: str, told: str, tmp_path: Path) -> None:
    text = profile_text(PROFILE)
    assert old in text
    path = tmp_path / "profile.toml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(told)) as caught:
        read_profile(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("path", ["/dev/zero", "."])
def test_a_device_or_a_folder_is_no_profile(path: str) -> None:
    with pytest.raises(ValueError, match="give an ordinary file"):
        read_profile(Path(path))


def test_a_profile_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read: no such file"):
        read_profile(tmp_path / "none.toml")


def test_a_profiled_model_is_calibrated_with_the_profile_s_errors() -> None:
    plain, fitted = latency_model(DENSE), latency_model(DENSE, profile=PROFILE)
    assert (plain.calibrated, fitted.calibrated) == (False, True)
    assert fitted.tpot_log_error == PROFILE.tpot_log_error
    assert fitted.warnings == ()
    assert fitted.step_times.decode[1] > plain.step_times.decode[1] * 1.1
    assert fitted.step_times.ingress_s == pytest.approx(BASE.ingress_s + 0.005)
    assert [row[1] for row in fitted.assumptions if row[0] == "gemm bandwidth share, fitted"] == ["× 0.819 ± 1.0%"]


def test_what_lies_outside_a_profile_is_said() -> None:
    eager = latency_model(
        served_model(DENSE.architecture, H100, DENSE.args, tensor_parallel_size=4, enforce_eager=True), profile=PROFILE
    )
    assert [text.split()[0] for text in eager.warnings] == ["tensor_parallel_size", "enforce_eager"]
    assert sum(row[0] == "outside the latency profile" for row in eager.assumptions) == 2
    other = latency_model(DENSE, profile=replace(PROFILE, base_digest="0"))
    assert "another release" in other.warnings[0]
    inside, outside = (AverageStep(tokens=9, sequences=count, sampled=9) for count in (64, 65))
    assert steps_outside(eager, inside) == ()
    assert "65, are outside the latency profile, fitted from 1 to 64" in steps_outside(eager, outside)[0]


def test_a_profile_of_another_gpu_is_refused() -> None:
    with pytest.raises(ValueError, match="is of h100-sxm, not h200-sxm"):
        latency_model(replace(DENSE, gpu=find_gpu("h200-sxm")), profile=PROFILE)


def test_a_profile_of_another_engine_is_refused() -> None:
    """One without an engine is vLLM's: those written before it was kept."""
    served = resolve("llama-3.1-8b", "h100-sxm", engine="sglang").served
    of_sglang = replace(PROFILE, settings={"engine": "sglang"})
    assert latency_model(served, profile=of_sglang).calibrated
    with pytest.raises(ValueError, match="'mine' is of vLLM's steps, not SGLang's; leave it out, or fit one"):
        latency_model(served, profile=PROFILE)
    with pytest.raises(ValueError, match="'mine' is of SGLang's steps, not vLLM's"):
        latency_model(DENSE, profile=of_sglang)


def test_draws_follow_the_posterior() -> None:
    covariance = np.array([[0.04, -0.018], [-0.018, 0.01]])
    profile = profile_of(term("gemm_bandwidth_share", -0.2), term("glue_s", 0.3), covariance=covariance)
    rng = np.random.default_rng(1)
    drawn = np.array([profile.draw(rng) for _ in range(4000)])
    standard_error = np.sqrt(np.diag(covariance) / len(drawn))
    assert (np.abs(drawn.mean(axis=0) - profile.mean) < 4 * standard_error).all()
    np.testing.assert_allclose(np.cov(drawn.T), covariance, rtol=0.1)


def test_a_model_draws_constants_from_its_profile() -> None:
    model, rng = latency_model(DENSE, profile=PROFILE), np.random.default_rng(0)
    decode_s = np.array([model.draw(rng).step_times.decode[1] for _ in range(40)])
    spread = decode_s.std() / model.step_times.decode[1]
    assert 0.004 < spread < 0.012  # nearly all of a decode step reads weights, whose share has an sd of 1 %
    again = model.draw(np.random.default_rng(3)).step_times.decode
    np.testing.assert_array_equal(again, model.draw(np.random.default_rng(3)).step_times.decode)
    drawn = model.draw(rng)
    assert drawn.calibrated and drawn.tpot_log_error == PROFILE.tpot_log_error


def test_a_model_that_was_given_its_constants_draws_nothing() -> None:
    with pytest.raises(ValueError, match="has given times"):
        latency_model(DENSE, constants=constants_for(DENSE.gpu)).draw(np.random.default_rng(0))
