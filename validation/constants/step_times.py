"""Fits the shipped step-time constants to runs of real vLLM, with their covariance: all GPU families together.

    python -m validation.constants.step_times --data ../shared/data [--derive] [--write]

Maximum a posteriori on logarithms, about what kernel tables say: runs move a constant as far as PRIOR_SHARES lets
them, which were chosen where leaving out every run of a model, GPU and release errs least. Errors of mean TTFT and TPOT
follow Student's t; those of one deployment, and of one model, GPU, release and format, go together, so that many runs
of one deployment tell little more than a few. Derivatives are finite differences through the simulator, kept in
derivatives.npz; `--derive` makes them anew about what is shipped, in a quarter of an hour to an hour, `--rederive` only
those by constants and of runs that are new, and by constants whose names begin as given, with what is simulated.
Held-out figures here take the simulator as linear; validation/accuracy simulates them. `--write` puts the values into
simulator/latency/constants, the covariances into simulator/latency/covariances. Derive and write again until the errors
of validation/accuracy hardly change.
"""

import argparse
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache.models.catalog import find_gpu
from kvcache.releases import SLOWER_EXPERTS
from simulator.latency.covariance import FOLDER as COVARIANCES
from simulator.latency.covariance import MOST_OF_PEAK, Term, general_widths, in_common, read_covariance
from simulator.latency.gpu_constants import FOLDER, GENERAL, constants_for
from simulator.latency.step_time import FloatArray
from validation.constants import derivatives
from validation.constants.cases import Case, Linearized, closed_loops, runs_at_a_rate
from validation.constants.fitted_texts import covariance_text, term_text, times, with_values
from validation.constants.kernel_priors import prior_for

GPUS = {"hopper": ("h100-sxm", "h200-sxm"), "blackwell": ("b200-sxm", "b300-sxm", "gb200")}
# How far runs may move a constant, as a share of its width between GPUs: little where kernel tables measure it well,
# the whole width of what they do not see or see under other conditions (starts, copies, prefill). Of all choices by
# class, these err about least on models, GPUs and releases left out; others differ by 0.1 points of TPOT.
PRIOR_SHARES = {
    "gemm_bandwidth_share": 0.2, "decode_attention_bandwidth_share": 0.2, "expert_bandwidth_share": 0.2,
    "all_reduce_link_share": 0.2, "all_reduce_rank_exponent": 0.2, "distinct_expert_exponent": 0.2,
    "expert_compute_share": 0.2, "expert_activation_bytes_per_element": 0.2,
    "quantized_gemm_start_factor": 2.0,  # tables quantize in a kernel of its own, which served models fuse
    "expert_start_s": 0.35, "ingress_request_s": 0.5, "ingress_token_s": 0.5, "ingress_s": 0.5,
}  # fmt: skip
OLDER: Term = ("older_expert_start_factor", None)  # one for all families
# Too; row-wise quantization, which served models fuse with what is before it, whatever the family's tables say.
POOLED: tuple[Term, ...] = (("step_gap_sequence_s", None), ("quantized_gemm_start_factor", None))
# What servers of one GPU have for themselves beside their family: a factor on what their hosts take to launch kernels.
OWN_TERMS: dict[str, Term] = {"b300-sxm": ("eager_layer_s", None)}
OWN = np.array([0.12, 0.05])  # standard deviation of a run's TTFT, TPOT …
COMMON = np.array([0.06, 0.03])  # … and of what all runs of a deployment share, and again of all like it
DEGREES_OF_FREEDOM = 4.0
ITERATIONS, FOLDS = 6, 5
LEFT_OUT = "Qwen/Qwen3-235B-A22B-FP8"  # on vLLM 0.12 every step takes as long as reading all experts does
MOST = {"_share": MOST_OF_PEAK, "_exponent": 1.0}  # of the value itself; no switch is worse than a ring
# Hopper unpacks 4-bit floats as it does integers (Marlin): nvfp4 for want of such tensor cores, gpt-oss because its
# launch scripts set VLLM_MXFP4_USE_MARLIN.
KERNEL_OF_RUNS = {("hopper", "mxfp4"): "int4", ("hopper", "fp4"): "int4"}
SAME_KERNEL = 0.9  # correlation of what two formats differ by from the tables of the kernel that serves both
# Logarithm of simulated over measured TTFT, from which on requests at a rate wait for each other only when simulated:
# its derivatives are those of a queue that the server did not have.
MOST_QUEUE = 1.0
MOST_CLIENTS = 256  # larger runs cost most of the time and tell no more
Column = tuple[str, Term]  # a family, a GPU of OWN_TERMS, "" for all; a term


