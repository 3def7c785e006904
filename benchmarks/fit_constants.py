"""Fits the shipped step-time constants of a GPU family to runs of real vLLM.

    python benchmarks/fit_constants.py hopper --data ../shared/data [--share 0.4] [--write]

Maximum a posteriori on the logarithms of multipliers, about what is shipped: errors of mean TTFT and TPOT follow
Student's t, groups of runs weigh alike, derivatives are finite differences through the simulator. Held-out figures
are of runs or whole models that a fit did not see, with the simulator taken as linear about the shipped constants.
`--write` puts the multiplied values into simulator/latency/constants/FAMILY.toml.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))

import silicon

from kvcache.catalog import find_gpu, load_model
from simulator.latency._constants import FOLDER, Constants, constants_for
from simulator.step_time import FloatArray

Term = tuple[str, str | None]  # a constant, with its key where it is a mapping
GPUS = {"hopper": ("h100-sxm", "h200-sxm"), "blackwell": ("b200-sxm", "b300-sxm", "gb200")}
# Standard deviations of the logarithms. Half of what the constants vary by between GPUs: a whole width follows single
# models, and others come out worse.
PRIOR_SD: dict[Term, float] = {
    ("gemm_bandwidth_share", None): 0.025,
    **{("gemm_compute_share", key): 0.075 for key in ("bf16", "fp8", "fp4")},
    ("gemm_start_s", None): 0.15,
    ("glue_s", None): 0.15,
    **{("decode_attention_bandwidth_share", key): 0.04 for key in ("16", "8")},
    **{("prefill_attention_compute_share", key): 0.075 for key in ("64", "128", "256")},
    ("all_reduce_start_s", "nvlink"): 0.125,
    ("all_reduce_link_share", "nvlink"): 0.2,
    ("expert_bandwidth_share", None): 0.04,
    **{("expert_compute_share", key): 0.125 for key in ("fp8", "mxfp4", "fp4", "int4")},
    **{("expert_start_s", key): 0.15 for key in ("fp8", "mxfp4", "fp4", "int4")},
    ("distinct_expert_exponent", None): 0.025,
    ("expert_parallel_imbalance", None): 0.2,
    **{("expert_activation_bytes_per_element", key): 0.15 for key in ("fp8", "mxfp4", "fp4", "int4")},
    ("prefill_attention_extra_positions", None): 0.15,
    ("decode_attention_start_s", None): 0.15,
    ("old_eager_layer_s", None): 0.1,
    ("host_sequence_s", None): 0.15,
    ("ingress_request_s", None): 0.5,
    ("ingress_token_s", None): 0.5,
    ("ingress_s", None): 0.15,
}
NOT_MEASURED = {"fp16": "bf16", "int8": "fp8"}  # these follow those
EXPERT_FORMATS = {"fp8": "fp8", "nvfp4": "fp4", "mxfp4": "mxfp4", "int4-experts": "int4"}
STEP = 0.05  # of a logarithm, for the finite differences
SPREAD = np.array([0.12, 0.06])  # of a run's TTFT, TPOT: what an error is weighed by
DEGREES_OF_FREEDOM = 4.0
MOST_OF_PEAK = 0.95
ITERATIONS, FOLDS = 30, 5
LEFT_OUT = "Qwen/Qwen3-235B-A22B-FP8"  # on vLLM 0.12 every step takes as long as reading all experts does
MOST_CLIENTS = 256  # larger runs cost most of the time and tell no more


@dataclass(frozen=True, eq=False)
class Problem:
    """Log errors of the shipped constants, run by run, with their derivatives by the terms."""

    settings: Sequence[silicon.Setting]
    errors: FloatArray  # [runs, 2]: measured over simulated TTFT, TPOT
    jacobian: FloatArray  # [runs, 2, terms]
    most: FloatArray  # [terms]: no share may pass MOST_OF_PEAK

    @property
    def models(self) -> NDArray[np.str_]:
        return np.array([setting.model for setting in self.settings])

    def left(self, logs: FloatArray) -> FloatArray:
        """Errors that remain at these logarithms of the terms."""
        return np.asarray(self.errors - self.jacobian @ logs)


def matters(setting: silicon.Setting, term: Term) -> bool:
    """Whether a run's time can depend on the term."""
    name, key = term
    is_moe = load_model(setting.model).is_moe
    if name.startswith(("expert_", "distinct_expert")):
        known = EXPERT_FORMATS.get(setting.quantization or "", "fp8")
        return is_moe and (key is None or name == "expert_parallel_imbalance" or key == known)
    if name.startswith("all_reduce"):
        return setting.tp * setting.dp > 1
    return True


