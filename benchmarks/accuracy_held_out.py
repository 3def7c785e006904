"""Errors of constants that were fitted without the run, or without the model, that they are judged on."""

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent))

import fit_constants  # the scripts beside this one
import silicon

from kvcache.catalog import find_gpu
from simulator.latency._constants import constants_for
from simulator.step_time import FloatArray

SHARE = 0.3  # of the runs that the fits for held-out figures see
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
    every, _ = silicon.read_settings(data)
    parts = []
    for family, gpus in fit_constants.GPUS.items():
        mine = [setting for setting in every if setting.gpu in gpus]
        rng = np.random.default_rng(1)
        seen = [
            setting
            for setting in mine
            if setting.concurrency <= fit_constants.MOST_CLIENTS
            and setting.model != fit_constants.LEFT_OUT
            and rng.random() < SHARE
        ]
        problem = about_kernel_tables(fit_constants.measure(seen, workers, _watch(family)), gpus[0])
        folds = dict(zip(mine, rng.integers(0, fit_constants.FOLDS, len(mine)).tolist(), strict=True))
        found = []
        for part_of in (folds.__getitem__, lambda setting: setting.model):
            logs = _logs_without(problem, part_of, mine)
            found.append(_log_errors(mine, logs, workers))
        parts.append((mine, *found))
    return HeldOut(
        [setting for mine, _, _ in parts for setting in mine],
        np.concatenate([runs for _, runs, _ in parts]),
        np.concatenate([models for _, _, models in parts]),
    )


@dataclass(frozen=True, eq=False)
class Centred:
    """A problem in units of wider priors about the kernel tables' values; `logs` turns a fit back."""

    problem: fit_constants.Problem
    centre: FloatArray

    def logs(self, rows: Any) -> FloatArray:
        return np.asarray(self.centre + WIDER * fit_constants.fit(self.problem, rows))


def about_kernel_tables(problem: fit_constants.Problem, gpu: str) -> Centred:
    shipped, prior = constants_for(find_gpu(gpu)), constants_for(find_gpu(gpu), "prior")
    centre = np.zeros(len(fit_constants.PRIOR_SD))
    for place, (name, key) in enumerate(fit_constants.PRIOR_SD):
        pair = [getattr(constants, name) for constants in (prior, shipped)]
        values = pair if key is None else [value.get(key, 0.0) for value in pair]
        if min(values) > 0:
            centre[place] = np.log(values[0] / values[1])
    moved = fit_constants.Problem(
        problem.settings, problem.left(centre), WIDER * problem.jacobian, (problem.most - centre) / WIDER
    )
    return Centred(moved, centre)


def _logs_without(
    problem: Centred, part_of: Callable[[silicon.Setting], Any], settings: Sequence[silicon.Setting]
) -> list[FloatArray]:
    """Fitted logarithms of the terms for each setting, from the runs of other parts."""
    parts = np.array([part_of(setting) for setting in problem.problem.settings])
    fitted = {part: problem.logs(np.flatnonzero(parts != part)) for part in {part_of(setting) for setting in settings}}
    return [fitted[part_of(setting)] for setting in settings]


def _log_errors(settings: Sequence[silicon.Setting], logs: Sequence[FloatArray], workers: int) -> FloatArray:
    jobs = [
        (setting, dict(zip(fit_constants.PRIOR_SD, values.tolist(), strict=True)))
        for setting, values in zip(settings, logs, strict=True)
    ]
    with ProcessPoolExecutor(workers) as pool:
        simulated = np.array(list(pool.map(fit_constants.log_figures, jobs, chunksize=4)))
    return np.asarray(np.log([(setting.ttft_s, setting.tpot_s) for setting in settings]) - simulated)


def _watch(family: str) -> Callable[[int, int], None]:
    def watch(done: int, total: int) -> None:
        if done % 200 == 0 or done == total:
            print(f"{family}: {done:,} of {total:,} simulations", file=sys.stderr, flush=True)

    return watch