@dataclass(frozen=True, eq=False)
class Prior:
    """Of the columns' logarithms, with the most that each may be: no share may pass MOST_OF_PEAK."""

    mean: FloatArray  # [columns]
    covariance: FloatArray  # [columns, columns]
    most: FloatArray  # [columns]


@dataclass(frozen=True, eq=False)
class Estimate:
    logs: FloatArray  # [columns]
    covariance: FloatArray  # [columns, columns]


@dataclass(frozen=True, eq=False)
class Problem:
    """Runs of all families, with their errors about constants files (`texts`) and the derivatives by the columns."""

    cases: Sequence[Case]
    columns: Sequence[Column]
    errors: FloatArray  # [runs, 2]: logarithms of measured over simulated TTFT, TPOT
    jacobian: FloatArray  # [runs, 2, columns]
    texts: derivatives.Texts

    def left(self, logs: FloatArray) -> FloatArray:
        """Errors that remain at these logarithms of the columns."""
        return np.asarray(self.errors - self.jacobian @ logs)


def terms_of(family: str) -> list[Term]:
    """Every term but those of formats that no GPU of the family computes in."""
    known = constants_for(find_gpu(GPUS[family][0]))
    return [
        (name, key)
        for name, key in read_covariance(GENERAL).sd
        if (name, key) != OLDER and (key is None or key in getattr(known, name))
    ]


def problem_of(parts: Mapping[str, Linearized], texts: derivatives.Texts) -> Problem:
    """The families side by side: each has columns of its own, some GPUs, and all have the release's."""
    columns: list[Column] = [
        (family, term) for family, part in parts.items() for term in part.terms if term not in POOLED
    ]
    families = len(columns)
    columns += [*OWN_TERMS.items(), *(("", term) for term in POOLED), ("", OLDER)]
    places = {column: place for place, column in enumerate(columns)}
    cases = [case for part in parts.values() for case in part.cases]
    jacobian, row = np.zeros((len(cases), 2, len(columns))), 0
    for family, part in parts.items():
        here = slice(row, row + len(part.cases))
        jacobian[here, :, [places["" if term in POOLED else family, term] for term in part.terms]] = part.jacobian
        starts = [place for place, (name, _) in enumerate(part.terms) if name == "expert_start_s"]
        is_old = np.array([SLOWER_EXPERTS.holds_in(case.vllm_version) for case in part.cases])
        jacobian[here, :, places["", OLDER]] = part.jacobian[:, :, starts].sum(axis=2) * is_old[:, None]
        row += len(part.cases)
    gpus = np.array([case.gpu for case in cases])
    for place, (gpu, term) in enumerate(OWN_TERMS.items(), families):
        jacobian[:, :, place] = jacobian[:, :, places[find_gpu(gpu).family, term]] * (gpus == gpu)[:, None]
    return Problem(cases, columns, np.concatenate([part.errors for part in parts.values()]), jacobian, texts)


def prior_of(columns: Sequence[Column], texts: derivatives.Texts) -> Prior:
    """About what kernel tables of each family's first GPU say, which no run has touched."""
    alone, _ = general_widths()
    mean = np.array([_log_of_tables(column, texts) for column in columns])
    sd = np.array([alone[term] * PRIOR_SHARES.get(term[0], 1.0) for _, term in columns])
    most = np.array([room(column, texts) for column in columns])
    common = in_common([name for _, (name, _) in columns], [family for family, _ in columns])
    return Prior(np.minimum(mean, most), together(columns) * np.outer(sd, sd) + common, most)


def _log_of_tables(column: Column, texts: derivatives.Texts) -> float:
    """What kernel tables say over what the files said; of a GPU's own factor that it is 1."""
    family, (name, key) = column
    if family in OWN_TERMS:
        others = GPUS[find_gpu(family).family][0]
        return float(np.log(reference(texts, others, (name, key)) / reference(texts, family, (name, key))))
    gpu = GPUS[family or "hopper"][0]
    kernel = kernel_of_runs(gpu, key) if name.startswith("expert_") else key
    tables, ours = getattr(prior_for(find_gpu(gpu)), name), reference(texts, gpu, column[1])
    return float(np.log((tables if kernel is None else tables[kernel]) / ours))


