"""Errors of constants that were fitted without the run, its release, or its model, that they are judged on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calibrate.measured_run import MeasuredRun
from kvcache.models.catalog import find_gpu
from simulator.latency.covariance import Term, multiplied
from simulator.latency.gpu_constants import MEASURED, OPEN_TTFT, Constants, constants_for
from simulator.latency.step_time import FloatArray
from validation.accuracy.closed_loops import errors_by, errors_of
from validation.accuracy.intervals import Spread, coverage, ends_of, open_coverage, open_spreads, spreads
from validation.accuracy.open_runs import errors_of_runs
from validation.accuracy.scoreboard import scoreboard
from validation.accuracy.slo_crossings import knees, knees_by_kind
from validation.constants import cases, step_times
from validation.constants.cases import Case
from validation.constants.step_times import Problem
from validation.measured.launches import is_of_dynamo
from validation.measured.request_logs import h100_runs
from validation.measured.settings import Setting

Logs = Callable[[Case], dict[Term, float]]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Settings with logarithms of measured over simulated [settings, (TTFT, TPOT)], by constants that know less."""

    settings: Sequence[Setting]
    releases: FloatArray  # fitted without this one's model, GPU and release
    other_runs: FloatArray  # fitted without a fifth of the runs that holds this one
    other_models: FloatArray  # fitted without this one's model
    at_a_rate: Sequence[Case]
    rate_releases: FloatArray  # [at_a_rate, (TTFT, TPOT)] fitted without this one's model, GPU and release
    requests: Mapping[str, Any]  # errors on the H100 request logs, fitted without their model

    def table(self, errors: FloatArray) -> pd.DataFrame:
        relative = 100 * np.expm1(-errors)
        columns = {"ttft_error_percent": relative[:, 0], "tpot_error_percent": relative[:, 1]}
        return pd.DataFrame([setting.__dict__ for setting in self.settings]).assign(**columns)


def hold_out(data: Path, workers: int) -> HeldOut:
    """The fit of validation/constants/step_times.py, whose prior no run has touched, without a part of the runs."""
    problem = step_times.problem_from(data)
    judged = [case for case in problem.cases if isinstance(case.run, Setting)]
    folds = np.random.default_rng(1).integers(0, step_times.FOLDS, len(judged))
    fold_of = {id(case): int(fold) for case, fold in zip(judged, folds, strict=True)}

    def errors(part_of: Callable[[Case], Any], what: str, among: Sequence[Case] = judged) -> FloatArray:
        found = logs_without(problem, part_of)
        watch = step_times.watcher(f"{what} held out", 100)
        return cases.log_errors(among, [found(case) for case in among], workers, watch)

    without_model = logs_without(problem, lambda case: case.model)

    def constants(run: MeasuredRun) -> Constants:
        case = Case(run)
        return multiplied(constants_for(find_gpu(case.gpu)), without_model(case))

    at_a_rate = [case for case in problem.cases if case.is_load_at_random]
    return HeldOut(
        at_a_rate=at_a_rate,
        rate_releases=errors(lambda case: case.release, "rates", at_a_rate),
        settings=[case.run for case in judged if isinstance(case.run, Setting)],
        releases=errors(lambda case: case.release, "releases"),
        other_runs=errors(lambda case: fold_of.get(id(case), step_times.FOLDS), "runs"),
        other_models=errors(lambda case: case.model, "models"),
        requests=errors_of_runs(h100_runs(data), constants),
    )


def logs_without(problem: Problem, part_of: Callable[[Case], Any]) -> Logs:
    """Logarithms of the shipped constants' multipliers for a run, fitted to the runs of all parts but its own."""
    prior = step_times.prior_of(problem.columns, problem.texts)
    parts = np.array([repr(part_of(case)) for case in problem.cases])

    @cache
    def without(part: str) -> FloatArray:
        return step_times.fit(problem, step_times.trained(problem, parts != part), prior).logs

    @cache
    def on(gpu: str, part: str) -> dict[Term, float]:
        logs = step_times.logs_of(gpu, problem, without(part))
        return {term: log + _since(problem, gpu, term) for term, log in logs.items()}

    return lambda case: on(case.gpu, repr(part_of(case)))


def _since(problem: Problem, gpu: str, term: Term) -> float:
    """What stood in the files about which derivatives are, over what is shipped."""
    name, key = term
    shipped = getattr(constants_for(find_gpu(gpu)), name)
    return float(np.log(step_times.reference(problem.texts, gpu, term) / (shipped if key is None else shipped[key])))


def held_out(data: Path, workers: int) -> dict[str, Any]:
    """Errors, intervals and largest loads of constants that were fitted without the run, its release, or its model."""
    found = hold_out(data, workers)
    kept, of_users = [*shipped_spreads(found)], open_spreads(found.at_a_rate, found.rate_releases)
    known = ends_of(found.settings, kept, measured=False)
    told = [row for row, setting in enumerate(found.settings) if not is_of_dynamo(setting)]  # by their TTFT
    return {
        "releases": errors_of(found.table(found.releases)),
        "scoreboard": scoreboard(found.settings, found.releases, known),
        "other_runs": errors_of(found.table(found.other_runs)),
        "other_models": errors_of(found.table(found.other_models)),
        "models": errors_by(found.table(found.other_models), ["model"]),
        "spreads": {
            spread.kind: {"tpot": vars(spread.tpot), "ttft": vars(spread.ttft)}
            | ({OPEN_TTFT: vars(of_users[spread.kind])} if spread.kind in of_users else {})
            for spread in kept
        },
        "intervals_of_users": open_coverage(found.at_a_rate, found.rate_releases, of_users),
        "requests": found.requests,
        "intervals": coverage(found.settings, found.releases, known),
        "intervals_of_other_models": coverage(found.settings, found.releases),
        "intervals_of_other_runs": coverage(
            found.settings, found.other_runs, ends_of(found.settings, kept, measured=True)
        ),
        "knees": knees(found.settings, found.releases[:, 1], known[:, 1]),
        "ttft_knees": knees(
            [found.settings[row] for row in told], found.releases[told, 0], known[told, 0], name="ttft_s"
        ),
        "knee_kinds": knees_by_kind(found.settings, found.releases[:, 1], known[:, 1]),
    }


def shipped_spreads(found: HeldOut) -> list[Spread]:
    """Of deployments that no fit saw; then of those that it saw, on other runs."""
    others = spreads(found.settings, found.releases)
    known = spreads(found.settings, found.other_runs)
    return [*others, *(replace(spread, kind=MEASURED + spread.kind) for spread in known)]
