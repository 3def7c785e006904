"""Errors by group of model, GPU and release, each left out of the fit, the worst first."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from simulator.latency.step_time import FloatArray
from validation.accuracy.intervals import are_inside
from validation.accuracy.slo_crossings import knees
from validation.measured.settings import Setting


def scoreboard(settings: Sequence[Setting], errors: FloatArray, ends: FloatArray) -> list[dict[str, Any]]:
    """One row a group, from logarithms of measured over simulated [settings, (TTFT, TPOT)] and their intervals.

    `ends`: [settings, (TTFT, TPOT), (below, above)].

    Medians of absolute errors and coverage in %; `low_over`: the share of limits on TPOT at which the users at 95 %
    confidence are too many, None without a limit that a measured curve crosses.
    """
    names = [(setting.model, setting.gpu, setting.version) for setting in settings]
    rows = []
    for name in sorted(set(names)):
        own = [place for place, other in enumerate(names) if other == name]
        off, wide = errors[own], ends[own]
        ttft, tpot = np.median(np.abs(np.expm1(-off)), axis=0)
        ttft_covered, tpot_covered = are_inside(off, wide).mean(axis=0)
        crossed = knees([settings[place] for place in own], off[:, 1], wide[:, 1])
        rows.append(
            dict(zip(("model", "gpu", "version"), name, strict=True))
            | {
                "n": len(own),
                "tpot_median": 100 * float(tpot),
                "ttft_median": 100 * float(ttft),
                "tpot_covered": 100 * float(tpot_covered),
                "ttft_covered": 100 * float(ttft_covered),
                "limits": crossed["n"],
                "low_over": crossed["low_over"] if crossed["n"] else None,
            }
        )
    return sorted(rows, key=lambda row: -float(row["tpot_median"]))
