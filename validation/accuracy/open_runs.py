"""How far simulated requests at a rate are from those of real servers, under the shipped or other constants."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.check.replay import measured_figures, replay, simulated_figures
from calibrate.check.runs import check_run
from calibrate.measured_run import MeasuredRun
from simulator.latency.gpu_constants import Constants
from validation.measured.request_logs import h100_runs, rtx_replays
from validation.measured.stage_means import stages_of_means

WARMUP_S = 20.0  # of a server: kernels are compiled when they are first used
FIGURES = ("ttft_s.mean", "tpot_s.mean", "e2e_s.mean")
RTX_FIGURES = ("ttft_s.mean", "ttft_s.p50", "ttft_s.p99", "tpot_s.mean", "e2e_s.mean", "e2e_s.p99")


def errors_of_runs(
    runs: Iterable[MeasuredRun], constants: Callable[[MeasuredRun], Constants] | None = None
) -> dict[str, Any]:
    """Signed errors in % of mean latencies, run by run, under the shipped or under other constants."""
    rows = []
    for run in runs:
        item = replay(run)
        measured = dict(run.aggregates) or measured_figures(run)
        simulated = simulated_figures(item.simulate() if constants is None else item.simulate(constants(run)))
        row: dict[str, Any] = {"run": str(run.source)}
        for name in FIGURES:
            row[name.partition("_s")[0]] = round(100 * (simulated[name] / measured[name] - 1), 2)
        rows.append(row)
    return {"rows": rows, "all": _open_errors(rows)}


def _open_errors(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"n": len(rows)}
    for name in ("ttft", "tpot", "e2e"):
        values = np.array([row[name] for row in rows])
        found |= {f"{name}_median": float(np.median(np.abs(values))), f"{name}_bias": float(np.median(values))}
        found[f"{name}_worst"] = float(np.max(np.abs(values)))
    return found


def h100_requests(data: Path) -> dict[str, Any]:
    """Every rate stage of the H100 runs that were not overloaded."""
    return errors_of_runs(h100_runs(data))


def h100_tails(data: Path) -> dict[str, Any]:
    """Signed errors in % of p99s of the same runs, then without the first WARMUP_S of each."""
    rows = []
    for run in h100_runs(data):
        row: dict[str, Any] = {"run": str(run.source)}
        for warmup_s, ending in ((0.0, ""), (WARMUP_S, "_warm")):
            checked = check_run(replay(run, {"warmup_s": warmup_s}))
            for name in ("ttft", "e2e"):
                found = checked.row(f"{name}_s.p99")
                assert found is not None
                row[name + ending] = found.error_percent
        rows.append(row)
    medians = {
        f"{name}_median": float(np.median([abs(row[name]) for row in rows])) for name in rows[0] if name != "run"
    }
    return {"rows": rows, "all": medians}


def h100_aggregates(data: Path) -> dict[str, Any]:
    """Stages of H100 runs of which only means are known, served as a load of the same kind."""
    runs, left_out = stages_of_means(data)
    return errors_of_runs(runs) | {"left_out": left_out}


def rtx(data: Path) -> dict[str, Any]:
    """ShareGPT requests on RTX GPUs; there is one run per GPU, so no other load to fit on."""
    return {"rows": list(judge_rtx(data))}


def judge_rtx(data: Path) -> Iterator[dict[str, Any]]:
    """Errors in percent of each run."""
    for item in rtx_replays(data):
        found = {row.name: row.error_percent for row in check_run(item).rows if row.name in RTX_FIGURES}
        yield {"run": str(item.run.source), **found}
