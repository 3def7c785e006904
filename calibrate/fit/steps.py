"""Constants from recorded engine steps, by maximum a posteriori."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibrate.fit.terms import (
    Posterior,
    constants_at,
    difference_steps,
    inverse,
    prior_sds,
    prior_terms,
    step_term_names,
    term_bounds,
)
from calibrate.recording import Recording
from files.errors import HeadcountError
from simulator.latency.forms.physical import latency_model
from simulator.latency.gpu_constants import Constants, constants_for
from simulator.latency.model import ServedModel
from simulator.latency.profile import Term
from simulator.latency.step_time import FloatArray

DEGREES_OF_FREEDOM = 4.0  # of Student's t: stalls and hiccups lie far out
MAX_ITERATIONS = 30
CLOSE_ENOUGH = 2e-3  # prior sds that the last move may be long
MAY_WAKE = ("host_", "eager_", "piecewise_")  # terms of a maximum: without effect until it turns
NUM_BLOCKS = 200  # of consecutive steps, which err alike: the covariance counts them, not the steps
FOLDS = 5
MIN_STEPS = 20
CURVE = (20, 50, 100, 200, 500, 1_000, 5_000)  # steps of the learning curve
_WHOLE = ("tokens", "sequences", "sampled", "prefill_tokens")
_SUMS = (*_WHOLE, "decode_context", "window_context", "prefill_work", "window_prefill_work")


@dataclass(frozen=True, kw_only=True, eq=False)
class Steps:
    """Steps of one deployment as columns, in order."""

    served: ServedModel
    sums: dict[str, NDArray[Any]]
    measured_s: FloatArray

    def __len__(self) -> int:
        return len(self.measured_s)

    def where(self, chosen: NDArray[np.bool_]) -> "Steps":
        sums = {name: column[chosen] for name, column in self.sums.items()}
        return Steps(served=self.served, sums=sums, measured_s=self.measured_s[chosen])

    def predicted_s(self, constants: Constants) -> FloatArray:
        return latency_model(self.served, constants=constants).step_times.steps_s(self.sums)


def steps_of(recording: Recording, served: ServedModel) -> Steps:
    """The recording's steps whose time is known.

    Raises HeadcountError where a column is missing, a value is none, or a step is beyond the engine's limits.
    """
    table = recording.steps
    if served.args.data_parallel_size > 1:
        raise HeadcountError(
            "a step of one data-parallel rank waits for the others, which are not in the recording; fit runs"
        )
    if served.args.pipeline_parallel_size > 1:
        raise HeadcountError(
            "a step of a pipeline overlaps the next, so that its time is not in the recording; fit runs"
        )
    if missing := [name for name in ("cycle_s", *_SUMS) if name not in table.columns]:
        raise HeadcountError(f"the recording has no {', '.join(missing)}; record the steps again")
    cycle_s = pd.to_numeric(table["cycle_s"], errors="coerce").to_numpy(np.float64)
    kept = table[np.isfinite(cycle_s) & (cycle_s > 0)]
    sums: dict[str, NDArray[Any]] = {}
    for name in _SUMS:
        column = pd.to_numeric(kept[name], errors="coerce").to_numpy(np.float64)
        if not (np.isfinite(column).all() and (column >= 0).all()):
            raise HeadcountError(
                f"the recording does not tell every step's {name} (a log of iterations never does); record the steps "
                "with 'headcount calibrate record'"
            )
        sums[name] = column.astype(np.int64) if name in _WHOLE else column
    limits = {"tokens": served.args.max_num_batched_tokens, "sampled": served.args.max_num_seqs}
    for name, limit in limits.items():
        if len(kept) and sums[name].max() > limit:
            option = "--max-num-batched-tokens" if name == "tokens" else "--max-num-seqs"
            raise HeadcountError(
                f"a recorded step holds {sums[name].max():,} {name}, more than the engine's {limit:,}; give the "
                f"server's own {option}"
            )
    return Steps(served=served, sums=sums, measured_s=kept["cycle_s"].to_numpy(np.float64))


@dataclass(frozen=True, kw_only=True, eq=False)
class StepFit:
    """A posterior, with the scale of a step's own error in its logarithm."""

    posterior: Posterior
    noise: float


def fit_steps(
    data: Sequence[Steps], *, terms: tuple[Term, ...] | None = None, start: FloatArray | None = None
) -> StepFit:
    """The posterior of the terms given the steps, all of one GPU.

    A step's log error follows Student's t; its scale is found with the terms. Each Gauss-Newton step is halved until
    the posterior grows. Raises HeadcountError where there are too few steps.
    """
    count = sum(map(len, data))
    if count < MIN_STEPS:
        raise HeadcountError(f"{count} steps with a known time; a fit needs at least {MIN_STEPS}")
    given = prior_terms(step_term_names()) if terms is None else terms
    problem = _Problem(data, tuple(given))
    values = np.array([term.prior_mean for term in given]) if start is None else start.copy()
    residuals = problem.residuals(values)
    noise = t_scale(residuals)
    for _ in range(MAX_ITERATIONS):
        jacobian = problem.jacobian(values, residuals)
        move = problem.newton(values, residuals, jacobian, noise)
        before = values
        values, residuals = problem.moved(values, move, residuals, noise)
        noise = t_scale(residuals)
        if values is before or np.abs(move / problem.sds).max() < CLOSE_ENOUGH:  # else each move is this one again
            break
    jacobian = problem.jacobian(values, residuals)
    fitted = tuple(replace(term, mean=float(value)) for term, value in zip(given, values, strict=True))
    covariance = problem.covariance(residuals, jacobian, noise)
    return StepFit(posterior=Posterior(terms=fitted, covariance=covariance), noise=noise)


