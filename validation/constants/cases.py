"""What the shipped step-time constants are fitted to: measured runs, each with its derivatives by the constants."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrate.check.replay import measured_figures, replay, simulated_figures
from calibrate.measured_run import MeasuredRun
from kvcache.models.catalog import find_gpu, load_model
from simulator.latency.covariance import Term, multiplied
from simulator.latency.gpu_constants import Constants, constants_for
from simulator.latency.step_time import FloatArray
from validation.measured.closed_loops import simulate
from validation.measured.launches import is_of_dynamo
from validation.measured.request_logs import h100_runs
from validation.measured.served import TOKEN_IDS, is_late, lone_prompts, without_text
from validation.measured.settings import Setting, read_settings
from validation.measured.stage_means import stages_of_means

EXPERT_FORMATS = {"fp8": "fp8", "nvfp4": "fp4", "mxfp4": "mxfp4", "int4-experts": "int4", None: "bf16"}
STEP = 0.05  # of a logarithm, for the finite differences
FIGURES = ("ttft_s.mean", "tpot_s.mean")


@dataclass(frozen=True, eq=False)
class Case:
    """One measured run: closed-loop clients, or requests that come at a rate."""

    run: Setting | MeasuredRun

    @property
    def is_open(self) -> bool:
        return isinstance(self.run, MeasuredRun)

    @property
    def is_load_at_random(self) -> bool:
        """Requests that come at a rate, rather than alone."""
        return isinstance(self.run, MeasuredRun) and self.run.tool != TOKEN_IDS

    @property
    def model(self) -> str:
        return str(self.run.options["model"] if isinstance(self.run, MeasuredRun) else self.run.model)

    @property
    def gpu(self) -> str:
        return str(self.run.options["gpu"] if isinstance(self.run, MeasuredRun) else self.run.gpu)

    @property
    def quantization(self) -> str | None:
        """Asked for, else the checkpoint's own."""
        if isinstance(self.run, MeasuredRun):
            asked = self.run.options.get("quantization")
            return str(asked) if asked else load_model(self.model).native_quantization
        return self.run.quantization or load_model(self.model).native_quantization

    @property
    def num_gpus(self) -> int:
        return int(self.run.options["tensor_parallel_size"] if isinstance(self.run, MeasuredRun) else self.run.gpus)

    @property
    def concurrency(self) -> int:
        """Clients of a closed loop; 0 where requests come at a rate."""
        return 0 if isinstance(self.run, MeasuredRun) else self.run.concurrency

    @property
    def vllm_version(self) -> str:
        found = self.run.options["vllm_version"] if isinstance(self.run, MeasuredRun) else self.run.version
        return str(found)

    @property
    def release(self) -> tuple[str, str, str]:
        """Model, GPU and release: runs that a fit must not know to tell of a combination that was never measured."""
        return self.model, self.gpu, self.vllm_version

    @property
    def alike(self) -> str:
        """The same with the format of the weights."""
        return " ".join((*self.release, self.quantization or "16 bits"))

    @property
    def group(self) -> tuple[Any, ...]:
        """Runs of one deployment err alike."""
        if isinstance(self.run, MeasuredRun):
            return self.model, self.num_gpus, self.vllm_version, self.quantization
        return self.run.group

    @property
    def tells(self) -> tuple[bool, bool]:
        """Whether its TTFT, its TPOT say something of step times.

        TTFT does not where lengths are in doubt, TPOT where the first of few tokens comes late behind a long prompt.
        """
        if isinstance(self.run, MeasuredRun):
            return True, not is_late(self.run)
        return not is_of_dynamo(self.run), True

    @cached_property
    def measured(self) -> FloatArray:
        """Logarithms of mean TTFT, TPOT."""
        if isinstance(self.run, MeasuredRun):
            found = dict(self.run.aggregates) or measured_figures(self.run)
            return np.log([found[name] for name in FIGURES])
        return np.log([self.run.ttft_s, self.run.tpot_s])

    def simulator(self) -> Callable[[Constants], FloatArray]:
        """What simulates the run under any constants: logarithms of mean TTFT, TPOT."""
        if isinstance(self.run, MeasuredRun):
            item = replay(self.run)
            is_text = self.run.tool != TOKEN_IDS

            def simulate_requests(constants: Constants) -> FloatArray:
                found = simulated_figures(item.simulate(constants if is_text else without_text(constants)))
                return np.log([found[name] for name in FIGURES])

            return simulate_requests
        setting = self.run
        return lambda constants: np.log(simulate(setting, constants=constants))

    def depends_on(self, term: Term) -> bool:
        """Whether the run's time can depend on the term."""
        name, key = term
        known = EXPERT_FORMATS.get(self.quantization, "fp8")
        if name.startswith(("expert_", "distinct_expert")):
            return load_model(self.model).is_moe and key in (None, known)
        if name == "gemm_bandwidth_share":
            return key in ("bf16", known)
        return not name.startswith("all_reduce") or self.num_gpus > 1


