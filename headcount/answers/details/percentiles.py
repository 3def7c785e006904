"""Figures as an answer keeps them: percentiles of many values, and as many digits as can be seen."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

PERCENTILES: Final = (*range(0, 100, 5), 97, 98, 99, 99.5, 99.9)


def percentiles_json(times_s: NDArray[np.float64]) -> list[float] | None:
    """At PERCENTILES; None where nothing was measured."""
    known = times_s[np.isfinite(times_s)]
    return [rounded(value) for value in np.percentile(known, PERCENTILES)] if len(known) else None


def rounded(value: float) -> float:
    """Five significant digits: more cannot be seen."""
    return float(f"{value:.5g}")
