"""Fits the shipped step-time constants of a GPU family to runs of real vLLM, with their covariance.

    python -m benchmarks.constants.step_times hopper --data ../shared/data [--share 0.4] [--write]

Maximum a posteriori on the logarithms of multipliers of what is shipped, about what kernel tables say: errors of mean
TTFT and TPOT follow Student's t, groups of runs weigh alike, derivatives are finite differences through the simulator.
The covariance is that of the estimate with errors of one deployment going together (Liang, Zeger 1986), the prior
included. Held-out figures are of runs or whole models that a fit did not see, with the simulator taken as linear about
the shipped constants. `--write` puts the multiplied values into simulator/latency/constants/FAMILY.toml, the
covariance into simulator/latency/covariances/FAMILY.toml.
"""

import argparse
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.constants.cases import Case, Linearized, closed_loops, linearize, runs_at_a_rate
from benchmarks.constants.kernel_priors import PRIORS, prior_for
from kvcache.models.catalog import find_gpu
from simulator.latency.covariance import FOLDER as COVARIANCES
from simulator.latency.covariance import FOLLOWERS, MOST_OF_PEAK, Term, read_covariance
from simulator.latency.gpu_constants import FOLDER, GENERAL, constants_for
from simulator.latency.step_time import FloatArray

GPUS = {"hopper": ("h100-sxm", "h200-sxm"), "blackwell": ("b200-sxm", "b300-sxm", "gb200")}
# Of the widths between GPUs: with a whole width the constants follow single models, and others come out worse; times
# that where kernel tables are silent.
PRIOR_SHARE, UNMEASURED = 0.5, 2.0
SPREAD = np.array([0.12, 0.06])  # of a run's TTFT, TPOT: what an error is weighed by
DEGREES_OF_FREEDOM = 4.0
ITERATIONS, FOLDS = 30, 5
LEFT_OUT = "Qwen/Qwen3-235B-A22B-FP8"  # on vLLM 0.12 every step takes as long as reading all experts does
MOST = {"_share": MOST_OF_PEAK, "_exponent": 1.0}  # of the value itself; no switch is worse than a ring
# Hopper unpacks 4-bit floats as it does integers (Marlin): nvfp4 for want of such tensor cores, gpt-oss because its
# launch scripts set VLLM_MXFP4_USE_MARLIN.
KERNEL_OF_RUNS = {("hopper", "mxfp4"): "int4", ("hopper", "fp4"): "int4"}
SAME_KERNEL = 0.9  # correlation of what two formats differ by from the tables of the kernel that serves both
MOST_CLIENTS = 256  # larger runs cost most of the time and tell no more


@dataclass(frozen=True, eq=False)
class Prior:
    """Of the terms' logarithms, with the most that each may be: no share may pass MOST_OF_PEAK."""

    mean: FloatArray  # [terms]
    covariance: FloatArray  # [terms, terms]
    most: FloatArray  # [terms]


@dataclass(frozen=True, eq=False)
class Estimate:
    logs: FloatArray  # [terms]
    covariance: FloatArray  # [terms, terms]


def terms_of(family: str) -> list[Term]:
    """Every term but those of formats that no GPU of the family computes in."""
    known = constants_for(find_gpu(GPUS[family][0]))
    return [(name, key) for name, key in read_covariance(GENERAL).sd if key is None or key in getattr(known, name)]


def prior_of(gpus: Sequence[str], terms: Sequence[Term]) -> Prior:
    """About what kernel tables of the family's first GPU say, which no run has touched.

    What no table measures lies about its general value, with twice the spread.
    """
    shipped = constants_for(find_gpu(gpus[0]))
    tables = prior_for(find_gpu(gpus[0]))
    path = PRIORS / f"{find_gpu(gpus[0]).family}.toml"
    kernel_tables = tomllib.loads(path.read_text(encoding="utf-8"))["priors"]
    general = read_covariance(GENERAL).sd
    mean, sd = np.zeros(len(terms)), PRIOR_SHARE * np.array([general[term] for term in terms])
    for place, (name, key) in enumerate(terms):
        kernel = kernel_of_runs(gpus[0], key) if name.startswith("expert_") else key
        ours, theirs = getattr(shipped, name), getattr(tables, name)
        mean[place] = np.log(theirs / ours if key is None else theirs[kernel] / ours[key])
        measured = kernel_tables.get(name, {}).get("value", {})
        sd[place] *= 1.0 if measured and (key is None or kernel in measured) else UNMEASURED
    most = np.array([room(gpus, term) for term in terms])
    return Prior(np.minimum(mean, most), together(gpus[0], terms) * np.outer(sd, sd), most)


def together(gpu: str, terms: Sequence[Term]) -> FloatArray:
    """Correlations of the terms: 1 on the diagonal, near it where one kernel serves two formats, else 0."""
    names = [(name, kernel_of_runs(gpu, key) if name.startswith("expert_") else key) for name, key in terms]
    return np.array(
        [
            [1.0 if one == two else SAME_KERNEL * (a == b) for two, b in zip(terms, names, strict=True)]
            for one, a in zip(terms, names, strict=True)
        ]
    )