def multiplied(constants: Constants, logs: Mapping[Term, float]) -> Constants:
    changed: dict[str, Any] = {}
    for (name, key), log in logs.items():
        value = changed.get(name, getattr(constants, name))
        if key is None:
            changed[name] = value * float(np.exp(log))
        elif key in value:
            changed[name] = {**value, key: value[key] * float(np.exp(log))}
    return replace(constants, **changed)


def log_figures(job: tuple[silicon.Setting, Mapping[Term, float]]) -> FloatArray:
    """Logarithms of simulated mean TTFT, TPOT."""
    setting, logs = job
    constants = multiplied(constants_for(find_gpu(setting.gpu)), logs)
    return np.log(silicon.simulate(setting, constants=constants))


def measure(settings: Sequence[silicon.Setting], workers: int, watch: Callable[[int, int], None]) -> Problem:
    terms = list(PRIOR_SD)
    jobs: list[tuple[silicon.Setting, Mapping[Term, float]]] = []
    places: list[tuple[int, int]] = []  # run, term; -1: as shipped
    for run, setting in enumerate(settings):
        jobs.append((setting, {}))
        places.append((run, -1))
        for number, term in enumerate(terms):
            if matters(setting, term):
                jobs.append((setting, {term: STEP}))
                places.append((run, number))
    base, jacobian = np.zeros((len(settings), 2)), np.zeros((len(settings), 2, len(terms)))
    with ProcessPoolExecutor(workers) as pool:
        for done, ((run, number), found) in enumerate(
            zip(places, pool.map(log_figures, jobs, chunksize=8), strict=True), start=1
        ):
            if number < 0:  # comes before the run's others
                base[run] = found
            else:
                jacobian[run, :, number] = (found - base[run]) / STEP
            watch(done, len(jobs))
    measured = np.log([(setting.ttft_s, setting.tpot_s) for setting in settings])
    return Problem(settings, measured - base, jacobian, np.array([room(settings, term) for term in terms]))


def room(settings: Sequence[silicon.Setting], term: Term) -> float:
    """How far the logarithm of a share may rise on any of the GPUs; infinite for what is no share."""
    name, key = term
    if not name.endswith("_share"):
        return np.inf
    found = [getattr(constants_for(find_gpu(gpu)), name) for gpu in {setting.gpu for setting in settings}]
    values = [value.get(key, 0.0) if key else value for value in found]
    return float(np.log(MOST_OF_PEAK / max(values))) if max(values) > 0 else np.inf


def fit(problem: Problem, rows: NDArray[np.intp]) -> FloatArray:
    """The most probable logarithms, from these runs alone: reweighted least squares under the priors."""
    groups = Counter(problem.settings[row].group for row in rows)
    balance = np.array([1 / groups[problem.settings[row].group] for row in rows])
    balance *= len(rows) / balance.sum()
    slopes = problem.jacobian[rows] / SPREAD[None, :, None]
    errors = problem.errors[rows] / SPREAD
    prior = np.diag(1 / np.array(list(PRIOR_SD.values())) ** 2)
    logs = np.zeros(len(PRIOR_SD))
    for _ in range(ITERATIONS):
        left = errors - slopes @ logs
        weights = (DEGREES_OF_FREEDOM + 1) / (DEGREES_OF_FREEDOM + left**2) * balance[:, None]
        hessian = np.einsum("ij,ijk,ijl->kl", weights, slopes, slopes) + prior
        logs = bounded(hessian, np.einsum("ij,ijk,ij->k", weights, slopes, errors), problem.most)
    return logs


