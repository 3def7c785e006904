"""Constants from measured runs, through the simulator, by maximum a posteriori."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pandas as pd

from calibrate.check.replay import Replay, measured_figures, simulated_figures
from calibrate.check.run_figures import latency_samples
from calibrate.fit.steps import t_scale
from calibrate.fit.terms import (
    PRIOR_SD,
    USUAL_TPOT,
    USUAL_TTFT,
    USUAL_WEIGHT,
    Posterior,
    constants_at,
    inverse,
    prior_sds,
    prior_terms,
    term_bounds,
)
from files.errors import HeadcountError
from simulator.engines.engines import TITLES, engine_of
from simulator.latency.forms.physical import latency_model
from simulator.latency.gpu_constants import Constants, constants_for
from simulator.latency.model import LogError
from simulator.latency.profile import STEP_SCALE, Term
from simulator.latency.step_time import FloatArray, StepTimes
from simulator.results import SimulationResult
from workloads.synthetic import closed_load

METRICS = ("ttft_s.mean", "tpot_s.mean")
STAND_INS = {"tpot_s.mean": ("itl_s.mean",)}  # where the source has no TPOT of its own
NOISE = {"ttft_s.mean": 0.05, "tpot_s.mean": 0.02}  # of a run's logarithm: repeats differ by 2.6–6.9 % and 0.4–3.6 %
STALLED = 2.0  # times the simulated TPOT of a request, or the reverse
DEGREES_OF_FREEDOM = 4.0  # of Student's t: some runs are odd
PROBE_SD = 0.15  # prior sds that a term is moved for a derivative: a schedule answers in jumps
NEGLIGIBLE = 2e-3  # of a logarithm, for one prior sd: a tenth of the noise
MAX_DERIVATIONS = 2  # beside those about the priors' means: one more gains nothing that can be measured
CLOSE_ENOUGH = 0.01  # of the loss
CURVE = (1, 2, 3, 5, 8, 12, 20, 30)  # runs of the learning curve
CURVE_DRAWS = 20
CANDIDATE_PROMPTS_PER_CLIENT = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class RunData:
    """Runs of one GPU with what was measured: logarithms of METRICS, NaN where a run does not tell."""

    replays: tuple[Replay, ...]
    measured: FloatArray  # [runs, metrics]

    def __len__(self) -> int:
        return len(self.replays)

    @property
    def base(self) -> Constants:
        return constants_for(self.replays[0].deployment.gpu)


def run_data(replays: Sequence[Replay]) -> RunData:
    """Raises HeadcountError for runs without latencies, or of several GPUs or engines."""
    if not replays:
        raise HeadcountError("no measured run that can be fitted; give one with TTFT or TPOT that is not overloaded")
    gpus = {item.deployment.gpu.name for item in replays}
    if len(gpus) > 1:
        raise HeadcountError(f"the runs are of {', '.join(sorted(gpus))}; fit one GPU at a time")
    engines = {TITLES[engine_of(item.deployment.args)] for item in replays}
    if len(engines) > 1:
        raise HeadcountError(f"the runs are of {' and '.join(sorted(engines))}; fit one engine at a time")
    measured = np.array([_logs(measured_figures(item.counted)) for item in replays])
    for item, row in zip(replays, measured, strict=True):
        if not np.isfinite(row).any():
            raise HeadcountError(f"{item.run.source} has neither a TTFT nor a TPOT; leave it out")
    return RunData(replays=tuple(replays), measured=measured)


def _logs(figures: dict[str, float]) -> list[float]:
    found = []
    for metric in METRICS:
        names = (metric, *STAND_INS.get(metric, ()))
        value = next((figures[name] for name in names if figures.get(name, 0.0) > 0.0), math.nan)
        found.append(math.log(value))
    return found


def _run_errors(item: Replay, measured: FloatArray, constants: Constants) -> FloatArray:
    """Logarithms of simulated over measured METRICS, `measured` as in `RunData`.

    Where the simulated requests are the measured ones, one by one, those whose TPOT differs by more than STALLED count
    neither here nor there: a cold server stood still while they were served.
    """
    result, run = item.simulate(constants), item.counted
    errors = np.asarray(np.array(_logs(simulated_figures(result))) - measured)
    if run.requests is not None and _is_paired(result, run.requests):
        own_s, simulated_s = latency_samples(run)["tpot_s"], result.times.tpot_s
        known = (own_s > 0) & (simulated_s > 0) & (own_s < STALLED * simulated_s) & (simulated_s < STALLED * own_s)
        if known.any():
            errors[METRICS.index("tpot_s.mean")] = math.log(simulated_s[known].mean() / own_s[known].mean())
    return errors


def _is_paired(result: SimulationResult, requests: pd.DataFrame) -> bool:
    outputs = np.maximum(requests["output_tokens"].to_numpy(np.float64), 1)
    return np.array_equal(result.times.output_tokens, outputs)


@dataclass(frozen=True, kw_only=True, eq=False)
class Linear:
    """Log errors of runs as a linear function of the terms, about `at`: [runs, metrics], [runs, metrics, terms]."""

    at: FloatArray
    errors: FloatArray
    jacobian: FloatArray

    def where(self, chosen: Any) -> "Linear":
        return Linear(at=self.at, errors=self.errors[chosen], jacobian=self.jacobian[chosen])

    def errors_at(self, values: FloatArray) -> FloatArray:
        return np.asarray(self.errors + self.jacobian @ (values - self.at))


@dataclass(frozen=True, kw_only=True, eq=False)
class RunFit:
    """A posterior, with the runs' behaviour about it."""

    posterior: Posterior
    linear: Linear
    spread: float  # scale of the errors in units of NOISE, at least 1


