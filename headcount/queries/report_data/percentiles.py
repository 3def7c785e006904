"""Figures as an answer keeps them: percentiles of many values, and as many digits as can be seen."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from files import special
from simulator.study.statistics import percentile_error, summary, t_interval

P99_COLUMN: Final = "p99 interval"
P99_MEANING: Final = (
    "p99 interval: covers step-time error and noise within this run. Runs with other seeds differ more; see --runs"
)
PERCENTILES: Final = (*range(0, 100, 5), 97, 98, 99, 99.5, 99.9)


def percentiles_json(times_s: NDArray[np.float64]) -> list[float] | None:
    """At PERCENTILES; None where nothing was measured."""
    known = times_s[np.isfinite(times_s)]
    return [rounded(value) for value in np.percentile(known, PERCENTILES)] if len(known) else None


def p99_interval(times_s: NDArray[np.float64], log_ends: tuple[float, float]) -> tuple[float, float] | None:
    """A real server's p99, from the noise within one run, in order of arrival, and the error of step times.

    Other seeds differ more where queues build up now and then: a run may have none of those times, or many.
    None where too few requests lie beyond it to say.
    """
    noise, p99 = percentile_error(times_s, 99), summary(times_s)["p99"]
    if noise is None or p99 is None:
        return None
    shorter, longer = (math.exp(math.hypot(math.log1p(noise), end)) for end in log_ends)
    return p99 / shorter, p99 * longer


def p99_of_runs(p99s: Sequence[float], log_ends: tuple[float, float]) -> tuple[float, float] | None:
    """A real server's p99, from the p99 of several runs and the error of step times; None where a run has none."""
    if not all(math.isfinite(p99) and p99 > 0 for p99 in p99s):
        return None
    found = t_interval(np.log(p99s), confidence=0.9)
    shorter, longer = (math.exp(math.hypot(found.high - found.mean, end)) for end in log_ends)
    return math.exp(found.mean) / shorter, math.exp(found.mean) * longer


MOST_RUNS: Final = 100_000
GOAL: Final = 0.1


def trust_text(name: str, p99s: Sequence[float], log_ends: tuple[float, float]) -> str:
    """How well several runs tell a p99, and how many would tell it within GOAL; "" where that is not known.

    Of the noise between runs alone: more of them make the error of step times no smaller.
    """
    if len(p99s) < 2 or not all(math.isfinite(p99) and p99 > 0 for p99 in p99s):
        return ""
    logs = np.log(p99s)
    half = t_interval(logs, confidence=0.9)
    noise = half.high - half.mean
    known = f"noise between {len(p99s)} runs leaves p99 {name} {signed_ends(noise, noise)} (90 % interval)"
    if noise <= math.log1p(GOAL):
        enough = f"so more runs are not needed for ±{100 * GOAL:.0f} %"
    else:
        enough = f"for ±{100 * GOAL:.0f} % give --runs {_runs_within(float(logs.std(ddof=1)), len(p99s)):,}"
    steps = f"; step-time error adds {signed_ends(*log_ends)}, which only calibration reduces" if any(log_ends) else ""
    return f"{known}: {enough}{steps}"


def signed_ends(log_shorter: float, log_longer: float) -> str:
    """Such as `−29 % to +40 %`."""
    low, high = math.exp(-log_shorter) - 1, math.exp(log_longer) - 1
    return f"−{abs(low):.0%} to +{high:.0%}".replace("%", " %")


def _runs_within(deviation: float, runs: int) -> int:
    """The fewest runs, more than these, whose mean is known within GOAL if they differ as much."""
    while runs < MOST_RUNS:
        runs += max(runs // 50, 1)
        if float(special.stdtrit(runs - 1, 0.95)) * deviation / math.sqrt(runs) <= math.log1p(GOAL):
            break
    return runs


def runs_text(runs: int) -> str:
    """What the table of several runs shows; "" for one."""
    if not runs:
        return ""
    return (
        f"Latencies are geometric means of {runs} runs, each with a seed of its own; below them the least and the most "
        "of them. p99 interval: 90 %, by step-time error and the noise between runs. All else is of the first run."
    )


def mean_of_runs(values: Sequence[float]) -> float:
    """The geometric mean; not a number where a run has none."""
    return math.exp(float(np.mean(np.log(values)))) if all(value > 0 for value in values) else math.nan


def known_or_none(values: Sequence[float]) -> list[float | None]:
    """Rounded; None for what is not a number."""
    return [rounded(value) if math.isfinite(value) else None for value in values]


def rounded(value: float) -> float:
    """Five significant digits: more cannot be seen."""
    return float(f"{value:.5g}")
