"""When requests arrive: how many in each window of a recording, and how unevenly within, on every time scale.

A window's requests are split between its halves, these between theirs, and so on: a binomial cascade whose shares have
a beta distribution of their own on each scale (Riedi, Crouse, Ribeiro, Baraniuk: A Multifractal Wavelet Model with
Application to Network Traffic, IEEE Trans. Information Theory 45, 1999). Poisson arrivals split evenly but for chance.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from workloads.fitted.marginals import FEWEST
from workloads.requests import FloatArray, IntArray
from workloads.traces.times import tick_of

MOST_WINDOWS: Final = 128
MOST_HALVINGS: Final = 24
_PER_WINDOW: Final = 5 * FEWEST  # requests on average
_MOST_UNEVEN: Final = 0.98  # 1 would put all of a window's requests into one of its halves


@dataclass(frozen=True, kw_only=True)
class Cascade:
    """Arrivals of one period, which repeats."""

    period_s: float
    """0: all requests arrive at once."""
    tick_s: float
    """Times are multiples of it; 0 where they were not rounded."""
    windows: tuple[float, ...]
    """Share of the requests in each of these parts of the period, of equal length."""
    unevenness: tuple[float, ...]
    """Scale by scale, from halves of windows on: correlation of any two requests' halves, from 0 (Poisson) to 1."""

    def times(self, num_requests: int, per_period: int, rng: np.random.Generator) -> FloatArray:
        """Ascending times of the first so many requests, of which each period has `per_period`."""
        periods = -(-num_requests // per_period)
        counts = np.rint(np.cumsum((0.0, *self.windows)) / sum(self.windows) * per_period)
        drawn = [self._period(np.diff(counts).astype(np.int64), rng) + k * self.period_s for k in range(periods)]
        return np.concatenate(drawn)[:num_requests]

    def _period(self, counts: IntArray, rng: np.random.Generator) -> FloatArray:
        """[sum of counts] ascending times of one period."""
        width = self.period_s / len(counts)
        start, count, done = np.arange(len(counts)) * width, counts, []
        for uneven in self.unevenness:
            alone = count < 2
            done.append((start[alone], count[alone], width))
            start, count, width = start[~alone], count[~alone], width / 2
            left = rng.binomial(count, _shares(uneven, len(count), rng))
            start, count = np.concatenate([start, start + width]), np.concatenate([left, count - left])
        done.append((start, count, width))
        drawn = [np.repeat(begin, n) + w * rng.random(int(n.sum())) for begin, n, w in done]
        times = np.sort(np.concatenate(drawn))
        return np.floor(times / self.tick_s) * self.tick_s if self.tick_s else times

    def window_of(self, times: FloatArray) -> IntArray:
        """[n] the window in which each time lies."""
        if not self.period_s:
            return np.zeros(len(times), np.int64)
        place = times % self.period_s / self.period_s * len(self.windows)
        return np.minimum(place.astype(np.int64), len(self.windows) - 1)


def _shares(uneven: float, count: int, rng: np.random.Generator) -> FloatArray | float:
    """Of the left halves: beta of mean 1/2, for which two requests' halves are so correlated."""
    if uneven <= 0:
        return 0.5
    shape = (1 / min(uneven, _MOST_UNEVEN) - 1) / 2
    return rng.beta(shape, shape, count)


def fit_cascade(times: FloatArray) -> Cascade:
    """What ascending times from 0 on, of one request at least, are like."""
    n, last = len(times), float(times[-1])
    if not last > 0:
        return Cascade(period_s=0.0, tick_s=0.0, windows=(1.0,), unevenness=())
    period_s, tick_s = last * n / (n - 1), tick_of(times)
    num_windows = 2 ** int(np.clip(np.log2(max(n / _PER_WINDOW, 1)), 0, np.log2(MOST_WINDOWS)))
    width = period_s / num_windows
    windows = np.bincount((times / width).astype(np.int64), minlength=num_windows)
    if tick_s:  # ticks of which some cells hold two and some one would look like bursts
        times = np.sort(times + tick_s * np.random.default_rng(0).random(n))
    return Cascade(
        period_s=period_s,
        tick_s=tick_s,
        windows=tuple((windows / n).round(6).tolist()),
        unevenness=_profile(times, width, tick_s),
    )


def _profile(times: FloatArray, width: float, tick_s: float) -> tuple[float, ...]:
    """Unevenness of halves of windows of this width, and of ever smaller ones, as far as requests tell it."""
    found = list[float]()
    while len(found) < MOST_HALVINGS and width / 2 > tick_s:
        width /= 2
        uneven = _unevenness((times / width).astype(np.int64))
        if uneven is None:
            break
        found.append(float(f"{min(max(uneven, 0.0), _MOST_UNEVEN):.3g}"))
    return tuple(found)


def _unevenness(half: IntArray) -> float | None:
    """How much likelier than by chance two requests of a cell lie in the same half; None of few requests."""
    halves, counts = np.unique(half, return_counts=True)
    cells, place = np.unique(halves // 2, return_inverse=True)
    total = np.bincount(place, counts, len(cells))
    left = np.bincount(place, counts * (halves % 2 == 0), len(cells))
    several = total >= 2
    total, left = total[several], left[several]
    if total.sum() < 2 * FEWEST:
        return None
    return float(((2 * left - total) ** 2 - total).sum() / (total * (total - 1)).sum())