def fit_runs(data: RunData, *, terms: tuple[Term, ...] | None = None) -> RunFit:
    """The posterior given all runs, each simulated as it was sent; a run's log error follows Student's t.

    Every constant is tried; the scale of all is within them. Terms that hardly change any run within their prior are
    left at it.
    """
    given = prior_terms(tuple(name for name in PRIOR_SD if name != STEP_SCALE)) if terms is None else terms
    first = linearized(data, given, np.array([term.prior_mean for term in given]))
    moving = np.flatnonzero(np.abs(np.nan_to_num(first.jacobian)).max(axis=(0, 1)) * prior_sds(given) > NEGLIGIBLE)
    active = tuple(given[place] for place in moving)
    fitted, linear = _search(data, active, replace(first, at=first.at[moving], jacobian=first.jacobian[:, :, moving]))
    spread = max(t_scale(_scaled(linear.errors)), 1.0)
    covariance = posterior_covariance(linear.jacobian, active, spread)
    found = tuple(replace(term, mean=float(value)) for term, value in zip(active, fitted, strict=True))
    return RunFit(posterior=Posterior(terms=found, covariance=covariance), linear=linear, spread=spread)


def linearized(data: RunData, terms: tuple[Term, ...], values: FloatArray, errors: FloatArray | None = None) -> Linear:
    """Errors with their derivatives; every simulation of a run draws the same random numbers."""
    uppers = term_bounds(terms, data.base)[1]
    here = errors_at(data, terms, values) if errors is None else errors
    columns = []
    for place, term in enumerate(terms):
        moved = values.copy()
        step = PROBE_SD * term.prior_sd
        moved[place] += step if values[place] + step <= uppers[place] else -step
        columns.append(_differences(data, terms, values, moved, here) / (moved[place] - values[place]))
    return Linear(at=values, errors=here, jacobian=np.stack(columns, axis=2))


def _differences(
    data: RunData, terms: tuple[Term, ...], values: FloatArray, moved: FloatArray, here: FloatArray
) -> FloatArray:
    """How much each run's errors change; a run whose step times stay as they were is not simulated."""
    constants = [constants_at(data.base, terms, where) for where in (values, moved)]
    found = np.zeros_like(here)
    for place, item in enumerate(data.replays):
        before, after = (latency_model(item.deployment.served, constants=chosen).step_times for chosen in constants)
        if not _equal(before, after):
            found[place] = _run_errors(item, data.measured[place], constants[1]) - here[place]
    return found


def _equal(one: StepTimes, other: StepTimes) -> bool:
    return all(np.array_equal(getattr(one, item.name), getattr(other, item.name)) for item in fields(StepTimes))


def errors_at(data: RunData, terms: tuple[Term, ...], values: FloatArray) -> FloatArray:
    """Logarithms of simulated over measured, [runs, metrics]."""
    constants = constants_at(data.base, terms, values)
    runs = zip(data.replays, data.measured, strict=True)
    return np.array([_run_errors(item, measured, constants) for item, measured in runs])


