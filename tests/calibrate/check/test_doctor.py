"""A server that is not what it was said to be is recognised by what was measured of it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrate.check.doctor import Diagnosis, diagnose
from calibrate.check.replay import replay, simulated_figures
from calibrate.check.runs import check_run
from calibrate.measured_run import MeasuredRun
from headcount.views.of.calibration_check import diagnosis_lines

SAID = {"model": "llama-3.2-1b", "gpu": "h100-sxm"}


def load(concurrency: int, input_len: int, said: Mapping[str, Any]) -> MeasuredRun:
    known = {"concurrency": concurrency, "input_len": input_len, "output_len": 32, "num_requests": 2 * concurrency}
    return MeasuredRun(source=Path(f"c{concurrency}.json"), tool="made up", options=said, load=known)


def measured(run: MeasuredRun, really: Mapping[str, Any], factor: float = 1.0) -> MeasuredRun:
    """The run with the figures of a simulation of what the server really is, each step so many times as long."""
    item = replay(run, really)
    times = replace(item, deployment=item.deployment.with_step_times(factor)).simulate().times
    figures = {"ttft_s.mean": float(times.ttft_s.mean()), "tpot_s.mean": float(np.nanmean(times.tpot_s))}
    return replace(run, aggregates=figures)


def diagnosed(really: Mapping[str, Any], *, factor: float = 1.0, **said: Any) -> Diagnosis:
    loads = ((4, 500), (48, 1500))
    runs = [measured(load(*each, {**SAID, **said}), really, factor) for each in loads]
    items = [replay(run) for run in runs]
    found = diagnose([(item, check_run(item)) for item in items], {})
    assert found is not None
    return found


def test_a_server_as_simulated_is_as_it_should_be_and_nothing_else_is_tried() -> None:
    found = diagnosed({})
    assert found.fit.is_expected
    assert found.fit.misfit == pytest.approx(0, abs=1e-9)
    assert (found.explanations, found.tried) == ((), 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("really", "said"),
    [
        ({"enforce_eager": True}, {}),
        ({"gpu": "h100-pcie"}, {"model": "llama-3.1-8b"}),
        ({"max_num_seqs": 16}, {"model": "llama-3.1-8b"}),
        ({"tensor_parallel_size": 2}, {"model": "llama-3.1-8b"}),
        ({"quantization": "none"}, {"model": "llama-3.1-8b", "quantization": "fp8"}),
    ],
    ids=str,
)
def test_the_setting_that_a_server_really_had_is_named(really: dict[str, Any], said: dict[str, Any]) -> None:
    found = diagnosed(really, **said)
    assert not found.fit.is_expected
    assert found.explanations[0].options == really
    assert found.explanations[0].fit.misfit == pytest.approx(0, abs=1e-9)


def test_steps_that_all_take_longer_are_told_apart_from_every_setting() -> None:
    found = diagnosed({}, factor=1.8, model="llama-3.1-8b")
    assert found.fit.ratios["tpot"] == pytest.approx(1.8, rel=0.05)
    assert found.explanations[0].words.startswith("steps that take 1.80 × as long (a power or clock limit")


def test_a_contradiction_of_what_was_stated_is_said_to_be_one() -> None:
    found = diagnosed({"quantization": "none"}, model="llama-3.1-8b", quantization="fp8")
    assert found.explanations[0].words == "weights in 16 bits, though another quantization was stated"


def test_overloaded_runs_and_given_step_times_have_no_verdict() -> None:
    failed = replace(measured(load(4, 500, SAID), {}), excluded={"failed": 30})
    given = replace(measured(load(4, 500, SAID), {}), options={**SAID, "latency_model": "constant", "step_s": 0.01})
    for run in (failed, given):
        item = replay(run)
        assert diagnose([(item, check_run(item))], {}) is None


@pytest.mark.parametrize("name", ["ttft_s.mean", "tpot_s.mean", "itl_s.p50", "e2e_s.mean", "e2e_s.p50"])
@pytest.mark.parametrize("factor", [0.4, 2.5])
def test_every_latency_that_is_told_is_judged(name: str, factor: float) -> None:
    """One that is far off alone makes the server unexpected, and the verdict names it."""
    run = load(4, 500, SAID)
    item = replay(run)
    own = {row: value for row, value in simulated_figures(item.simulate()).items() if row.endswith((".mean", ".p50"))}
    told = {"ttft_s.mean": own["ttft_s.mean"], name: factor * own[name]}
    off = replay(replace(run, aggregates=told))
    found = diagnose([(off, check_run(off))], {})
    assert found is not None
    latency = name.partition("_s.")[0]
    assert found.fit.outside == (latency,)
    assert latency.upper() in diagnosis_lines(found)[0]
