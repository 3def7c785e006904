"""Figures as an answer keeps them: percentiles of many values, and as many digits as can be seen."""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from simulator.study.statistics import percentile_error, summary

P99_COLUMN: Final = "p99, from this run"
P99_MEANING: Final = "p99, from this run: by step-time error and the noise within the run; other seeds may differ more"
PERCENTILES: Final = (*range(0, 100, 5), 97, 98, 99, 99.5, 99.9)


def percentiles_json(times_s: NDArray[np.float64]) -> list[float] | None:
    """At PERCENTILES; None where nothing was measured."""
    known = times_s[np.isfinite(times_s)]
    return [rounded(value) for value in np.percentile(known, PERCENTILES)] if len(known) else None


def p99_interval(times_s: NDArray[np.float64], log_error: float) -> tuple[float, float] | None:
    """A real server's p99, from the noise within one run, in order of arrival, and the error of step times.

    Other seeds differ more where queues build up now and then: a run may have none of those times, or many.
    None where too few requests lie beyond it to say.
    """
    noise, p99 = percentile_error(times_s, 99), summary(times_s)["p99"]
    if noise is None or p99 is None:
        return None
    factor = math.exp(math.hypot(math.log1p(noise), log_error))
    return p99 / factor, p99 * factor


def rounded(value: float) -> float:
    """Five significant digits: more cannot be seen."""
    return float(f"{value:.5g}")