def _search(data: RunData, terms: tuple[Term, ...], linear: Linear) -> tuple[FloatArray, Linear]:
    """Gauss-Newton that derives seldom, since a derivative takes a simulation per term and run.

    A move is halved until the posterior grows; after two moves, or one that did not help, derivatives are taken anew.
    """
    bounds = term_bounds(terms, data.base)
    values, errors, loss = linear.at, linear.errors, _loss(linear.errors, terms, linear.at)
    for derivation in range(MAX_DERIVATIONS):
        gained = 0.0
        for _ in range(2):
            target = linear_fit(Linear(at=values, errors=errors, jacobian=linear.jacobian), terms, bounds)
            for halvings in range(4):
                tried = values + (target - values) / 2**halvings
                found = errors_at(data, terms, tried)
                if (tried_loss := _loss(found, terms, tried)) < loss:
                    gained, values, errors, loss = gained + loss - tried_loss, tried, found, tried_loss
                    break
            else:
                break  # the next move would be this one again
        if derivation == MAX_DERIVATIONS - 1 or (derivation and gained < CLOSE_ENOUGH * max(loss, 1.0)):
            break
        linear = linearized(data, terms, values, errors)
    return values, Linear(at=values, errors=errors, jacobian=linear.jacobian)


def _loss(errors: FloatArray, terms: tuple[Term, ...], values: FloatArray) -> float:
    """The negative logarithm of the posterior, but for a constant."""
    nu, scaled = DEGREES_OF_FREEDOM, _scaled(errors)
    prior = (values - np.array([term.prior_mean for term in terms])) / prior_sds(terms)
    return float((nu + 1) / 2 * np.log1p(scaled**2 / nu).sum() + 0.5 * (prior**2).sum())


def _scaled(errors: FloatArray) -> FloatArray:
    """Errors in units of NOISE, in one row; what was not measured errs by nothing."""
    return np.asarray(np.nan_to_num(errors / np.array([NOISE[name] for name in METRICS])).ravel())


def posterior_covariance(jacobian: FloatArray, terms: tuple[Term, ...], spread: float) -> FloatArray:
    """Of the terms given runs with these derivatives, whose errors are `spread` times NOISE."""
    noise = spread * np.array([NOISE[name] for name in METRICS])[None, :, None]
    rows = np.nan_to_num(jacobian / noise).reshape(-1, len(terms))
    return inverse(rows.T @ rows + np.diag(prior_sds(terms) ** -2))


def linear_fit(linear: Linear, terms: tuple[Term, ...], bounds: tuple[FloatArray, FloatArray]) -> FloatArray:
    """The posterior's mode where errors are taken as linear: what leave-one-out and learning curves rest on."""
    sds, noise = prior_sds(terms), np.array([NOISE[name] for name in METRICS])[None, :, None]
    rows = np.nan_to_num(linear.jacobian / noise).reshape(-1, len(terms)) * sds
    means = np.array([term.prior_mean for term in terms])
    offset = _scaled(linear.errors_at(means))
    scaled: FloatArray = np.zeros(len(terms))
    nu = DEGREES_OF_FREEDOM
    for _ in range(30):
        weights = (nu + 1) / (nu + (rows @ scaled + offset) ** 2)
        hessian = rows.T @ (weights[:, None] * rows) + np.eye(len(terms))
        mode = -np.linalg.solve(hessian, rows.T @ (weights * offset))
        scaled = np.clip(mode, (bounds[0] - means) / sds, (bounds[1] - means) / sds)
    return np.asarray(means + sds * scaled)


def left_out_errors(data: RunData, fit: RunFit) -> FloatArray:
    """Log errors of each run simulated with constants that were fitted without it, [runs, metrics]."""
    terms, bounds = fit.posterior.terms, term_bounds(fit.posterior.terms, data.base)
    found = []
    for place in range(len(data)):
        others = np.arange(len(data)) != place
        values = linear_fit(fit.linear.where(others), terms, bounds)
        alone = RunData(replays=(data.replays[place],), measured=data.measured[place : place + 1])
        found.append(errors_at(alone, terms, values)[0])
    return np.array(found)


