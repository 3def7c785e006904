"""Intervals from the errors of held-out settings, and how often they hold what was measured."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrate.check.replay import replay
from calibrate.measured_run import MeasuredRun
from kvcache.models.catalog import find_gpu
from simulator.latency.forms.physical import spread_kind
from simulator.latency.gpu_constants import FOLDER, MEASURED, OPEN_TTFT, constants_for
from simulator.latency.model import ERROR_SEQUENCES, LogError, error_scale
from simulator.latency.step_time import FloatArray
from validation.constants.cases import Case
from validation.measured.closed_loops import deployment_of
from validation.measured.launches import launch_of
from validation.measured.settings import Setting

LEVEL = 0.9
GROWTHS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)
LOG_ERROR_HEAD = (
    "[log_error] # of models, GPUs, releases left out (validation/accuracy --write-spreads); dense ones first"
)
FEWEST_SETTINGS = 15  # of a kind, for a spread of its own
ONE_SIDED = 0.5  # of the upper end: from here on, the lower end is one of its own
FEWEST_GROUPS = 3  # of model, GPU and release, for one of loads at random


@dataclass(frozen=True, eq=False)
class Spread:
    """How far held-out settings of one kind are off: TPOT, TTFT."""

    kind: str
    tpot: LogError
    ttft: LogError


def fit_spread(errors: FloatArray, deployments: Sequence[Any], sequences: FloatArray) -> LogError:
    """Both standard deviations, how they grow with the running sequences, how many of them hold nine in ten errors.

    The upper end is as far as the tenth that is off most begins. Where that is nearly all above, so is the lower end.

    Deployments are tuples that begin with model, GPU and release. The quantile is corrected for the number of errors
    (split conformal prediction), so that heavy tails count.
    """
    growth = _growth(errors, sequences)
    errors = errors / error_scale(sequences, growth)
    odd = 3 * float(np.median(np.abs(errors))) / 0.6745
    kept = np.clip(errors, -odd, odd)  # one odd run does not say how the others err
    names = np.array([repr(name) for name in deployments])
    groups = [kept[names == name] for name in sorted(set(names.tolist()))]
    residual = float(np.sqrt(sum(((group - group.mean()) ** 2).sum() for group in groups) / len(kept)))
    deployment = float(np.sqrt(max(np.mean(kept**2) - residual**2, 0.0)))
    deployment, residual = round(deployment, 3), round(residual, 3)
    ordered = np.sort(np.abs(errors)) / np.hypot(deployment, residual)
    rank = min(len(ordered), int(np.ceil(LEVEL * (len(ordered) + 1))))
    half_width_sds = _held(ordered[rank - 1])
    signed = np.sort(errors) / np.hypot(deployment, residual)
    below = len(signed) - rank - int((signed > half_width_sds).sum())  # those that the lower end may leave out
    shorter_sds = _held(max(-signed[below], 0.0))
    return LogError(
        deployment=deployment,
        residual=residual,
        half_width_sds=half_width_sds,
        growth=growth,
        groups=len({repr(name[:3] if isinstance(name, tuple) else name) for name in deployments}),
        shorter_sds=shorter_sds if shorter_sds < ONE_SIDED * half_width_sds else None,
    )


def _held(sds: float) -> float:
    """So many standard deviations, rounded up: this error is held, not the next."""
    return float(np.ceil(1e5 * sds)) / 1e5


def _growth(errors: FloatArray, sequences: FloatArray) -> float:
    """The power of the sequences under which the errors are likeliest, taken as Laplace's."""

    def cost(growth: float) -> float:
        scale = error_scale(sequences, growth)
        return float(np.mean(np.log(scale)) + np.log(np.mean(np.abs(errors) / scale)))

    return min(GROWTHS, key=cost)


def sequences_of(settings: Iterable[Setting]) -> FloatArray:
    """Running at once on each attention replica: a client has one request at a time."""
    return np.array([setting.concurrency / setting.dp for setting in settings])


def kinds_of(settings: Sequence[Setting]) -> np.ndarray[Any, np.dtype[np.str_]]:
    """By what the errors of unmeasured deployments go."""
    kinds = {setting.group: kind_of(setting) for setting in settings}
    return np.array([kinds[setting.group].removeprefix(MEASURED) for setting in settings])


def kind_of(setting: Setting) -> str:
    """By which of the shipped errors a setting goes."""
    return spread_kind(deployment_of(setting, launch_of(setting)).served)


def spreads(settings: Sequence[Setting], errors: FloatArray) -> list[Spread]:
    """One per kind of deployment, from logarithms of measured over simulated TTFT, TPOT.

    A kind of few settings goes with all mixtures.
    """
    kinds, deployments = kinds_of(settings), [setting.group for setting in settings]
    sequences = sequences_of(settings)
    found = []
    for kind in sorted(set(kinds.tolist())):
        rows = np.flatnonzero(kinds == kind)
        if len(rows) < FEWEST_SETTINGS:
            rows = np.flatnonzero(np.isin(kinds, (kind, "experts")))
        own = [deployments[row] for row in rows]
        tpot, ttft = (fit_spread(errors[rows, place], own, sequences[rows]) for place in (1, 0))
        found.append(Spread(kind, tpot, ttft))
    return found


