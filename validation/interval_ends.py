"""How far the ends of users' interval lie from their own long run, over many seeds.

`python -m validation.interval_ends SEEDS` asks about Llama-3.1-8B on one H100. The long run of an end is the capacity
with many replications where steps, or the TTFT limit, are changed by as much as the end says.
"""

import argparse
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

import headcount as hc
from simulator.study.candidate import Level, RunContext
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_table import CapacityTable

ASKED: Final = ("llama-3.1-8b", "h100-sxm")
MANY: Final = 200
"""Replications of each load in the long run."""
FIRST_SEED: Final = 1000
_WORSE: Final = ("users_at_step_time_error_high", "users_at_ttft_error_high")
_BETTER: Final = ("users_at_step_time_error_low", "users_at_ttft_error_low")
_PRECISION: Final = {"users_low": "users_low_precision", "users_high": "users_high_precision"}
"""Whose error a row states; of the others, the error of the expected users is taken."""


def long_runs(question: CapacityQuestion, step_error: float, ttft_error: float) -> dict[str, float]:
    """Users by many replications, with steps and TTFT as long as the ends of the interval have them."""
    steps, later = 1 + step_error, 1 + ttft_error
    return {
        "users": _long_run(question),
        "users_at_step_time_error_high": _long_run(question, step_time_factor=steps),
        "users_at_step_time_error_low": _long_run(question, step_time_factor=1 / steps),
        "users_at_ttft_error_high": _long_run(question, slo=question.slo.with_ttft(1 / later)),
        "users_at_ttft_error_low": _long_run(question, slo=question.slo.with_ttft(later)),
    }


def _long_run(question: CapacityQuestion, **changes: Any) -> int:
    args = replace(question.args, tensor_parallel_size=1)
    asked = replace(question, args=args, seed=FIRST_SEED - 1, replications=MANY, **changes)
    (candidate,) = CapacityTable(question=asked, how=RunContext()).candidates(1)
    return candidate.known_as(Level.CONFIRMED).row(1).users


def with_ends(found: Mapping[str, float], sampling: float) -> dict[str, float]:
    """The long runs with both ends of the whole interval; `sampling` is half of that of replications, a share."""
    users = found["users"]

    def end(names: tuple[str, ...], sign: int) -> float:
        return users * math.exp(sign * math.hypot(sampling, *(math.log(found[name] / users) for name in names)))

    return {**found, "users_low": end(_WORSE, -1), "users_high": end(_BETTER, 1)}


def main() -> None:
    """Ask with each seed, and print how far each figure lies from its long run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", type=int)
    seeds = range(FIRST_SEED, FIRST_SEED + parser.parse_args().seeds)
    rows = [hc.capacity(*ASKED, gpus=[1], seed=seed).best for seed in seeds]
    question = hc.capacity(*ASKED, gpus=[1]).question
    assert rows[0].step_time_error and rows[0].ttft_error
    sampling = float(np.mean([row.precision for row in rows]))
    found = with_ends(long_runs(question, rows[0].step_time_error, rows[0].ttft_error), sampling)
    for name, truth in found.items():
        values = np.array([getattr(row, name) for row in rows], float)
        half = np.array([getattr(row, _PRECISION.get(name, "precision")) for row in rows])
        held = float(np.mean(np.abs(values / truth - 1) <= half))
        spread = values.std(ddof=1) / values.mean()
        print(f"{name:<32}{truth:8.1f}{values.mean():8.1f}  SD {spread:.1%}  within {half.mean():.1%}: {held:.0%}")


if __name__ == "__main__":
    main()