def run_learning_curve(data: RunData, fit: RunFit, *, seed: int = 0) -> dict[int, dict[str, float]]:
    """Median error in percent on the other runs, by how many were fitted: over draws, linear about the full fit."""
    terms, bounds = fit.posterior.terms, term_bounds(fit.posterior.terms, data.base)
    rng, curve = np.random.default_rng(seed), {}
    for count in (size for size in CURVE if size < len(data)):
        errors = []
        for _ in range(CURVE_DRAWS):
            chosen = np.zeros(len(data), bool)
            chosen[rng.permutation(len(data))[:count]] = True
            values = linear_fit(fit.linear.where(chosen), terms, bounds)
            errors.append(np.abs(np.expm1(fit.linear.where(~chosen).errors_at(values))))
        medians = 100 * np.nanmedian(np.concatenate(errors), axis=0)
        curve[count] = {"ttft_median_percent": float(medians[0]), "tpot_median_percent": float(medians[1])}
    return curve


def log_errors(errors: FloatArray) -> tuple[LogError, LogError]:
    """Of TPOT, TTFT on other loads, from held-out errors; few of them are weighed against the usual."""
    return _log_error(errors[:, 1], USUAL_TPOT), _log_error(errors[:, 0], USUAL_TTFT)


def _log_error(errors: FloatArray, usual: LogError) -> LogError:
    known = errors[np.isfinite(errors)]
    middle = float(np.median(known)) if len(known) else 0.0
    width = 3 * max(float(np.median(np.abs(known - middle))) / 0.6745, 0.02) if len(known) else 1.0
    kept = np.clip(known, middle - width, middle + width)  # one odd run does not say how the others err
    count, bias = len(kept), float(kept.mean()) if len(kept) else 0.0
    weight = USUAL_WEIGHT + count
    deployment = (USUAL_WEIGHT * usual.deployment**2 + count * bias**2) / weight
    residual = (USUAL_WEIGHT * usual.residual**2 + float(((kept - bias) ** 2).sum())) / weight
    return LogError(deployment=math.sqrt(deployment), residual=math.sqrt(residual))


@dataclass(frozen=True, kw_only=True)
class NextRun:
    """A load that would teach most: by how much it shrinks the variance of what is predicted over all candidates."""

    concurrency: int
    input_len: int
    output_len: int
    reduction: float  # share of the summed variance of log TTFT and log TPOT


def next_runs(data: RunData, fit: RunFit, *, count: int = 3) -> list[NextRun]:
    """The best closed-loop runs to measure next, at the lengths that were measured."""
    candidates = _candidates(data)
    terms, values = fit.posterior.terms, fit.posterior.mean
    jacobians = np.stack([_derivatives(item, data.base, terms, values) for _, item in candidates])
    before = _predicted_variance(jacobians, fit.posterior.covariance)
    if before == 0.0:
        return []
    precision = inverse(fit.posterior.covariance)
    noise = fit.spread * np.array([NOISE[name] for name in METRICS])
    found = []
    for (load, _), jacobian in zip(candidates, jacobians, strict=True):
        rows = jacobian / noise[:, None]
        after = _predicted_variance(jacobians, inverse(precision + rows.T @ rows))
        found.append(NextRun(**load, reduction=1 - after / before))
    return sorted(found, key=lambda item: (-item.reduction, item.concurrency, item.input_len))[:count]


def _candidates(data: RunData) -> list[tuple[dict[str, int], Replay]]:
    """Concurrencies in powers of 4 up to the most sequences, at the least and the greatest mean lengths measured."""
    first = data.replays[0]
    lengths = sorted({_mean_lengths(item) for item in data.replays})
    most = first.deployment.engine.max_num_seqs
    sizes = [size for size in (1, 4, 16, 64, 256, 1024) if size <= most]
    found = []
    for input_len, output_len in dict.fromkeys((lengths[0], lengths[-1])):
        for concurrency in sizes:
            load = {"concurrency": concurrency, "input_len": input_len, "output_len": output_len}
            number = CANDIDATE_PROMPTS_PER_CLIENT * concurrency
            found.append((load, replace(first, table=closed_load(num_requests=number, length_spread=0.8, **load))))
    return found


def _mean_lengths(item: Replay) -> tuple[int, int]:
    return round(float(item.table.prompt_tokens.mean())), round(float(item.table.output_tokens.mean()))


def _derivatives(item: Replay, base: Constants, terms: tuple[Term, ...], values: FloatArray) -> FloatArray:
    """[metrics, terms], 0 where a metric is not defined."""
    alone = RunData(replays=(item,), measured=np.zeros((1, len(METRICS))))
    return np.asarray(np.nan_to_num(linearized(alone, terms, values).jacobian[0]))


def _predicted_variance(jacobians: FloatArray, covariance: FloatArray) -> float:
    return float(np.einsum("cmi,ij,cmj->", jacobians, covariance, jacobians))