def kernel_of_runs(gpu: str, weight_format: str | None) -> str | None:
    """By which format's kernel the runs' experts of a format were served."""
    return KERNEL_OF_RUNS.get((find_gpu(gpu).family, weight_format or ""), weight_format)


def room(gpus: Sequence[str], term: Term) -> float:
    """How far the logarithm of a share, or of an exponent, may rise on any of the GPUs; infinite for all else."""
    name, key = term
    most = next((value for ending, value in MOST.items() if name.endswith(ending)), np.inf)
    if most == np.inf:
        return np.inf
    found = [getattr(constants_for(find_gpu(gpu)), name) for gpu in gpus]
    highest = max(value[key] if key else value for value in found)
    return float(np.log(max(most, highest) / highest))


def fit(problem: Linearized, rows: NDArray[np.intp], prior: Prior) -> Estimate:
    """The most probable logarithms, from these runs alone: reweighted least squares under the prior."""
    groups = [problem.groups[row] for row in rows]
    counts = Counter(groups)
    balance = problem.tells[rows] / np.array([[counts[group]] for group in groups])
    balance *= balance.size / balance.sum()
    slopes, errors = problem.jacobian[rows] / SPREAD[None, :, None], problem.errors[rows] / SPREAD
    precision = np.asarray(np.linalg.inv(prior.covariance), dtype=np.float64)
    logs = prior.mean
    for _ in range(ITERATIONS):
        left = errors - slopes @ logs
        weights = (DEGREES_OF_FREEDOM + 1) / (DEGREES_OF_FREEDOM + left**2) * balance
        hessian = np.einsum("ij,ijk,ijl->kl", weights, slopes, slopes) + precision
        target = np.einsum("ij,ijk,ij->k", weights, slopes, errors) + precision @ prior.mean
        logs = bounded(hessian, target, prior.most)
    left = errors - slopes @ logs
    scores = np.einsum("ij,ijk,ij->ik", weights, slopes, left)
    curved = np.einsum("ij,ijk,ijl->kl", curvature(left, weights), slopes, slopes) + precision
    return Estimate(logs, clustered(curved, scores, groups, precision))


def curvature(left: FloatArray, weights: FloatArray) -> FloatArray:
    """What the scores change by, where the weights hold still for them: on average over the runs, as Huber has it.

    Less than the weights: large errors lose weight as they grow. Source: Huber, Robust Statistics, section 7.6.
    """
    each = weights * (DEGREES_OF_FREEDOM - left**2) / (DEGREES_OF_FREEDOM + left**2)
    share = each.sum(axis=0) / np.maximum(weights.sum(axis=0), np.finfo(float).tiny)
    return np.asarray(weights * np.clip(share, 0.1, 1.0))


def clustered(
    hessian: FloatArray, scores: FloatArray, groups: Sequence[tuple[Any, ...]], precision: FloatArray
) -> FloatArray:
    """Covariance of the estimate where the runs of a group err together; the prior counts as one more observation."""
    names = sorted(set(groups), key=repr)
    together = np.zeros((len(names), scores.shape[1]))
    np.add.at(together, [names.index(group) for group in groups], scores)
    between = together.T @ together * len(names) / max(len(names) - 1, 1)
    inverse = np.linalg.inv(hessian)
    return np.asarray(inverse @ (between + precision) @ inverse)


def bounded(hessian: FloatArray, target: FloatArray, most: FloatArray) -> FloatArray:
    """The minimum of the quadratic with no term above its bound: those that would be are held there."""
    held = np.zeros(len(most), dtype=bool)
    logs = np.zeros(len(most))
    while True:
        free = ~held
        logs[held] = most[held]
        logs[free] = np.linalg.solve(
            hessian[np.ix_(free, free)], target[free] - hessian[np.ix_(free, held)] @ logs[held]
        )
        above = free & (logs > most)
        if not above.any():
            return logs
        held |= above


def held_out(problem: Linearized, prior: Prior, parts: NDArray[Any]) -> FloatArray:
    """Errors of each run under a fit that saw no run of its part."""
    left = np.zeros_like(problem.errors)
    for part in np.unique(parts):
        inside = np.flatnonzero(parts == part)
        left[inside] = problem.left(fit(problem, np.flatnonzero(parts != part), prior).logs)[inside]
    return left


def told(problem: Linearized, errors: FloatArray) -> str:
    """Median, mean absolute error and bias in % of simulated over measured: closed loops, then runs at a rate."""
    is_open = np.array([case.is_open for case in problem.cases])
    parts = []
    for where, rows in (("closed", ~is_open), ("rate", is_open)):
        for name, column in zip(("TTFT", "TPOT"), errors[rows].T, strict=True):
            relative = 100 * np.expm1(-column)
            if len(relative):
                found = f"{np.median(np.abs(relative)):5.1f} / {np.mean(np.abs(relative)):5.1f}"
                parts.append(f"{where} {name} {found} ({np.median(relative):+5.1f})")
    return "   ".join(parts)


