"""How many requests arrive when, and how bursty they are on each time scale."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from workloads.requests import NEXT_FREE, FloatArray, RequestTable

WINDOWS_S: Final = (1, 10, 60, 600)
HOUR_S: Final = 3600
_FEWEST_WINDOWS: Final = 2


@dataclass(frozen=True, kw_only=True)
class Window:
    """Counts of requests in windows of one length, as many as fit in whole; the rest of the time is left out."""

    num_windows: int
    peak_per_s: float
    """Rate in the fullest window."""
    variance_over_mean: float
    """Of the counts: 1 for Poisson arrivals, more for bursts."""


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """Rates in requests per second, times in seconds."""

    duration_s: float
    """From the first to the last arrival."""
    mean_per_s: float
    """Gaps over the duration."""
    gap_cv: float
    """Standard deviation over mean of the gaps between arrivals: 1 for Poisson."""
    gap_p50_s: float
    gap_p99_s: float
    num_times: int
    """Distinct times of arrival."""
    windows: Mapping[int, Window]
    """By length in seconds; those that fit at least twice."""
    hourly_per_s: tuple[float, ...]
    """Rate by hour, the first hour being that after the first request: mean over the days; empty below one day."""


def arrivals(at_s: FloatArray) -> Arrivals | None:
    """What is true of these times, in any order; None where they span no time."""
    times = np.sort(at_s) - np.min(at_s, initial=np.inf)
    if len(times) < 2 or not times[-1] > 0:  # NaN, too
        return None
    gaps = np.diff(times)
    p50, p99 = np.percentile(gaps, (50, 99))
    return Arrivals(
        duration_s=float(times[-1]),
        mean_per_s=float(1 / gaps.mean()),
        gap_cv=float(gaps.std() / gaps.mean()),
        gap_p50_s=float(p50),
        gap_p99_s=float(p99),
        num_times=1 + int(np.count_nonzero(gaps)),
        windows={width: _window(times, width) for width in WINDOWS_S if times[-1] >= _FEWEST_WINDOWS * width},
        hourly_per_s=_hourly(times),
    )


def counts(times: FloatArray, width_s: float) -> FloatArray:
    """Arrivals in each whole window from 0 on."""
    num_windows = int(times[-1] // width_s)
    edges = np.searchsorted(times, np.arange(num_windows + 1) * width_s)
    return np.diff(edges).astype(np.float64)


def _window(times: FloatArray, width_s: int) -> Window:
    found = counts(times, width_s)
    return Window(
        num_windows=len(found),
        peak_per_s=float(found.max() / width_s),
        variance_over_mean=float(found.var() / found.mean()),
    )


def _hourly(times: FloatArray) -> tuple[float, ...]:
    found = counts(times, HOUR_S) / HOUR_S
    if len(found) < 24:
        return ()
    hour = np.arange(len(found)) % 24
    return tuple((np.bincount(hour, found) / np.bincount(hour)).tolist())


def earliest_arrival_s(table: RequestTable) -> FloatArray:
    """[n] when each request arrives if every answer takes no time; NaN where it waits for any other to finish."""
    at_s = np.where(table.follows >= 0, table.think_s, table.arrival_s)
    at_s = np.where(table.follows == NEXT_FREE, np.nan, at_s)
    before = np.maximum(table.follows, -1)
    while (before >= 0).any():  # each pass doubles how many turns have been added up
        rows = np.flatnonzero(before >= 0)
        at_s[rows] += at_s[before[rows]]
        before[rows] = before[before[rows]]
    return at_s