def open_spreads(cases: Sequence[Case], errors: FloatArray) -> dict[str, LogError]:
    """By kind, of the TTFT of requests that arrived at random, from logarithms of measured over simulated TTFT, TPOT.

    A kind with fewer than FEWEST_GROUPS of model, GPU and release has none of its own.
    """
    kinds = np.array([open_kind_of(case) for case in cases])
    found = {}
    for kind in sorted(set(kinds.tolist())):
        rows = np.flatnonzero(kinds == kind)
        own = [(*cases[row].release, *cases[row].group) for row in rows]
        spread = fit_spread(errors[rows, 0], own, np.full(len(rows), float(ERROR_SEQUENCES)))
        found |= {kind: spread} if spread.groups >= FEWEST_GROUPS else {}
    return found


def open_kind_of(case: Case) -> str:
    """By which of the shipped errors a run at a rate goes, were it not measured."""
    assert isinstance(case.run, MeasuredRun)
    return spread_kind(replay(case.run).deployment.served).removeprefix(MEASURED)


def open_coverage(cases: Sequence[Case], errors: FloatArray, known: Mapping[str, LogError]) -> dict[str, Any]:
    """Share of runs at a rate within their interval, with its half-width and groups, by kind."""
    kinds = np.array([open_kind_of(case) for case in cases])
    found: dict[str, Any] = {}
    for kind, spread in known.items():
        off = np.abs(errors[kinds == kind, 0])
        found[kind] = {
            "n": len(off),
            "groups": spread.groups,
            "ttft_median": 100 * float(np.expm1(np.median(off))),
            "ttft_covered": 100 * float(np.mean(off <= spread.log_half_width_at(ERROR_SEQUENCES))),
            "ttft_half_width": 100 * spread.half_width,
        }
    return found


def coverage(settings: Sequence[Setting], errors: FloatArray, known: FloatArray | None = None) -> dict[str, Any]:
    """Share of settings within their interval, with its half-width, where the spread knows no run of the model.

    `known`: ends of the logarithms' intervals instead, [settings, (TTFT, TPOT), (below, above)].
    """
    ends = known if known is not None else _ends_without_own_model(settings, errors)
    inside, kinds = are_inside(errors, ends), kinds_of(settings)
    found: dict[str, Any] = {}
    for kind in ("all", *sorted(set(kinds.tolist()))):
        rows = np.full(len(kinds), True) if kind == "all" else kinds == kind
        found[kind] = {"n": int(rows.sum())}
        for place, name in enumerate(("ttft", "tpot")):
            found[kind] |= {
                f"{name}_covered": 100 * float(inside[rows, place].mean()),
                f"{name}_shorter": -100 * float(np.expm1(-np.median(ends[rows, place, 0]))),
                f"{name}_half_width": 100 * float(np.expm1(np.median(ends[rows, place, 1]))),
            }
    return found


def are_inside(errors: FloatArray, ends: FloatArray) -> NDArray[np.bool_]:
    """Which logarithms of measured over simulated are within their interval, whose ends are [..., (below, above)]."""
    return np.asarray((-ends[..., 0] <= errors) & (errors <= ends[..., 1]))


def _ends_without_own_model(settings: Sequence[Setting], errors: FloatArray) -> FloatArray:
    """Ends from other models of the kind; from all others where the kind has no other model."""
    models, kinds = np.array([setting.model for setting in settings]), kinds_of(settings)
    sequences = sequences_of(settings)
    ends = np.zeros((*errors.shape, 2))
    for model in np.unique(models):
        for kind in np.unique(kinds[models == model]):
            rows = (models == model) & (kinds == kind)
            others = (models != model) & (kinds == kind)
            chosen = np.flatnonzero(others if others.any() else models != model)
            own = [settings[row].group for row in chosen]
            for place in range(2):
                error = fit_spread(errors[chosen, place], own, sequences[chosen])
                ends[rows, place] = [error.log_ends_at(number) for number in sequences[rows]]
    return ends


def shipped_ends(settings: Sequence[Setting]) -> FloatArray:
    """Ends of the logarithms' intervals by the shipped constants, [settings, (TTFT, TPOT), (below, above)]."""
    kinds = {setting.group: kind_of(setting) for setting in settings}
    found = []
    for setting, sequences in zip(settings, sequences_of(settings).tolist(), strict=True):
        tpot, ttft = constants_for(find_gpu(setting.gpu)).log_errors(kinds[setting.group])
        found.append([error.log_ends_at(sequences) for error in (ttft, tpot)])
    return np.array(found)


def ends_of(settings: Sequence[Setting], fitted: Sequence[Spread], *, measured: bool) -> FloatArray:
    """The same by these spreads, were the deployments measured, or not."""
    by_kind = {spread.kind: spread for spread in fitted}
    found = []
    for kind, sequences in zip(kinds_of(settings).tolist(), sequences_of(settings).tolist(), strict=True):
        spread = by_kind[MEASURED + kind if measured else kind]
        found.append([error.log_ends_at(sequences) for error in (spread.ttft, spread.tpot)])
    return np.array(found)


def write_spreads(fitted: Mapping[str, Any], path: Path = FOLDER / "hopper.toml") -> None:
    """Put them into the [log_error] of the constants that both families share."""
    lines = [LOG_ERROR_HEAD]
    for kind in ("dense", *(name for name in fitted if name != "dense")):
        lines += [] if kind == "dense" else ["", f"[log_error.{kind}]"]
        for metric in ("tpot", "ttft", OPEN_TTFT):
            if metric not in fitted[kind]:
                continue
            known = {name: value for name, value in fitted[kind][metric].items() if value is not None}
            values = ", ".join(f"{name} = {value:g}" for name, value in known.items())
            lines.append(f"{metric} = {{ {values} }}")
    text = path.read_text(encoding="utf-8")
    begin, end = text.index("[log_error]"), text.index("[measurements]")
    path.write_text(text[:begin] + "\n".join(lines) + "\n\n" + text[end:], encoding="utf-8")
