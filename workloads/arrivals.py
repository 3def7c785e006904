"""When requests of an open load arrive."""

from __future__ import annotations

import numpy as np

from workloads.distributions import Distribution, Exponential, FloatArray, Gamma, Weibull
from workloads.errors import WorkloadError


def poisson_gaps(rate_per_s: float) -> Distribution:
    """Gaps of a Poisson stream."""
    return Exponential(mean_value=_mean_gap(rate_per_s))


def gamma_gaps(rate_per_s: float, burstiness: float = 1.0) -> Distribution:
    """Gaps as `vllm bench serve --burstiness` draws them: gamma with this shape, CV 1 / sqrt(burstiness); 1 = Poisson.

    Source: vllm/benchmarks/serve.py, get_request.
    """
    mean = _mean_gap(rate_per_s)
    if not (np.isfinite(burstiness) and burstiness > 0):
        raise WorkloadError(f"burstiness is {burstiness}; it must be a finite number above 0 (1 = Poisson)")
    return Exponential(mean_value=mean) if burstiness == 1 else Gamma(shape=burstiness, mean_value=mean)


def weibull_gaps(rate_per_s: float, shape: float) -> Distribution:
    """Gaps of a Weibull renewal stream; shape below 1 is burstier than Poisson."""
    return Weibull(shape=shape, mean_value=_mean_gap(rate_per_s))


def arrival_times(
    gaps: Distribution,
    rng: np.random.Generator,
    *,
    num_requests: int | None = None,
    horizon_s: float | None = None,
) -> FloatArray:
    """Ascending times in seconds: the first `num_requests`, or all before `horizon_s`.

    The first arrival comes one gap after 0. The k-th time is the same however many are asked for.
    """
    if (num_requests is None) == (horizon_s is None):
        raise WorkloadError("give either the number of requests or the horizon in seconds")
    if num_requests is not None:
        return np.cumsum(gaps.quantile(rng.random(num_requests)))
    assert horizon_s is not None
    if not np.isfinite(horizon_s):
        raise WorkloadError(f"the horizon is {horizon_s} s; it must be finite")
    block = int(1.1 * horizon_s / gaps.mean()) + 100
    drawn = gaps.quantile(rng.random(block))
    while (times := np.cumsum(drawn))[-1] < horizon_s:
        drawn = np.concatenate([drawn, gaps.quantile(rng.random(block))])
    return times[times < horizon_s]


def _mean_gap(rate_per_s: float) -> float:
    if not (np.isfinite(rate_per_s) and rate_per_s > 0):
        raise WorkloadError(f"the rate is {rate_per_s} requests/s; it must be finite, above 0")
    return 1 / rate_per_s
