"""A step's time as a sum of terms, each a time per unit of one of the step's sums."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import nnls

from files.errors import HeadcountError

FloatArray = NDArray[np.float64]

ROUNDS = 15  # of reweighting
OUTLIER = 4.0  # spreads from which on a step counts less
KNEE_TOKENS = 256  # about where a GPU's matrix products stop being bound by reading weights
TERMS = (
    "constant",
    "any_decode",
    "tokens",
    "tokens_beyond_knee",
    "sequences",
    "sampled",
    "decode_context",
    "prefill_work",
    "window_context",
    "window_prefill_work",
)


def term_matrix(steps: pd.DataFrame) -> FloatArray:
    """[steps, terms] out of the sums' columns."""
    columns = {
        "constant": np.ones(len(steps)),
        "any_decode": steps["decode_context"] > 0,
        "tokens_beyond_knee": np.maximum(steps["tokens"] - KNEE_TOKENS, 0),
    }
    return np.column_stack([np.asarray(columns.get(name, steps.get(name)), np.float64) for name in TERMS])


@dataclass(frozen=True, eq=False)
class TermTimes:
    """Seconds per unit of each term, none negative, with how well they tell the steps they come from."""

    seconds: FloatArray
    median_error: float  # median absolute relative error of a step
    relative_error: float  # standard error of a predicted step time, the worst over those steps; relative


def fit_terms(steps: pd.DataFrame, groups: Sequence[object]) -> TermTimes:
    """Least squares of errors relative to the fitted times, none of which is negative; steps without a time are left
    out.

    Relative to the fitted, not the measured ones, which would favour too short times; Huber's weights begin at
    OUTLIER spreads, so that the fit tells the mean and a step that something else held up does not decide. Steps of one
    of the `groups` err alike, which the standard error takes into account (the cluster-robust covariance of Liang and
    Zeger, 1986, of the terms that are not zero). Raises HeadcountError where no step has a time.
    """
    timed = (steps["cycle_s"] > 0).to_numpy()
    if not timed.any():
        raise HeadcountError("no recorded step has a time; record again with more steps")
    terms = term_matrix(steps[timed])
    cycle_s = steps["cycle_s"].to_numpy(np.float64)[timed]
    most = np.abs(terms).max(axis=0)
    scale = np.where(most > 0, most, 1.0)
    fitted_s, weights = cycle_s, np.ones(len(cycle_s))
    for _ in range(ROUNDS):
        factor = weights / fitted_s
        found, _ = nnls(terms / scale * factor[:, None], cycle_s * factor, maxiter=1000)
        fitted_s = np.maximum(terms / scale @ found, 1e-3 * cycle_s)
        residuals = cycle_s / fitted_s - 1
        spread = max(float(np.median(np.abs(residuals))) * 1.4826, 1e-9)
        weights = np.sqrt(1 / np.maximum(np.abs(residuals) / (OUTLIER * spread), 1.0))
    clusters = pd.factorize(pd.Series(list(groups))[timed])[0]
    rows = terms / scale / fitted_s[:, None]
    error = _prediction_error(rows * weights[:, None], residuals * weights, clusters, found > 0)
    return TermTimes(found / scale, float(np.median(np.abs(fitted_s / cycle_s - 1))), error)


def _prediction_error(
    rows: FloatArray, residuals: FloatArray, clusters: NDArray[np.intp], kept: NDArray[np.bool_]
) -> float:
    """The largest standard error of the rows' predictions, relative to their times."""
    used = rows[:, kept]
    bread = np.linalg.pinv(used.T @ used)
    scores = np.zeros((clusters.max() + 1, used.shape[1]))
    np.add.at(scores, clusters, used * residuals[:, None])
    count = len(scores)
    meat = scores.T @ scores * (count / max(count - 1, 1))
    covariance = bread @ meat @ bread
    return float(np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", used, covariance, used), 0).max()))
