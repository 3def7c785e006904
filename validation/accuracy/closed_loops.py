"""How far simulated closed-loop runs are from the measured ones."""

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from simulator.latency.step_time import FloatArray
from validation.accuracy.intervals import coverage, shipped_ends
from validation.accuracy.slo_crossings import knees
from validation.measured.closed_loops import simulate
from validation.measured.settings import RUNS_FILE, Setting, read_settings

DENSE_MODELS = ("Qwen/Qwen3-32B", "meta-llama/Llama-3.1-70B")
Simulate = Callable[[Setting], tuple[float, float]]  # mean TTFT, mean TPOT in seconds


def compare(settings: Sequence[Setting], simulated_by: Simulate = simulate) -> tuple[pd.DataFrame, int]:
    """One row per setting with simulated values and errors in percent; how many could not be simulated."""
    rows, failed = [], 0
    for setting in settings:
        try:
            ttft_s, tpot_s = simulated_by(setting)
        except ValueError as problem:
            print(f"skipped: {problem}", file=sys.stderr)
            failed += 1
            continue
        rows.append(
            setting.__dict__
            | {
                "simulated_ttft_s": ttft_s,
                "simulated_tpot_s": tpot_s,
                "ttft_error_percent": 100 * (ttft_s / setting.ttft_s - 1),
                "tpot_error_percent": 100 * (tpot_s / setting.tpot_s - 1),
            }
        )
    return pd.DataFrame(rows), failed


def error_table(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Median and mean absolute errors, with the median signed error (`bias`), in percent."""
    records = []
    for key, group in rows.groupby(by):
        record: dict[str, Any] = dict(zip(by, key, strict=True)) | {"n": len(group)}
        for name in ("ttft", "tpot"):
            error = group[f"{name}_error_percent"]
            record |= {f"{name}_median": error.abs().median(), f"{name}_mean": error.abs().mean()}
            record[f"{name}_bias"] = error.median()
        records.append(record)
    return pd.DataFrame(records)


def errors_of(rows: pd.DataFrame) -> dict[str, Any]:
    """Median, mean and bias of both errors in percent, with how many."""
    table = error_table(rows.assign(all=0), ["all"]).drop(columns="all")
    return {key: float(value) if key != "n" else int(value) for key, value in table.iloc[0].items()}


def errors_by(rows: pd.DataFrame, by: list[str]) -> list[dict[str, Any]]:
    """The same per group, to two digits."""
    return [
        {str(key): item if isinstance(item, str) else round(float(item), 2) for key, item in row.items()}
        for row in error_table(rows, by).to_dict("records")
    ]


def kinds_of_errors(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Dense models and mixtures of experts, by GPU."""
    dense = rows["model"].isin(DENSE_MODELS)
    return errors_by(rows.assign(kind=np.where(dense, "dense", "mixture of experts")), ["kind", "gpu"])


def error_rows(rows: pd.DataFrame) -> FloatArray:
    """Logarithms of measured over simulated [settings, (TTFT, TPOT)]."""
    return -np.log1p(rows[["ttft_error_percent", "tpot_error_percent"]].to_numpy(dtype=np.float64) / 100)


def closed_loops(data: Path) -> dict[str, Any]:
    """All settings by shipped constants and by kernel tables alone, with how long they took."""
    settings, skipped = read_settings(data)
    begin_s, begin_cpu_s = time.monotonic(), time.process_time()
    shipped, failed = compare(settings)
    lasted_s, cpu_s = time.monotonic() - begin_s, time.process_time() - begin_cpu_s
    prior, _ = compare(settings, partial(simulate, from_kernel_tables=True))
    rows = len(pd.read_csv(data / RUNS_FILE))
    return {
        "rows": rows,
        "answered_rows": rows - sum(skipped.values()),
        "settings": len(settings),
        "failed": failed,
        "left_out": {reason: count for reason, count in skipped.items() if count},
        "lasted_s": lasted_s,
        "cpu_s": cpu_s,
        "shipped": errors_of(shipped),
        "prior": errors_of(prior),
        "knees": knees(settings, error_rows(shipped)[:, 1], shipped_ends(settings)[:, 1]),
        "prior_knees": knees(settings, error_rows(prior)[:, 1]),
        "kinds": kinds_of_errors(shipped),
        "groups": errors_by(shipped, ["model", "gpu", "precision", "version"]),
    }


def shipped_intervals(data: Path) -> dict[str, Any]:
    """How often the interval that an answer states holds what was measured."""
    settings, _ = read_settings(data)
    rows, _ = compare(settings)
    return coverage(settings, error_rows(rows), shipped_ends(settings))
