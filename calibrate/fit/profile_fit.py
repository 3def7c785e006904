"""A latency profile from recordings of engine steps or from measured runs."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrate.check.replay import Replay, measured_figures, replay
from calibrate.check.runs import measured_overload
from calibrate.check.steps import recorded_deployment
from calibrate.fit.inputs import Inputs
from calibrate.fit.runs import (
    METRICS,
    NextRun,
    RunFit,
    errors_at,
    fit_runs,
    left_out_errors,
    log_errors,
    next_runs,
    run_data,
    run_learning_curve,
)
from calibrate.fit.steps import HeldOut, Steps, errors_percent, fit_steps, held_out, learning_curve, steps_of
from calibrate.fit.terms import USUAL_TPOT, USUAL_TTFT, Posterior
from calibrate.recording import Recording
from files.documents import Json
from files.errors import HeadcountError
from simulator.engines.engines import engine_of
from simulator.latency.gpu_constants import Constants, constants_for
from simulator.latency.model import LogError, ServedModel, average_step, ranged_sums
from simulator.latency.profile import LatencyProfile, Range, digest_of, settings_of
from simulator.latency.step_time import FloatArray

STEP_FLOOR = 0.02  # of a log error: what steps do not say of requests, such as the API server's share
EDGE_PERCENTILES = (0.5, 99.5)  # of the steps' sums: what lies further out is no range that was covered
MIN_PREFILL_STEPS = 50  # that say something of TTFT
# Half of the 90 % interval for a fitted deployment on loads that it was not fitted to: who misses the very data that
# was fitted by more has the wrong options, or measurements that no model of such a server explains.
OWN_LIMITS_PERCENT = {
    **dict.fromkeys(("tpot_median_percent", "decode_median_percent"), 100 * USUAL_TPOT.half_width),
    **dict.fromkeys(("ttft_median_percent", "prefill_median_percent"), 100 * USUAL_TTFT.half_width),
}
MAX_WORST = 3  # runs that are named
_RANGED = ("tokens", "sequences", "decode_context", "prefill_tokens")
Watch = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Fitted:
    """A profile, with what its reader should know of it."""

    profile: LatencyProfile
    before: Mapping[str, float]  # errors with the shipped constants, in percent
    own: Mapping[str, float]  # medians of the errors on the data that was fitted, in percent
    worst: tuple[str, ...] = ()  # runs that the profile misses most, with by how much
    curve: Mapping[int, Mapping[str, float]]  # errors on the rest by the number of steps or runs fitted
    curve_unit: str
    next_runs: tuple[NextRun, ...] = ()
    left_out: tuple[str, ...] = ()  # what was not used, and why

    def to_json(self) -> Json:
        profile = self.profile
        return {
            "name": profile.name,
            "gpu": profile.gpu,
            "terms": [
                {"name": term.name, "mean": term.mean, "sd": float(sd), "prior_mean": term.prior_mean,
                 "prior_sd": term.prior_sd}
                for term, sd in zip(profile.terms, profile.sd, strict=True)
            ],
            "tpot_log_error": {"deployment": profile.tpot_log_error.deployment,
                               "residual": profile.tpot_log_error.residual},
            "ttft_log_error": {"deployment": profile.ttft_log_error.deployment,
                               "residual": profile.ttft_log_error.residual},
            "before": dict(self.before),
            "own_data": dict(self.own),
            "held_out": dict(profile.held_out),
            "learning_curve": [{self.curve_unit: count, **errors} for count, errors in self.curve.items()],
            "next_runs": [vars(item) for item in self.next_runs],
            "ranges": {name: [known.low, known.high] for name, known in profile.ranges.items()},
            "settings": dict(profile.settings),
            "data": dict(profile.data),
            "left_out": list(self.left_out),
        }  # fmt: skip


def fit(
    inputs: Inputs, values: Mapping[str, object], *, name: str, force: bool = False, watch: Watch = lambda _: None
) -> Fitted:
    """Steps are fitted where there are recordings, else runs; `values` are options that win over the inputs' own.

    Raises ValueError where there is neither, or both: steps and runs weigh differently; and, without `force`, where the
    profile cannot reproduce what it was fitted to.
    """
    if inputs.recordings and inputs.runs:
        raise HeadcountError(
            "some inputs hold engine steps, others requests; fit one kind, check the fit with the other"
        )
    if inputs.recordings:
        fitted = fit_recordings(inputs.recordings, values, name=name, sha256=inputs.sha256, watch=watch)
    else:
        fitted = fit_measured(inputs, values, name=name, watch=watch)
    if not force:
        _require_reproduced(fitted)
    return fitted


def _require_reproduced(fitted: Fitted) -> None:
    """Raises HeadcountError where the median error on the fitted data is above OWN_LIMITS_PERCENT."""
    missed = [
        f"{name.removesuffix('_median_percent').upper()} by {error:.0f} % in the median (limit {limit:.0f} %)"
        for name, error in fitted.own.items()
        if error > (limit := OWN_LIMITS_PERCENT[name])
    ]
    if missed:
        worst = f"; the worst are {', '.join(fitted.worst)}" if fitted.worst else ""
        raise HeadcountError(
            f"the fit misses its own data: {' and '.join(missed)}{worst}. Of fitted deployments 90 % come as near to "
            "loads that they have not seen. Check that model, GPU and options are the server's ('headcount calibrate "
            "check' says which setting would explain the runs), and leave odd ones out; or give --force"
        )


def fit_recordings(
    recordings: Sequence[Recording],
    values: Mapping[str, object],
    *,
    name: str,
    sha256: str = "",
    watch: Watch = lambda _: None,
) -> Fitted:
    """A profile from engine steps."""
    data = [steps_of(recording, recorded_deployment(recording, values).served) for recording in recordings]
    watch("fitting the steps")
    found = fit_steps(data)
    watch("fitting without each stretch of steps")
    judged = held_out(data, found)
    watch("fitting a few steps")
    curve = {count: {"median_percent": error} for count, error in learning_curve(data).items()}
    base = constants_for(data[0].served.gpu)
    excluded = [f"{count:,} {reason}" for recording in recordings for reason, count in recording.excluded.items()]
    versions = sorted({_version(item, values) for item in recordings})
    profile = _profile(
        name,
        found.posterior,
        [steps.served for steps in data],
        _step_log_errors(data, judged),
        held_out=judged.figures(),
        ranges=_step_ranges(data),
        data={"sha256": sha256, "recordings": len(recordings), "steps": sum(map(len, data)), "vllm_version": versions},
        source=f"fitted on {sum(map(len, data)):,} engine steps",
    )
    return Fitted(
        profile=profile,
        before=_by_kind(data, base, "mean"),
        own=_by_kind(data, found.posterior.constants(base), "median"),
        curve=curve,
        curve_unit="steps",
        left_out=tuple(excluded),
    )


def fit_measured(inputs: Inputs, values: Mapping[str, object], *, name: str, watch: Watch = lambda _: None) -> Fitted:
    """A profile from measured runs; overloaded ones are left out, since they tell of the queue alone."""
    kept, left_out = [], []
    for run in inputs.runs:
        if reasons := measured_overload(run, measured_figures(run)):
            left_out.append(f"{run.source.name}: overloaded, {'; '.join(reasons)}")
        else:
            kept.append(replay(run, values))
    if not kept:
        raise HeadcountError("no run to fit: " + ("; ".join(left_out) or "the inputs hold none"))
    data = run_data(kept)
    watch(f"fitting {len(data)} runs")
    found = fit_runs(data)
    watch("simulating each run with a fit to the others")
    errors = left_out_errors(data, found) if len(data) > 1 else np.full((1, len(METRICS)), math.nan)
    watch("looking for the run to measure next")
    suggestions = tuple(next_runs(data, found))
    prior = np.array([term.prior_mean for term in found.posterior.terms])
    own = errors_at(data, found.posterior.terms, np.array([term.mean for term in found.posterior.terms]))
    requests = sum(item.table.num_requests for item in kept)
    engine, versions = engine_of(kept[0].deployment.args), sorted({item.deployment.release for item in kept})
    profile = _profile(
        name,
        found.posterior,
        [item.deployment.served for item in kept],
        log_errors(errors),
        held_out=_percent(errors),
        ranges=_run_ranges(kept, found),
        data={"sha256": inputs.sha256, "runs": len(kept), "requests": requests, f"{engine}_version": versions},
        source=f"fitted on {len(kept)} measured runs",
    )
    return Fitted(
        profile=profile,
        before=_percent(errors_at(data, found.posterior.terms, prior)),
        own={name: value for name, value in _percent(own).items() if "median" in name},
        worst=_worst(kept, own),
        curve=run_learning_curve(data, found),
        curve_unit="runs",
        next_runs=suggestions,
        left_out=tuple(left_out),
    )


def _profile(
    name: str,
    posterior: Posterior,
    served: Sequence[ServedModel],
    tpot_and_ttft: tuple[LogError, LogError],
    **judged: Any,
) -> LatencyProfile:
    """What was fitted, with its errors of TPOT and TTFT; `judged`: what steps and runs say each in their own way."""
    gpu = served[0].gpu
    base = constants_for(gpu)
    tpot, ttft = tpot_and_ttft
    return LatencyProfile(
        name=name,
        gpu=gpu.name,
        base=base.name,
        base_digest=digest_of(base),
        terms=posterior.terms,
        covariance=posterior.covariance,
        tpot_log_error=tpot,
        ttft_log_error=ttft,
        settings=_settings(served),
        **judged,
    )


def _version(recording: Recording, values: Mapping[str, object]) -> str:
    known = [said.get("vllm_version") for said in (recording.environment, recording.options, values)]
    return str(next(filter(None, known), "unknown"))


def _by_kind(data: Sequence[Steps], constants: Constants, statistic: str) -> dict[str, float]:
    """The mean or the median of the steps' absolute errors in percent, where there are steps of the kind."""
    found = {kind: np.abs(errors_percent(data, constants, kind=kind)) for kind in ("decode", "prefill")}
    of = np.mean if statistic == "mean" else np.median
    return {f"{kind}_{statistic}_percent": float(of(errors)) for kind, errors in found.items() if len(errors)}


