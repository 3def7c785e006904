"""When requests of an open load arrive."""

import numpy as np

from boundary.files import InputError
from workloads.distributions import Distribution, Exponential, FloatArray, Gamma

LOWEST_RATE = 1e-9  # requests per second: one in 30 years


def gamma_gaps(rate_per_s: float, burstiness: float = 1.0) -> Distribution:
    """Gaps as `vllm bench serve --burstiness` draws them: gamma with this shape, CV 1 / sqrt(burstiness); 1 = Poisson.

    Source: vllm/benchmarks/serve.py, get_request.
    """
    if not LOWEST_RATE <= rate_per_s <= 1 / LOWEST_RATE:
        raise InputError(f"the rate is {rate_per_s} requests/s; it must be from {LOWEST_RATE:g} to {1 / LOWEST_RATE:g}")
    if not 0.01 <= burstiness <= 1e6:
        raise InputError(f"burstiness is {burstiness}; it must be from 0.01 to 1,000,000 (1 = Poisson)")
    mean = 1 / rate_per_s
    return Exponential(mean_value=mean) if burstiness == 1 else Gamma(shape=burstiness, mean_value=mean)


def arrival_times(gaps: Distribution, rng: np.random.Generator, num_requests: int) -> FloatArray:
    """Ascending times in seconds of the first `num_requests`; the first arrival comes one gap after 0.

    The k-th time is the same however many are asked for.
    """
    return np.cumsum(gaps.quantile(rng.random(num_requests)))