def reference(texts: derivatives.Texts, gpu: str, term: Term) -> float:
    """A constant as it stood in the files about which the derivatives are."""
    stem: str | None = gpu if gpu in texts else find_gpu(gpu).family
    while stem is not None:
        content = _parsed(texts[stem])
        if term[0] in content.get("constants", {}):
            value = content["constants"][term[0]]["value"]
            return float(value if term[1] is None else value[term[1]])
        stem = content.get("extends")
    return 1.0  # a factor that came later


@cache
def _parsed(text: str) -> dict[str, Any]:
    return tomllib.loads(text)


def together(columns: Sequence[Column]) -> FloatArray:
    """Correlations: 1 on the diagonal, near it where one kernel serves two formats, else 0."""
    names = []
    for family, (name, key) in columns:
        known = family and name.startswith("expert_")
        names.append((family, name, kernel_of_runs(GPUS[family][0], key) if known else key))
    same = np.array([[one == other for other in names] for one in names])
    return np.where(np.eye(len(columns), dtype=bool), 1.0, SAME_KERNEL * same)


def kernel_of_runs(gpu: str, weight_format: str | None) -> str | None:
    """By which format's kernel the runs' experts of a format were served."""
    return KERNEL_OF_RUNS.get((find_gpu(gpu).family, weight_format or ""), weight_format)


def room(column: Column, texts: derivatives.Texts) -> float:
    """How far the logarithm of a share, or of an exponent, may rise on any of the GPUs; infinite for all else.

    As far as tables say where that is more: experts whose activations have 8 bits pass the peak of 16.
    """
    family, term = column
    most = next((value for ending, value in MOST.items() if term[0].endswith(ending)), np.inf)
    if most == np.inf:
        return np.inf
    highest = max(reference(texts, gpu, term) for gpu in GPUS[family])
    return max(float(np.log(max(most, highest) / highest)), _log_of_tables(column, texts))


def fit(problem: Problem, rows: NDArray[np.intp], prior: Prior) -> Estimate:
    """The most probable logarithms, from these runs alone: reweighted generalized least squares under the prior."""
    precision = np.asarray(np.linalg.inv(prior.covariance), dtype=np.float64)
    cases = [problem.cases[row] for row in rows]
    alike = np.array([case.alike for case in cases])
    blocks = [np.flatnonzero(alike == name) for name in np.unique(alike)]
    deployments = np.array([repr(case.group) for case in cases])
    slopes, errors, logs = problem.jacobian[rows], problem.errors[rows], prior.mean
    tells = np.array([case.tells for case in cases])
    for _ in range(ITERATIONS):
        left = (errors - slopes @ logs) / np.sqrt(OWN**2 + 2 * COMMON**2)
        weights = (DEGREES_OF_FREEDOM + 1) / (DEGREES_OF_FREEDOM + left**2)
        hessian, target = precision.copy(), precision @ prior.mean
        for block in blocks:
            for figure in range(2):
                chosen = block[tells[block, figure]]
                same = deployments[chosen][:, None] == deployments[chosen]
                noise = COMMON[figure] ** 2 * (1.0 + same) + np.diag(OWN[figure] ** 2 / weights[chosen, figure])
                scaled = np.linalg.solve(noise, slopes[chosen, figure])
                hessian += slopes[chosen, figure].T @ scaled
                target += errors[chosen, figure] @ scaled
        logs = bounded(hessian, target, prior.most)
    return Estimate(logs, np.linalg.inv(hessian))


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


def held_out(problem: Problem, prior: Prior, parts: Sequence[Any]) -> FloatArray:
    """Errors of each run under a fit that saw no run of its part, taken as linear."""
    left, names = np.zeros_like(problem.errors), np.array([repr(part) for part in parts])
    for part in np.unique(names):
        inside = np.flatnonzero(names == part)
        left[inside] = problem.left(fit(problem, trained(problem, names != part), prior).logs)[inside]
    return left


def trained(problem: Problem, chosen: Any = True) -> NDArray[np.intp]:
    """The rows that fits take, of those chosen."""
    known = [case.concurrency <= MOST_CLIENTS and case.model != LEFT_OUT for case in problem.cases]
    queues = [case.is_open for case in problem.cases] & (problem.errors[:, 0] < -MOST_QUEUE)
    return np.flatnonzero(np.array(known) & ~queues & chosen)


def told(problem: Problem, errors: FloatArray) -> str:
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


def logs_of(name: str, problem: Problem, logs: FloatArray) -> dict[Term, float]:
    """The logarithms of a family or of a GPU, its family's among them, with those that all families share."""
    family = name if name in GPUS else find_gpu(name).family
    found: dict[Term, float] = {}
    for (where, term), log in zip(problem.columns, logs, strict=True):
        if where in (family, name, ""):
            found[term] = found.get(term, 0.0) + float(log)
    return found


