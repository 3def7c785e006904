"""Errors of constants that were fitted without the run, or without the model, that they are judged on."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent))

import fit_cases  # the scripts beside this one
import fit_constants
import silicon
from fit_cases import Case
from fit_constants import Prior

from kvcache.catalog import find_gpu
from simulator.latency._constants import constants_for
from simulator.latency._covariance import Term, general_sd
from simulator.step_time import FloatArray

WIDER = 2.0  # than the priors of benchmarks/fit_constants.py: they lie about values that have seen the runs


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Settings with logarithms of measured over simulated [settings, (TTFT, TPOT)], by constants that know less."""

    settings: Sequence[silicon.Setting]
    other_runs: FloatArray  # fitted without a fifth of the runs that holds this one
    other_models: FloatArray  # fitted without this one's model

    def table(self, errors: FloatArray) -> pd.DataFrame:
        relative = 100 * np.expm1(-errors)
        columns = {"ttft_error_percent": relative[:, 0], "tpot_error_percent": relative[:, 1]}
        return pd.DataFrame([setting.__dict__ for setting in self.settings]).assign(**columns)


def hold_out(data: Path, workers: int) -> HeldOut:
    """The fit of benchmarks/fit_constants.py about kernel tables alone, which no run has touched, without a part."""
    parts = [_without(family, data, workers) for family in fit_constants.GPUS]
    settings = [case.run for judged, _, _ in parts for case in judged if isinstance(case.run, silicon.Setting)]
    runs, models = (np.concatenate([part[place] for part in parts]) for place in (1, 2))
    return HeldOut(settings, runs, models)


def _without(family: str, data: Path, workers: int) -> tuple[list[Case], FloatArray, FloatArray]:
    """A family's closed loops, with their errors without their part of the runs, then without their model."""
    gpus, rng = fit_constants.GPUS[family], np.random.default_rng(1)
    cases, terms = fit_constants.cases_of(family, data, 1.0, rng), fit_constants.terms_of(family)
    problem = fit_cases.linearize(cases, terms, workers, fit_constants.watcher(f"{family}, derivatives"))
    prior = about_kernel_tables(fit_constants.prior_of(gpus, terms), terms, gpus[0])
    judged = fit_cases.closed_loops(data, gpus)
    fold_of = dict(zip([case.run for case in judged], rng.integers(0, fit_constants.FOLDS, len(judged)), strict=True))

    def errors(part_of: Callable[[Case], Any]) -> FloatArray:
        logs = _logs_without(problem, prior, part_of, judged)
        return fit_cases.log_errors(judged, logs, workers, fit_constants.watcher(f"{family}, held out", 100))

    by_run = errors(lambda case: fit_constants.FOLDS if case.is_open else int(fold_of[case.run]))
    return judged, by_run, errors(lambda case: case.model)


def about_kernel_tables(prior: Prior, terms: Sequence[Term], gpu: str) -> Prior:
    """A wider prior about the kernel tables' values, as logarithms of multipliers of those shipped."""
    shipped, tables = constants_for(find_gpu(gpu)), constants_for(find_gpu(gpu), "prior")
    mean = np.zeros(len(terms))
    for place, (name, key) in enumerate(terms):
        values = [getattr(constants, name) for constants in (tables, shipped)]
        first, second = values if key is None else [value.get(key, 0.0) for value in values]
        if min(first, second) > 0:
            mean[place] = np.log(first / second)
    sd = WIDER * fit_constants.PRIOR_SHARE * np.array([general_sd()[term] for term in terms])
    return Prior(np.minimum(mean, prior.most), sd, prior.most)


def _logs_without(
    problem: fit_cases.Linearized, prior: Prior, part_of: Callable[[Case], Any], judged: Sequence[Case]
) -> list[dict[Term, float]]:
    """Fitted logarithms of the terms for each run, from the runs of other parts."""
    parts = np.array([part_of(case) for case in problem.cases])
    fitted = {
        part: fit_constants.fit(problem, np.flatnonzero(parts != part), prior).logs.tolist()
        for part in {part_of(case) for case in judged}
    }
    return [dict(zip(problem.terms, fitted[part_of(case)], strict=True)) for case in judged]
