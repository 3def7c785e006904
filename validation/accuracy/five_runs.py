"""Errors after a fit to 5 runs of a deployment, on its other runs."""

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.check.replay import Replay
from calibrate.fit.runs import errors_at, fit_runs, run_data
from validation.accuracy.slo_crossings import knees
from validation.measured.closed_loops import replay_of
from validation.measured.settings import Setting, read_settings

FITTED_RUNS = 5  # of a group of closed-loop runs, spread over concurrency
MIN_GROUP = 8


def judge_groups(data: Path) -> Iterator[dict[str, Any]]:
    """Per group of closed-loop runs of one deployment: errors on those that were not among the 5 fitted."""
    groups: dict[Any, list[Any]] = defaultdict(list)
    for setting in read_settings(data)[0]:
        groups[setting.group].append(setting)
    for name, settings in groups.items():
        if len(settings) >= MIN_GROUP:
            settings.sort(key=lambda setting: (setting.concurrency, setting.isl + setting.osl))
            try:
                replays = [replay_of(setting) for setting in settings]
            except ValueError as problem:
                print(f"skipped: {problem}", file=sys.stderr)
                continue
            yield _judged_group(name, settings, replays)


def _judged_group(name: Any, settings: list[Setting], replays: list[Replay]) -> dict[str, Any]:
    chosen = set(np.round(np.linspace(0, len(replays) - 1, FITTED_RUNS)).astype(int).tolist())
    fitted = run_data([replays[place] for place in sorted(chosen)])
    rest = run_data([item for place, item in enumerate(replays) if place not in chosen])
    found = fit_runs(fitted)
    shipped = 100 * np.abs(np.expm1(errors_at(rest, (), np.empty(0))))
    terms, values = found.posterior.terms, found.posterior.mean
    every = errors_at(run_data(replays), terms, values)  # a curve over the loads is of all
    after = 100 * np.abs(np.expm1(every[[place for place in range(len(replays)) if place not in chosen]]))
    return {
        "group": " ".join(map(str, name)),
        "judged": len(rest),
        **{f"{metric}_shipped": float(np.median(shipped[:, place])) for place, metric in enumerate(("ttft", "tpot"))},
        **{f"{metric}_fitted": float(np.median(after[:, place])) for place, metric in enumerate(("ttft", "tpot"))},
        "settings": settings,
        "log_errors": (-every[:, 1]).tolist(),
        "ttft_errors": after[:, 0].tolist(),
        "tpot_errors": after[:, 1].tolist(),
    }


def five_runs(data: Path) -> dict[str, Any]:
    """All groups together, and each."""
    groups = list(judge_groups(data))
    errors = {name: np.concatenate([group[f"{name}_errors"] for group in groups]) for name in ("ttft", "tpot")}
    return {
        "n": len(errors["tpot"]),
        "groups": len(groups),
        **{f"{name}_median": float(np.median(values)) for name, values in errors.items()},
        **{f"{name}_mean": float(np.mean(values)) for name, values in errors.items()},
        "knees": knees(
            [setting for group in groups for setting in group["settings"]],
            np.concatenate([group["log_errors"] for group in groups]),
        ),
        "rows": [
            {key: value for key, value in group.items() if not key.endswith("_errors") and key != "settings"}
            for group in groups
        ],
    }