def write(family: str, problem: Problem, logs: FloatArray) -> None:
    """Put values into the files of the family and its GPUs; what these inherit stays with who has it."""
    for name in (family, *GPUS[family]):
        if name in problem.texts:
            path, own = FOLDER / f"{name}.toml", logs_of(name, problem, logs)
            path.write_text(
                with_values(path.read_text(encoding="utf-8"), times(problem.texts[name], own), own), encoding="utf-8"
            )


def problem_from(data: Path) -> Problem:
    """All public runs with the derivatives that are kept."""
    families, texts = derivatives.load()
    return problem_of({name: families[name].of(runs_of(name, data)) for name in GPUS}, texts)


def runs_of(family: str, data: Path) -> list[Case]:
    """All closed loops on the family's GPUs, with every run at a rate."""
    return [*closed_loops(data, GPUS[family]), *(case for case in runs_at_a_rate(data) if case.gpu in GPUS[family])]


def watcher(what: str, every: int = 20) -> Callable[[int, int], None]:
    def watch(done: int, total: int) -> None:
        if done % every == 0 or done == total:
            print(f"{what}: {done:,} of {total:,} runs", file=sys.stderr, flush=True)

    return watch


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder that holds measured/")
    parser.add_argument("--derive", action="store_true", help="make the derivatives anew about what is shipped")
    again = "simulate anew, with the derivatives by new constants, of new runs, and by constants that begin so"
    parser.add_argument("--rederive", nargs="*", metavar="NAME", help=again)
    parser.add_argument("--runs", metavar="TEXT", help="for --rederive: runs whose name holds this are new, too")
    parser.add_argument("--workers", type=int, default=2, help="processes that simulate")
    parser.add_argument("--write", action="store_true", help="change the constants and covariances")
    arguments = parser.parse_args()
    runs = {name: runs_of(name, arguments.data) for name in GPUS}
    derive = {name: partial(derivatives.derive, workers=arguments.workers, watch=watcher(name)) for name in GPUS}
    if arguments.derive:
        found = {name: derive[name](runs[name], terms_of(name)) for name in GPUS}
        derivatives.save(found, derivatives.constants_texts())
    if arguments.rederive is not None:
        kept, _ = derivatives.load()
        if arguments.runs:
            kept = {name: each.without(arguments.runs) for name, each in kept.items()}
        found = {
            name: derivatives.rederive(kept[name], runs[name], terms_of(name), arguments.rederive, derive[name])
            for name in GPUS
        }
        derivatives.save(found, derivatives.constants_texts())
    problem = problem_from(arguments.data)
    prior = prior_of(problem.columns, problem.texts)
    estimate = fit(problem, trained(problem), prior)
    print(f"{len(problem.cases)} runs; % median / mean absolute error (bias)")
    print(f"kernel tables       {told(problem, problem.left(prior.mean))}")
    print(f"fitted              {told(problem, problem.left(estimate.logs))}")
    for what in ("release", "alike", "model"):
        parts = [getattr(case, what) for case in problem.cases]
        print(f"{what:8} held out   {told(problem, held_out(problem, prior, parts))}")
    for (family, term), log, mean, sd in zip(
        problem.columns, estimate.logs, prior.mean, np.sqrt(np.diag(estimate.covariance)), strict=True
    ):
        print(f"  × {np.exp(log - mean):.2f} ± {sd:.2f}  {family} {term_text(term)}")
    if arguments.write:
        for family in GPUS:
            write(family, problem, estimate.logs)
            places = [place for place, (name, _) in enumerate(problem.columns) if name in (family, "")]
            matrix, terms = estimate.covariance[np.ix_(places, places)], [problem.columns[place][1] for place in places]
            text = covariance_text(terms, matrix, _comment(family, problem))
            (COVARIANCES / f"{family}.toml").write_text(text, encoding="utf-8")
    return 0


def _comment(family: str, problem: Problem) -> str:
    own = [problem.cases[row] for row in trained(problem) if problem.cases[row].gpu in GPUS[family]]
    models, rates = len({case.model for case in own}), sum(case.is_open for case in own)
    return (
        f"How far the fit of constants/{family}.toml may be off, by validation/constants/step_times.py: {len(own)}\n"
        f"public runs of {models} models, of them {rates} with requests at a rate (docs/measurements/step-times.md)."
    )


if __name__ == "__main__":
    sys.exit(main())