def write(family: str, logs: Mapping[Term, float]) -> None:
    """Multiply the values in the files of the family and its GPUs; what these inherit stays with who has it."""
    for name in (family, *GPUS[family]):
        path = FOLDER / f"{name}.toml"
        if path.is_file():
            path.write_text(times(path.read_text(encoding="utf-8"), logs), encoding="utf-8")


def times(text: str, logs: Mapping[Term, float]) -> str:
    """The text of a constants file with its values multiplied."""
    followers: dict[Term, float] = {
        (name, new): logs[name, old] for new, old in FOLLOWERS.items() for name, key in logs if key == old
    }
    for (name, key), log in {**logs, **followers}.items():
        line = re.search(rf"^{name} = .*$", text, re.MULTILINE)
        if line is None:
            continue
        before = rf"value = {{[^}}]*\b{key} = " if key else "value = "
        old = re.search(before + r"([0-9.e+-]+)", line[0])
        if old is None:
            continue  # a format that the family does not compute in
        changed = line[0][: old.start(1)] + f"{float(old[1]) * np.exp(log):.3g}" + line[0][old.end(1) :]
        text = text.replace(line[0], changed)
    return text


def covariance_text(terms: Sequence[Term], matrix: FloatArray, comment: str) -> str:
    """A file of simulator/latency/covariances: the terms, then the matrix up to its diagonal."""
    lines = [f"# {line}" for line in comment.splitlines()]
    lines += ["terms = [", *(f'  "{term_text(term)}",' for term in terms), "]"]
    lines += ["covariance = [ # of the logarithms, up to the diagonal"]
    lines += [f"  [{', '.join(f'{cell:.3g}' for cell in row[: place + 1])}]," for place, row in enumerate(matrix)]
    return "\n".join([*lines, "]"]) + "\n"


def term_text(term: Term) -> str:
    """`gemm_compute_share.fp8`"""
    return ".".join(filter(None, term))


def cases_of(family: str, data: Path, share: float, rng: np.random.Generator) -> list[Case]:
    """A share of the closed loops, drawn at random, with every run at a rate on the family's GPUs."""
    chosen = [
        case
        for case in closed_loops(data, GPUS[family])
        if case.concurrency <= MOST_CLIENTS and case.model != LEFT_OUT and rng.random() < share
    ]
    return [*chosen, *(case for case in runs_at_a_rate(data) if case.gpu in GPUS[family])]


def watcher(what: str, every: int = 20) -> Callable[[int, int], None]:
    def watch(done: int, total: int) -> None:
        if done % every == 0 or done == total:
            print(f"{what}: {done:,} of {total:,} runs", file=sys.stderr, flush=True)

    return watch


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=sorted(GPUS))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder that holds measured/")
    parser.add_argument("--share", type=float, default=1.0, help="of the closed loops, drawn at random")
    parser.add_argument("--workers", type=int, default=2, help="processes that simulate")
    parser.add_argument("--write", action="store_true", help="change the family's files")
    arguments = parser.parse_args()
    rng = np.random.default_rng(1)
    cases, terms = cases_of(arguments.family, arguments.data, arguments.share, rng), terms_of(arguments.family)
    problem = linearize(cases, terms, arguments.workers, watcher(arguments.family))
    prior = prior_of(GPUS[arguments.family], terms)
    found = fit(problem, np.arange(len(cases)), prior)
    print(f"{len(cases)} runs of {len(set(problem.models))} models; % median / mean absolute error (bias)")
    print(f"as shipped          {told(problem, problem.errors)}")
    print(f"fitted              {told(problem, problem.left(found.logs))}")
    print(f"runs held out       {told(problem, held_out(problem, prior, rng.integers(0, FOLDS, len(cases))))}")
    print(f"models held out     {told(problem, held_out(problem, prior, problem.models))}")
    for term, log, sd in zip(terms, found.logs, np.sqrt(np.diag(found.covariance)), strict=True):
        print(f"  × {np.exp(log):.2f} ± {sd:.2f}  {term_text(term)}")
    if arguments.write:
        write(arguments.family, dict(zip(terms, found.logs.tolist(), strict=True)))
        text = covariance_text(terms, found.covariance, _comment(arguments.family, problem))
        (COVARIANCES / f"{arguments.family}.toml").write_text(text, encoding="utf-8")
    return 0


def _comment(family: str, problem: Linearized) -> str:
    runs, models = len(problem.cases), len(set(problem.models))
    rates = sum(case.is_open for case in problem.cases)
    return (
        f"How far the fit of constants/{family}.toml may be off, by benchmarks/constants/step_times.py: {runs}\n"
        f"public runs of {models} models, of them {rates} with requests at a rate (docs/measurements/step-times.md)."
    )


if __name__ == "__main__":
    sys.exit(main())