def bounded(hessian: FloatArray, gradient: FloatArray, most: FloatArray) -> FloatArray:
    """The minimum of the quadratic with no term above its bound: those that would be are held there."""
    held = np.zeros(len(most), dtype=bool)
    logs = np.where(held, most, 0.0)
    while True:
        free = ~held
        logs[held] = most[held]
        logs[free] = np.linalg.solve(
            hessian[np.ix_(free, free)], gradient[free] - hessian[np.ix_(free, held)] @ logs[held]
        )
        above = free & (logs > most)
        if not above.any():
            return logs
        held |= above


def held_out(problem: Problem, parts: NDArray[Any]) -> FloatArray:
    """Errors of each run under a fit that saw no run of its part."""
    left = np.zeros_like(problem.errors)
    for part in np.unique(parts):
        outside = np.flatnonzero(parts != part)
        inside = np.flatnonzero(parts == part)
        left[inside] = problem.left(fit(problem, outside))[inside]
    return left


def told(errors: FloatArray) -> str:
    """Median, mean absolute error and bias in % of simulated over measured."""
    parts = []
    for name, column in zip(("TTFT", "TPOT"), errors.T, strict=True):
        relative = 100 * np.expm1(-column)
        size = np.abs(relative)
        parts.append(f"{name} {np.median(size):5.1f} / {np.mean(size):5.1f} ({np.median(relative):+5.1f})")
    return "   ".join(parts)


def write(family: str, logs: Mapping[Term, float]) -> None:
    """Multiply the values in the family's file; what it inherits was fitted with the family that has it."""
    path = FOLDER / f"{family}.toml"
    text = path.read_text(encoding="utf-8")
    followers = {(name, new): logs[name, old] for new, old in NOT_MEASURED.items() for name, key in logs if key == old}
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
    path.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=sorted(GPUS))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder that holds measured/")
    parser.add_argument("--share", type=float, default=0.4, help="of the runs, drawn at random")
    parser.add_argument("--workers", type=int, default=2, help="processes that simulate")
    parser.add_argument("--write", action="store_true", help="change the family's file")
    arguments = parser.parse_args()
    every, _ = silicon.read_settings(arguments.data)
    mine = [setting for setting in every if setting.gpu in GPUS[arguments.family] and setting.model != LEFT_OUT]
    rng = np.random.default_rng(1)
    chosen = [setting for setting in mine if setting.concurrency <= MOST_CLIENTS and rng.random() < arguments.share]

    def watch(done: int, total: int) -> None:
        if done % 200 == 0 or done == total:
            print(f"\r{done:,} of {total:,} simulations", end="", file=sys.stderr, flush=True)

    problem = measure(chosen, arguments.workers, watch)
    logs = fit(problem, np.arange(len(chosen)))
    print(f"\n{len(chosen)} runs of {len(set(problem.models))} models; % median / mean absolute error (bias)")
    print(f"as shipped          {told(problem.errors)}")
    print(f"fitted              {told(problem.left(logs))}")
    print(f"runs held out       {told(held_out(problem, rng.integers(0, FOLDS, len(chosen))))}")
    print(f"models held out     {told(held_out(problem, problem.models))}")
    for (name, key), log in zip(PRIOR_SD, logs, strict=True):
        if abs(log) > 0.02:
            print(f"  × {np.exp(log):.2f}  {name}{f' {key}' if key else ''}")
    if arguments.write:
        write(arguments.family, dict(zip(PRIOR_SD, logs, strict=True)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
