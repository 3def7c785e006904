"""Errors after a fit to a deployment's other loads, on requests of H100 servers at a rate."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.check.replay import Replay, measured_figures, replay, simulated_figures
from calibrate.check.runs import check_run
from calibrate.fit.runs import fit_runs, run_data
from simulator.latency.gpu_constants import Constants
from simulator.latency.model import average_step
from validation.measured.request_logs import h100_runs

FIGURES = ("tpot_s.mean", "e2e_s.mean", "e2e_s.p99", "ttft_s.mean")


def judge_loads(data: Path) -> Iterator[dict[str, Any]]:
    """Each load, simulated with constants fitted on the same deployment's other loads."""
    groups: dict[str, list[Replay]] = defaultdict(list)
    for run in h100_runs(data):
        groups[run.options["model"]].append(replay(run))
    for group in groups.values():
        for place, judged in enumerate(group):
            others = run_data([item for number, item in enumerate(group) if number != place])
            fitted = fit_runs(others).posterior.constants(others.base)
            most = max(_mean_sequences(item, fitted) for item in others.replays)
            yield _errors(judged, fitted) | {"fuller": _mean_sequences(judged, fitted) > most}


def _mean_sequences(item: Replay, constants: Constants) -> float:
    return average_step(item.simulation(constants).totals).sequences


def _errors(item: Replay, constants: Constants) -> dict[str, Any]:
    measured, shipped = measured_figures(item.run), simulated_figures(item.simulate())
    fitted = simulated_figures(item.simulate(constants))
    row: dict[str, Any] = {"run": str(item.run.source), "overloaded": check_run(item).is_overloaded}
    for name in FIGURES:
        row[f"{name}_shipped"] = 100 * (shipped[name] / measured[name] - 1)
        row[f"{name}_fitted"] = 100 * (fitted[name] / measured[name] - 1)
    return row


def fitted_loads(data: Path) -> dict[str, Any]:
    """Medians and worst of absolute errors in %: all loads, and those fuller than the ones fitted."""
    rows = [row for row in judge_loads(data) if not row["overloaded"]]
    chosen = {"all": rows, "fuller": [row for row in rows if row["fuller"]]}
    return {"rows": rows} | {name: _summary(found) for name, found in chosen.items() if found}


def _summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    found: dict[str, float] = {"n": len(rows)}
    for name in FIGURES:
        shipped, fitted = (np.abs([row[f"{name}_{how}"] for row in rows]) for how in ("shipped", "fitted"))
        found |= {f"{name}_shipped": float(np.median(shipped)), f"{name}_fitted": float(np.median(fitted))}
        found[f"{name}_fitted_worst"] = float(np.max(fitted))
    return found
