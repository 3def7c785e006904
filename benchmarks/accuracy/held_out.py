"""Errors of constants that were fitted without the run, or without the model, that they are judged on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.accuracy.closed_loops import errors_by, errors_of
from benchmarks.accuracy.intervals import MEASURED, Spread, coverage, spreads
from benchmarks.accuracy.open_runs import errors_of_runs
from benchmarks.constants import cases, step_times
from benchmarks.constants.cases import Case
from benchmarks.constants.step_times import Prior
from benchmarks.measured.request_logs import h100_runs
from benchmarks.measured.settings import Setting
from calibrate.measured_run import MeasuredRun
from kvcache.models.catalog import find_gpu
from simulator.latency.covariance import Term, multiplied
from simulator.latency.gpu_constants import Constants, constants_for
from simulator.latency.step_time import FloatArray


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Settings with logarithms of measured over simulated [settings, (TTFT, TPOT)], by constants that know less."""

    settings: Sequence[Setting]
    other_runs: FloatArray  # fitted without a fifth of the runs that holds this one
    other_models: FloatArray  # fitted without this one's model
    requests: Mapping[str, Any]  # errors on the H100 request logs, fitted without their model

    def table(self, errors: FloatArray) -> pd.DataFrame:
        relative = 100 * np.expm1(-errors)
        columns = {"ttft_error_percent": relative[:, 0], "tpot_error_percent": relative[:, 1]}
        return pd.DataFrame([setting.__dict__ for setting in self.settings]).assign(**columns)


def hold_out(data: Path, workers: int) -> HeldOut:
    """The fit of benchmarks/constants/step_times.py, whose prior no run has touched, without a part of the runs."""
    parts = [_without(family, data, workers) for family in step_times.GPUS]
    settings = [case.run for part in parts for case in part.judged if isinstance(case.run, Setting)]
    by_run, by_model = (np.concatenate([getattr(part, name) for part in parts]) for name in ("by_run", "by_model"))
    (requests,) = (part.requests for part in parts if part.requests)  # there are logs of one family
    return HeldOut(settings, by_run, by_model, requests)


@dataclass(frozen=True, eq=False)
class _Family:
    judged: Sequence[Case]  # closed loops
    by_run: FloatArray
    by_model: FloatArray
    requests: Mapping[str, Any]


def _without(family: str, data: Path, workers: int) -> _Family:
    """A family's closed loops with their errors without their part of the runs, then without their model."""
    gpus, rng = step_times.GPUS[family], np.random.default_rng(1)
    known, terms = step_times.cases_of(family, data, 1.0, rng), step_times.terms_of(family)
    problem = cases.linearize(known, terms, workers, step_times.watcher(f"{family}, derivatives"))
    prior = step_times.prior_of(gpus, terms)
    judged = cases.closed_loops(data, gpus)
    fold_of = dict(zip([case.run for case in judged], rng.integers(0, step_times.FOLDS, len(judged)), strict=True))

    def errors(part_of: Callable[[Case], Any]) -> FloatArray:
        found = _logs_without(problem, prior, part_of)
        logs = [found(part_of(case)) for case in judged]
        return cases.log_errors(judged, logs, workers, step_times.watcher(f"{family}, held out", 100))

    by_run = errors(lambda case: step_times.FOLDS if case.is_open else int(fold_of[case.run]))
    without_model = _logs_without(problem, prior, lambda case: case.model)
    logged = [run for run in h100_runs(data) if run.options["gpu"] in gpus]

    def constants(run: MeasuredRun) -> Constants:
        return multiplied(constants_for(find_gpu(run.options["gpu"])), without_model(run.options["model"]))

    requests = errors_of_runs(logged, constants) if logged else {}
    return _Family(judged, by_run, errors(lambda case: case.model), requests)


def _logs_without(
    problem: cases.Linearized, prior: Prior, part_of: Callable[[Case], Any]
) -> Callable[[Any], dict[Term, float]]:
    """Fitted logarithms of the terms from the runs of all parts but one; each fit is made once."""
    parts = [part_of(case) for case in problem.cases]

    @cache
    def without(part: Any) -> dict[Term, float]:
        others = np.array([place for place, own in enumerate(parts) if own != part])
        return dict(zip(problem.terms, step_times.fit(problem, others, prior).logs.tolist(), strict=True))

    return without


def held_out(data: Path, workers: int) -> dict[str, Any]:
    """Errors and intervals of constants that were fitted without the run, or without the model."""
    found = hold_out(data, workers)
    return {
        "other_runs": errors_of(found.table(found.other_runs)),
        "other_models": errors_of(found.table(found.other_models)),
        "models": errors_by(found.table(found.other_models), ["model"]),
        "spreads": {
            spread.kind: {"tpot": vars(spread.tpot), "ttft": vars(spread.ttft)} for spread in shipped_spreads(found)
        },
        "requests": found.requests,
        "intervals": coverage(found.settings, found.other_models),
        "intervals_of_other_runs": coverage(found.settings, found.other_runs),
    }


def shipped_spreads(found: HeldOut) -> list[Spread]:
    """Of models that no fit saw; then of those that it saw, on other runs."""
    others = spreads(found.settings, found.other_models)
    known = [spread for spread in spreads(found.settings, found.other_runs) if spread.kind != "old-experts"]
    return [*others, *(replace(spread, kind=MEASURED + spread.kind) for spread in known)]
