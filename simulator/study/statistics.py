"""How sure a simulated figure is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from files import special

FloatArray = NDArray[np.float64]
PERCENTILES = (50, 90, 95, 99)
SECTIONS, FEWEST_BEYOND = 10, 2


@dataclass(frozen=True)
class Interval:
    """A mean over independent replications with its two-sided 95 % t-interval."""

    mean: float
    low: float
    high: float


def t_interval(values: Sequence[float] | FloatArray, *, confidence: float = 0.95) -> Interval:
    """Student's t over independent replications; unbounded where fewer than two were run."""
    data = np.asarray(values, dtype=float)
    mean = float(data.mean())
    if len(data) < 2:
        return Interval(mean, -math.inf, math.inf)
    errors = float(special.stdtrit(len(data) - 1, 0.5 + confidence / 2))
    half = errors * float(data.std(ddof=1)) / math.sqrt(len(data))
    return Interval(mean, mean - half, mean + half)


def percentile_error(values: FloatArray, percent: float) -> float | None:
    """Half of the 90 % interval of a percentile of values in order of time, over the percentile itself.

    By sectioning: the percentile of each of SECTIONS parts of the run, about that of the whole, with Student's t, so
    that what follows each other may be alike. None where a part has fewer than FEWEST_BEYOND values beyond it.
    Source: Asmussen, Glynn, Stochastic Simulation, section III.5.
    """
    finite = values[np.isfinite(values)]
    if len(finite) / SECTIONS * (1 - percent / 100) < FEWEST_BEYOND:
        return None
    whole = float(np.percentile(finite, percent))
    parts = np.array([np.percentile(part, percent) for part in np.array_split(finite, SECTIONS)])
    error = math.sqrt(float(((parts - whole) ** 2).sum()) / (SECTIONS * (SECTIONS - 1)))
    return float(special.stdtrit(SECTIONS - 1, 0.95)) * error / whole if whole else 0.0


def fewest_for_error(percent: float) -> int:
    """How many values `percentile_error` needs."""
    return round(SECTIONS * FEWEST_BEYOND / (1 - percent / 100))


def slope(times_s: FloatArray, values: FloatArray) -> float:
    """Least-squares slope, per second; 0 where there are fewer than two points."""
    if len(times_s) < 2:
        return 0.0
    centred = times_s - times_s.mean()
    spread = float(centred @ centred)
    return float(centred @ values) / spread if spread else 0.0


def summary(values: FloatArray) -> dict[str, float | None]:
    """Mean and percentiles; None where there is no value, so that it can be JSON."""
    finite = values[np.isfinite(values)]
    names = ["mean", *(f"p{q}" for q in PERCENTILES)]
    if not len(finite):
        return dict.fromkeys(names)
    return dict(zip(names, [float(finite.mean()), *np.percentile(finite, PERCENTILES).tolist()], strict=True))


def histogram_summary(counts: FloatArray, *, minimum: float, growth: float, mean: float) -> dict[str, float | None]:
    """The same from a histogram whose bin k covers [minimum · growth^k, minimum · growth^(k+1)); middles are given."""
    total = float(counts.sum())
    names = [f"p{q}" for q in PERCENTILES]
    if not total:
        return dict.fromkeys(["mean", *names])
    places = np.searchsorted(np.cumsum(counts), np.array(PERCENTILES) / 100 * total)
    quantiles = minimum * growth ** (places + 0.5)
    return {"mean": mean, **dict(zip(names, quantiles.tolist(), strict=True))}
