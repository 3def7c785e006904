"""How far the largest concurrency under a latency limit is off, on curves of closed loops over the concurrency."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from calibrate.check.largest_loads import load_at
from simulator.latency.step_time import FloatArray
from validation.accuracy.intervals import kinds_of
from validation.measured.settings import Setting

LIMITS_S = {
    "tpot_s": (0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1),
    "ttft_s": (0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0),
}
OPTIMISTIC = 20.0  # % above what was measured


def knees(
    settings: Sequence[Setting], log_errors: FloatArray, ends: FloatArray | None = None, *, name: str = "tpot_s"
) -> dict[str, Any]:
    """Errors in % of the largest concurrencies, at every limit of this mean latency that a measured curve crosses.

    `log_errors`: logarithms of measured over simulated; `ends`: of their intervals [settings, (below, above)], whose
    lower end of the concurrency is what an answer calls safe (`low_…`). A curve is of one deployment at one input and
    output length.
    Where none crosses a limit, only `n`, 0.
    """
    curves: dict[Any, list[int]] = defaultdict(list)
    for place, setting in enumerate(settings):
        curves[(*setting.group, setting.isl, setting.osl)].append(place)
    errors, safe, inside = [], [], []
    for places in curves.values():
        places.sort(key=lambda place: settings[place].concurrency)
        loads = [settings[place].concurrency for place in places]
        measured = np.array([getattr(settings[place], name) for place in places])
        simulated = measured * np.exp(-log_errors[places])
        shorter, longer = np.exp(ends[places]).T if ends is not None else np.ones((2, len(places)))
        for limit in LIMITS_S[name]:
            if len(loads) > 1 and measured.min() < limit < measured.max():
                real = load_at(loads, measured, limit)
                low, found, high = (load_at(loads, simulated * by, limit) for by in (longer, 1.0, 1 / shorter))
                assert real is not None
                # What lies farther than a curve is followed is off by no less than that.
                errors.append(np.nan if found is None else 100 * (found / real - 1))
                safe.append(100 * ((low or 0.0) / real - 1))
                inside.append((low or 0.0) <= real <= (high or np.inf))
    if not errors:
        return {"n": 0}
    known = np.array([error for error in errors if np.isfinite(error)])
    promised = np.array(safe)
    return {
        "n": len(errors),
        "untold": len(errors) - len(known),
        "median": float(np.median(np.abs(known))),
        "mean": float(np.mean(np.abs(known))),
        "bias": float(np.median(known)),
        "optimistic": 100 * float(np.mean(known > OPTIMISTIC)),
        "covered": 100 * float(np.mean(inside)) if ends is not None else None,
        "low_bias": float(np.median(promised)) if ends is not None else None,
        "low_over": 100 * float(np.mean(promised > 0)) if ends is not None else None,
        "low_optimistic": 100 * float(np.mean(promised > OPTIMISTIC)) if ends is not None else None,
    }


def knees_by_kind(settings: Sequence[Setting], tpot_errors: FloatArray, ends: FloatArray) -> dict[str, Any]:
    """The same for each kind of deployment by which intervals go."""
    kinds = kinds_of(settings)
    found = {}
    for kind in sorted(set(kinds.tolist())):
        rows = np.flatnonzero(kinds == kind)
        found[kind] = knees([settings[row] for row in rows], tpot_errors[rows], ends[rows])
    return found