class _Problem:
    """Log errors of all steps as a function of the terms."""

    def __init__(self, data: Sequence[Steps], terms: tuple[Term, ...]) -> None:
        self.data = [steps for steps in data if len(steps)]
        self.terms = terms
        self.base = constants_for(self.data[0].served.gpu)
        self.means, self.sds = np.array([term.prior_mean for term in terms]), prior_sds(terms)
        self.idle: set[int] = set()  # terms that change no step
        self.lowers, self.uppers = term_bounds(terms, self.base)
        self.measured = np.log(np.concatenate([steps.measured_s for steps in self.data]))

    def residuals(self, values: FloatArray) -> FloatArray:
        """Logarithm of predicted over measured."""
        constants = constants_at(self.base, self.terms, values)
        predicted_s = np.concatenate([steps.predicted_s(constants) for steps in self.data])
        return np.asarray(np.log(predicted_s) - self.measured)

    def jacobian(self, values: FloatArray, residuals: FloatArray) -> FloatArray:
        """[steps, terms]."""
        columns = []
        for place, step in enumerate(difference_steps(self.terms)):
            if place in self.idle:
                columns.append(np.zeros_like(residuals))
                continue
            moved = values.copy()
            moved[place] += step
            columns.append((self.residuals(moved) - residuals) / step)
        found = np.stack(columns, axis=1)
        self.idle |= {
            int(place)
            for place in np.flatnonzero(~found.any(axis=0))
            if not self.terms[place].name.startswith(MAY_WAKE)
        }
        return found

    def newton(self, values: FloatArray, residuals: FloatArray, jacobian: FloatArray, noise: float) -> FloatArray:
        weights = _weights(residuals, noise)
        hessian = jacobian.T @ (weights[:, None] * jacobian) + np.diag(self.sds**-2)
        gradient = jacobian.T @ (weights * residuals) + (values - self.means) / self.sds**2
        return bounded_move(np.asarray(hessian), np.asarray(gradient), self.lowers - values, self.uppers - values)

    def moved(
        self, values: FloatArray, move: FloatArray, residuals: FloatArray, noise: float
    ) -> tuple[FloatArray, FloatArray]:
        before = self.loss(values, residuals, noise)
        for halvings in range(12):
            tried = values + move / 2**halvings
            found = self.residuals(tried)
            if self.loss(tried, found, noise) <= before:
                return tried, found
        return values, residuals

    def loss(self, values: FloatArray, residuals: FloatArray, noise: float) -> float:
        """The negative logarithm of the posterior, but for a constant."""
        prior = 0.5 * float((((values - self.means) / self.sds) ** 2).sum())
        spread = np.log1p((residuals / noise) ** 2 / DEGREES_OF_FREEDOM)
        return prior + (DEGREES_OF_FREEDOM + 1) / 2 * float(spread.sum())

    def covariance(self, residuals: FloatArray, jacobian: FloatArray, noise: float) -> FloatArray:
        """The sandwich: curvature of the loss, about scores summed over blocks of consecutive steps."""
        nu, squared = DEGREES_OF_FREEDOM, (residuals / noise) ** 2
        curvature = max(float(np.mean((nu + 1) * (nu - squared) / (nu + squared) ** 2)), 0.1) / noise**2
        prior = np.diag(self.sds**-2)
        bread = inverse(curvature * jacobian.T @ jacobian + prior)
        scores = (_weights(residuals, noise) * residuals)[:, None] * jacobian
        starts = np.unique(np.linspace(0, len(residuals), min(NUM_BLOCKS, len(residuals)), endpoint=False).astype(int))
        summed = np.add.reduceat(scores, starts, axis=0)
        independent = scores.T @ scores
        clustered = summed.T @ summed * len(starts) / max(len(starts) - 1, 1)
        # Blocks see errors that last, single steps have less noise of their own: take whichever is larger in trace.
        meat = clustered if np.trace(bread @ clustered) >= np.trace(bread @ independent) else independent
        found = bread @ (meat + prior) @ bread
        return np.asarray((found + found.T) / 2)


