"""How alike requests are that come after one another: long prompts among long ones."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter

from workloads.fitted.copula import normal_scores
from workloads.requests import FloatArray, IntArray

_NEAR: Final = 2 ** np.arange(5)  # requests apart at which likeness is looked at
_FAR: Final = np.arange(64, 129, 8)  # there only the windows' means are alike
_DECAYS: Final = np.linspace(0.1, 0.95, 18)
_LEAST: Final = 0.03  # of correlation: less is chance


@dataclass(frozen=True, kw_only=True)
class Serial:
    """Correlation of the normal scores of requests k apart: share * decay ** k."""

    share: float
    decay: float

    def scores(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Standard normal values for places in order."""
        white, steps = rng.standard_normal((2, count))
        steps[1:] *= np.sqrt(1 - self.decay**2)
        slow = lfilter([1.0], [1.0, -self.decay], steps)
        return np.asarray(np.sqrt(self.share) * slow + np.sqrt(1 - self.share) * white, np.float64)


def fit_serial(values: npt.ArrayLike) -> Serial:
    """Of values in order of arrival."""
    scores = normal_scores(values)
    if len(scores) < 2 * _FAR[-1]:
        return Serial(share=0.0, decay=0.0)
    near = np.array([_correlation(scores, lag) for lag in _NEAR.tolist()])
    near -= np.mean([_correlation(scores, lag) for lag in _FAR.tolist()])
    if near[0] < _LEAST:
        return Serial(share=0.0, decay=0.0)
    shapes = _DECAYS[:, None] ** _NEAR
    shares = np.clip((shapes @ near) / (shapes**2).sum(axis=1), 0, 1)
    best = int(np.argmin(((shares[:, None] * shapes - near) ** 2).sum(axis=1)))
    return Serial(share=round(float(shares[best]), 3), decay=round(float(_DECAYS[best]), 3))


def _correlation(scores: FloatArray, lag: int) -> float:
    return float((scores[lag:] * scores[:-lag]).mean() / max(float((scores**2).mean()), 1e-12))


def lined_up(order: IntArray, window: IntArray, values: FloatArray, scores: FloatArray) -> IntArray:
    """The order, changed within windows, so that values rise where the scores of places rise."""
    found = np.empty_like(order)
    found[np.lexsort((scores, window))] = order[np.lexsort((values[order], window))]
    return found