def closed_loops(data: Path, gpus: Sequence[str]) -> list[Case]:
    every, _ = read_settings(data)
    return [Case(setting) for setting in every if setting.gpu in gpus]


def runs_at_a_rate(data: Path) -> list[Case]:
    """Request logs of H100 servers, stages of which only means are known, and prompts that were sent alone."""
    return [Case(run) for run in (*h100_runs(data), *stages_of_means(data)[0], *lone_prompts(data))]


@dataclass(frozen=True, eq=False)
class Linearized:
    """Log errors of the shipped constants, run by run, with their derivatives by the terms."""

    cases: Sequence[Case]
    terms: Sequence[Term]
    errors: FloatArray  # [runs, 2]: measured over simulated TTFT, TPOT
    jacobian: FloatArray  # [runs, 2, terms]

    @property
    def models(self) -> NDArray[np.str_]:
        return np.array([case.model for case in self.cases])

    @property
    def groups(self) -> list[tuple[Any, ...]]:
        return [case.group for case in self.cases]

    @property
    def tells(self) -> FloatArray:
        """1 where a figure is fitted, else 0: [runs, 2]."""
        return np.array([case.tells for case in self.cases], dtype=np.float64)

    def left(self, logs: FloatArray) -> FloatArray:
        """Errors that remain at these logarithms of the terms."""
        return np.asarray(self.errors - self.jacobian @ logs)


def linearize(
    cases: Sequence[Case], terms: Sequence[Term], workers: int, watch: Callable[[int, int], None]
) -> Linearized:
    """By finite differences through the simulator, about the shipped constants."""
    found = []
    with ProcessPoolExecutor(workers) as pool:
        for both in pool.map(_errors_and_slopes, cases, [terms] * len(cases)):
            found.append(both)
            watch(len(found), len(cases))
    return Linearized(cases, terms, np.array([e for e, _ in found]), np.array([slopes for _, slopes in found]))


def _errors_and_slopes(case: Case, terms: Sequence[Term]) -> tuple[FloatArray, FloatArray]:
    shipped, simulate = constants_for(find_gpu(case.gpu)), case.simulator()
    base, slopes = simulate(shipped), np.zeros((len(FIGURES), len(terms)))
    for place, term in enumerate(terms):
        if case.depends_on(term):
            slopes[:, place] = (simulate(multiplied(shipped, {term: STEP})) - base) / STEP
    return case.measured - base, slopes


def log_errors(
    cases: Sequence[Case], logs: Sequence[Mapping[Term, float]], workers: int, watch: Callable[[int, int], None]
) -> FloatArray:
    """Logarithms of measured over simulated TTFT, TPOT [runs, 2], each run under constants of its own."""
    found: list[FloatArray] = []
    with ProcessPoolExecutor(workers) as pool:
        for errors in pool.map(_log_error, cases, logs):
            found.append(errors)
            watch(len(found), len(cases))
    return np.array(found)


def _log_error(case: Case, logs: Mapping[Term, float]) -> FloatArray:
    return np.asarray(case.measured - case.simulator()(multiplied(constants_for(find_gpu(case.gpu)), logs)))
