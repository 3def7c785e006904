"""How far simulated closed-loop runs of SGLang are from the measured ones, with vLLM's step times.

    python -m validation.accuracy.sglang CLONE [--write]

CLONE is a clone of github.com/ai-dynamo/aiconfigurator. `--write` puts the figures into docs/measurements/results;
`python -m validation.pages` then writes the page. Nothing is fitted to these runs but the width of the interval, which
stands in simulator/latency/evidence.py.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from simulator.latency.model import LogError
from simulator.latency.step_time import FloatArray
from validation.accuracy.closed_loops import compare, error_rows, errors_by
from validation.accuracy.intervals import LEVEL, fit_spread
from validation.markdown import DOCS
from validation.measured.settings import Setting
from validation.measured.sglang_runs import judged, read_sglang_settings, simulate

RESULT = DOCS / "measurements" / "results" / "sglang-runs.json"
BY = ["model", "gpu", "precision", "version"]


def measure(clone: Path) -> dict[str, Any]:
    """Errors by deployment, the interval that holds them, how often it does for a model that it has not seen."""
    settings, skipped = read_sglang_settings(clone)
    rows, failed = compare(settings, simulate)
    assert not failed, "what cannot be simulated is left out by name"
    logs, tells = error_rows(rows), np.array([judged(setting).ttft for setting in settings])
    rows["e2e_error_percent"] = 100 * (_e2e_s(rows, "simulated_") / _e2e_s(rows, "") - 1)
    kinds = errors_by(rows, BY)
    for kind, (_, group) in zip(kinds, rows.groupby(BY), strict=True):
        kind["e2e_median"] = round(float(group["e2e_error_percent"].abs().median()), 2)
        kind["e2e_bias"] = round(float(group["e2e_error_percent"].median()), 2)
        if not tells[group.index].any():
            kind |= {"ttft_median": None, "ttft_mean": None, "ttft_bias": None}
    return {
        "settings": len(settings),
        "skipped": skipped,
        "kinds": kinds,
        "tpot": _judged(settings, logs[:, 1], np.full(len(settings), True)),
        "ttft": _judged(settings, logs[:, 0], tells),
    }


def _e2e_s(rows: pd.DataFrame, whose: str) -> "pd.Series[float]":
    return rows[f"{whose}ttft_s"] + rows[f"{whose}tpot_s"] * (rows["osl"] - 1)


def _judged(settings: list[Setting], errors: FloatArray, tells: FloatArray) -> dict[str, Any]:
    chosen = np.flatnonzero(tells)
    kept, found = [settings[row] for row in chosen], errors[chosen]
    models = np.array([setting.model for setting in kept])
    widths = np.zeros(len(kept))
    for model in np.unique(models):
        own = models == model
        other = _spread([kept[row] for row in np.flatnonzero(~own)], found[~own])
        widths[own] = [other.log_half_width_at(kept[row].concurrency) for row in np.flatnonzero(own)]
    return {
        "n": len(kept),
        "median_percent": 100 * float(np.median(np.abs(np.expm1(-found)))),
        "bias_percent": 100 * float(np.median(np.expm1(-found))),
        "log_error": asdict(_spread(kept, found)),
        "level": LEVEL,
        "covered_percent": 100 * float(np.mean(np.abs(found) <= widths)),
    }


def _spread(settings: list[Setting], errors: FloatArray) -> LogError:
    return fit_spread(errors, [s.group for s in settings], np.array([float(s.concurrency) for s in settings]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=Path, help="folder of the clone")
    parser.add_argument("--write", action="store_true", help=f"put the figures into {RESULT.name}")
    given = parser.parse_args()
    text = json.dumps(measure(given.clone), indent=1) + "\n"
    if given.write:
        RESULT.write_text(text, encoding="utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