def _step_log_errors(data: Sequence[Steps], judged: HeldOut) -> tuple[LogError, LogError]:
    """Steps tell of TPOT, and of TTFT where enough of them hold prefill."""
    biases = judged.fold_log_bias[np.isfinite(judged.fold_log_bias)]
    bias = float(np.sqrt(np.mean(biases**2))) if len(biases) else USUAL_TPOT.deployment
    tpot = LogError(deployment=math.hypot(bias, STEP_FLOOR), residual=USUAL_TPOT.residual)
    if len(judged.errors["prefill"]) < MIN_PREFILL_STEPS:
        return tpot, USUAL_TTFT
    off = float(np.median(judged.errors["prefill"])) / 100
    deployment = min(math.hypot(bias, off, 2 * STEP_FLOOR), USUAL_TTFT.deployment)
    return tpot, LogError(deployment=deployment, residual=USUAL_TTFT.residual)


def _step_ranges(data: Sequence[Steps]) -> dict[str, Range]:
    found = {}
    for name in _RANGED:
        values = np.concatenate([steps.sums[name] for steps in data]).astype(float)
        if name == "prefill_tokens":
            values = np.append(values[values > 0], 0.0)
        low, high = np.percentile(values, EDGE_PERCENTILES)
        found[name] = Range(low=float(low), high=float(high))
    return found