def bounded_move(hessian: FloatArray, gradient: FloatArray, lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Newton's move between two bounds: what would leave them stops there, and the others move as they then do best."""
    stopped = np.zeros(len(gradient), bool)
    move = np.zeros_like(gradient)
    for _ in range(len(gradient)):
        free = ~stopped
        push = gradient[free] + hessian[np.ix_(free, stopped)] @ move[stopped]
        move[free] = -np.linalg.solve(hessian[np.ix_(free, free)], push)
        beyond = free & ((move > upper) | (move < lower))
        if not beyond.any():
            break
        move[beyond] = np.clip(move, lower, upper)[beyond]
        stopped |= beyond
    return np.clip(move, lower, upper)


def _weights(residuals: FloatArray, noise: float) -> FloatArray:
    nu = DEGREES_OF_FREEDOM
    return np.asarray((nu + 1) / (nu * noise**2 + residuals**2))


def t_scale(residuals: FloatArray) -> float:
    """The maximum-likelihood scale of Student's t about 0 (iterated reweighting); at least 0.01 %."""
    scale = max(float(np.median(np.abs(residuals))) / 0.74, 1e-4)  # the median of |t| with 4 degrees of freedom
    for _ in range(20):
        weights = (DEGREES_OF_FREEDOM + 1) / (DEGREES_OF_FREEDOM + (residuals / scale) ** 2)
        scale = max(math.sqrt(float(np.mean(weights * residuals**2))), 1e-4)
    return scale


def errors_percent(data: Sequence[Steps], constants: Constants, *, kind: str = "all") -> FloatArray:
    """Signed errors of single steps: of all, or of those without prefill (`decode`) or with (`prefill`)."""
    found = []
    for steps in data:
        if len(steps):
            chosen = _of_kind(steps, kind)
            found.append(100 * (steps.predicted_s(constants) / steps.measured_s - 1)[chosen])
    return np.concatenate(found) if found else np.empty(0)


def _of_kind(steps: Steps, kind: str) -> NDArray[np.bool_]:
    holds_prefill = steps.sums["prefill_tokens"] > 0
    return {"all": np.ones(len(steps), bool), "decode": ~holds_prefill, "prefill": holds_prefill}[kind]


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldOut:
    """Errors on steps that a fit did not see, in percent; `bias` of each fold is that of its summed time."""

    errors: dict[str, FloatArray]  # by kind
    fold_log_bias: FloatArray

    def figures(self) -> dict[str, float]:
        found = {"fold_bias_percent": 100 * float(np.sqrt(np.mean(self.fold_log_bias**2)))}
        for kind, errors in self.errors.items():
            if len(errors):
                size = np.abs(errors)
                found |= {
                    f"{kind}_steps": float(len(errors)),
                    f"{kind}_mean_percent": float(size.mean()),
                    f"{kind}_median_percent": float(np.median(size)),
                }
        return found


def held_out(data: Sequence[Steps], fit: StepFit, *, folds: int = FOLDS) -> HeldOut:
    """Each fold is a stretch of consecutive steps of each recording, judged by a fit to the rest."""
    found: dict[str, list[FloatArray]] = {"all": [], "decode": [], "prefill": []}
    biases = []
    for fold in range(folds):
        inside = [_stretch(len(steps), fold, folds) for steps in data]
        kept = [steps.where(~mask) for steps, mask in zip(data, inside, strict=True)]
        judged = [steps.where(mask) for steps, mask in zip(data, inside, strict=True)]
        if sum(map(len, kept)) < MIN_STEPS or not sum(map(len, judged)):
            continue
        fitted = fit_steps(kept, terms=fit.posterior.terms, start=fit.posterior.mean)
        constants = fitted.posterior.constants(constants_for(data[0].served.gpu))
        for kind, errors in found.items():
            errors.append(errors_percent(judged, constants, kind=kind))
        biases.append(_log_bias(judged, constants))
    return HeldOut(
        errors={kind: np.concatenate(errors) if errors else np.empty(0) for kind, errors in found.items()},
        fold_log_bias=np.array(biases if biases else [math.nan]),
    )


def learning_curve(data: Sequence[Steps], *, seed: int = 0, draws: int = 3) -> dict[int, float]:
    """Median error in percent on steps not drawn, by how many were drawn for the fit: the median over draws."""
    total, curve = sum(map(len, data)), {}
    rng = np.random.default_rng(seed)
    for count in CURVE:
        if count > total // 2:
            break
        medians = []
        for _ in range(draws):
            order = np.zeros(total, bool)
            order[rng.permutation(total)[:count]] = True
            masks = np.split(order, np.cumsum([len(steps) for steps in data])[:-1])
            drawn = [steps.where(mask) for steps, mask in zip(data, masks, strict=True)]
            rest = [steps.where(~mask) for steps, mask in zip(data, masks, strict=True)]
            constants = fit_steps(drawn).posterior.constants(constants_for(data[0].served.gpu))
            medians.append(float(np.median(np.abs(errors_percent(rest, constants)))))
        curve[count] = float(np.median(medians))
    return curve


def _stretch(count: int, fold: int, folds: int) -> NDArray[np.bool_]:
    bounds = np.linspace(0, count, folds + 1).astype(int)
    mask = np.zeros(count, bool)
    mask[bounds[fold] : bounds[fold + 1]] = True
    return mask


def _log_bias(data: Sequence[Steps], constants: Constants) -> float:
    predicted = sum(float(steps.predicted_s(constants).sum()) for steps in data if len(steps))
    return math.log(predicted / sum(float(steps.measured_s.sum()) for steps in data))