def _run_ranges(replays: Sequence[Replay], found: RunFit) -> dict[str, Range]:
    """Of the average step of each run, as simulated with what was fitted."""
    steps = []
    for item in replays:
        constants = found.posterior.constants(constants_for(item.deployment.gpu))
        steps.append(ranged_sums(average_step(item.simulation(constants).totals)))
    return {name: Range(low=min(s[name] for s in steps), high=max(s[name] for s in steps)) for name in steps[0]}


def _settings(served: Sequence[ServedModel]) -> dict[str, object]:
    """What the data covers: one value, or a list of them."""
    rows = list(map(settings_of, served))
    found: dict[str, list[Any]] = {name: sorted({row[name] for row in rows}) for name in rows[0]}
    return {name: known[0] if len(known) == 1 else known for name, known in found.items()}


def _worst(replays: Sequence[Replay], errors: FloatArray) -> tuple[str, ...]:
    """The runs with the largest errors of any metric, from logarithms [runs, metrics]."""
    sizes = np.nan_to_num(np.abs(errors)).max(axis=1)
    return tuple(
        f"{replays[run].run.source.name} ({np.expm1(sizes[run]):.0%} off)" for run in np.argsort(-sizes)[:MAX_WORST]
    )


def _percent(errors: FloatArray) -> dict[str, float]:
    """Medians and means of absolute errors in percent, from logarithms [runs, metrics]."""
    found: dict[str, float] = {}
    for place, metric in enumerate(("ttft", "tpot")):
        known = errors[:, place][np.isfinite(errors[:, place])]
        if len(known):
            size = 100 * np.abs(np.expm1(known))
            found |= {f"{metric}_median_percent": float(np.median(size)), f"{metric}_mean_percent": float(size.mean())}
    return found
