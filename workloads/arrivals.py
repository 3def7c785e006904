"""When requests arrive that wait for no answer: processes of a given mean rate."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Protocol

import numpy as np
import scipy  # whose parts load where they are first used
from msgspec import Meta

from files import special
from files.reading import InputError
from workloads.distributions import (
    Distribution,
    Exponential,
    FloatArray,
    Gamma,
    Kind,
    Shape,
    Weibull,
    size_biased_quantile,
)
from workloads.randomness import stream

LOWEST_RATE: Final = 1e-9  # requests per second: one in 30 years
_GRID: Final = 4096  # parts of a day

Seconds = Annotated[float, Meta(ge=1e-3, le=1e9, description="a number of seconds from 0.001 to 1,000,000,000")]
Variation = Annotated[float, Meta(ge=0.1, le=10, description="a coefficient of variation from 0.1 to 10")]
Factor = Annotated[float, Meta(ge=1, le=1e4, description="a factor from 1 to 10,000")]
Part = Annotated[float, Meta(gt=0, lt=1, description="a share above 0, below 1")]


class Arrivals(Protocol):
    """A process of mean rate 1; the k-th arrival is the same however many are asked for."""

    def times(self, num_requests: int, seed: int, rate_per_s: float) -> FloatArray:
        """[num_requests] ascending times in seconds."""


class Poisson(Kind, frozen=True, kw_only=True):
    """Independent arrivals."""

    def times(self, num_requests: int, seed: int, rate_per_s: float) -> FloatArray:
        return _unit_times(_MEMORYLESS, num_requests, seed) / rate_per_s


class Bursty(Kind, frozen=True, kw_only=True):
    """Gamma gaps as `vllm bench serve --burstiness` draws them: 1 is Poisson, CV 1 / sqrt(burstiness).

    Source: vllm/benchmarks/serve.py, get_request.
    """

    burstiness: Shape

    def times(self, num_requests: int, seed: int, rate_per_s: float) -> FloatArray:
        gaps = _MEMORYLESS if self.burstiness == 1 else Gamma(shape=self.burstiness, mean_value=1.0)
        return _unit_times(gaps, num_requests, seed) / rate_per_s


class GammaGaps(Kind, frozen=True, kw_only=True):
    """Gamma gaps of this coefficient of variation: 1 is Poisson, more comes in clumps, less is more even."""

    cv: Variation

    def times(self, num_requests: int, seed: int, rate_per_s: float) -> FloatArray:
        return Bursty(burstiness=1 / self.cv**2).times(num_requests, seed, rate_per_s)


class WeibullGaps(Kind, frozen=True, kw_only=True):
    """Weibull gaps of this coefficient of variation: fewer tiny gaps and longer silences than gamma."""

    cv: Variation

    def times(self, num_requests: int, seed: int, rate_per_s: float) -> FloatArray:
        def excess(shape: float) -> float:
            log_gamma = special.gammaln
            return float(log_gamma(1 + 2 / shape) - 2 * log_gamma(1 + 1 / shape)) - math.log1p(self.cv**2)

        gaps = Weibull(shape=scipy.optimize.brentq(excess, 0.1, 20.0), mean_value=1.0)
        return _unit_times(gaps, num_requests, seed) / rate_per_s


class MarkovModulated(Kind, frozen=True, kw_only=True):
    """Poisson whose rate jumps: `factor` times as high in bursts as between them, memoryless in length.

    Bursts take `share` of the time, and last `length_s` on average.
    """

    factor: Factor
    share: Part
    length_s: Seconds

    def times(self, num_requests: int, seed: int, rate_per_s: float) -> FloatArray:
        usual = 1 / (1 + self.share * (self.factor - 1))
        levels, means = (usual, self.factor * usual), (self.length_s * (1 / self.share - 1), self.length_s)
        return _switched(levels, means, _unit_times(_MEMORYLESS, num_requests, seed) / rate_per_s, seed)


class OnOff(Kind, frozen=True, kw_only=True):
    """Poisson while on, silent while off; both memoryless in length, `on_s` and `off_s` on average."""

    on_s: Seconds
    off_s: Seconds

    def times(self, num_requests: int, seed: int, rate_per_s: float) -> FloatArray:
        levels, means = (0.0, 1 + self.off_s / self.on_s), (self.off_s, self.on_s)
        return _switched(levels, means, _unit_times(_MEMORYLESS, num_requests, seed) / rate_per_s, seed)


class Diurnal(Kind, frozen=True, kw_only=True):
    """Poisson whose rate follows a sine of this period, `peak` times the mean at most; begins at the mean, rising."""

    peak: Annotated[float, Meta(ge=1, le=2, description="a number from 1 to 2")]
    period_s: Seconds = 86_400.0

    def times(self, num_requests: int, seed: int, rate_per_s: float) -> FloatArray:
        period_s = self.period_s
        time_s = np.linspace(0.0, period_s, _GRID + 1)
        swing = (self.peak - 1) * period_s / (2 * math.pi)
        passed = time_s + swing * (1 - np.cos(2 * math.pi * time_s / period_s))
        days, rest = np.divmod(_unit_times(_MEMORYLESS, num_requests, seed) / rate_per_s, period_s)
        return np.asarray(days * period_s + np.interp(rest, passed, time_s), dtype=np.float64)


class FlashCrowd(Kind, frozen=True, kw_only=True):
    """Poisson at the given rate, but `factor` times as high for `length_s` from `at_s` on."""

    at_s: Seconds
    factor: Factor
    length_s: Seconds

    def times(self, num_requests: int, seed: int, rate_per_s: float) -> FloatArray:
        work = _unit_times(_MEMORYLESS, num_requests, seed) / rate_per_s
        surplus = (self.factor - 1) * np.clip(work - self.at_s, 0.0, self.factor * self.length_s) / self.factor
        return work - surplus


class HeavyClients(Kind, frozen=True, kw_only=True):
    """Clients of Zipf's rates side by side, the k-th k^-`zipf` as busy as the first; each has gamma gaps of this CV."""

    clients: Annotated[int, Meta(ge=1, le=100_000, description="a whole number from 1 to 100,000")]
    zipf: Annotated[float, Meta(ge=0, le=5, description="a number from 0 to 5")] = 1.0
    cv: Variation = 1.0

    def times(self, num_requests: int, seed: int, rate_per_s: float) -> FloatArray:
        shares = np.arange(1, self.clients + 1) ** -float(self.zipf)
        shares /= shares.sum()
        gaps = Gamma(shape=1 / self.cv**2, mean_value=1.0)
        start, luck = stream(seed, "arrivals", 1).random((2, self.clients))
        firsts = start * size_biased_quantile(gaps, luck) / shares  # a random moment lies in one of its gaps
        until, found = 1.1 * num_requests + 10, np.zeros(0)
        while len(found) < num_requests:
            parts = [
                _client(gaps, share, first, until, stream(seed, "arrivals", 2, place))
                for place, (share, first) in enumerate(zip(shares.tolist(), firsts.tolist(), strict=True))
            ]
            found, until = np.sort(np.concatenate(parts)), 1.5 * until
        return found[:num_requests] / rate_per_s


_MEMORYLESS: Final = Exponential(mean_value=1.0)
POISSON: Final = Poisson()
PROCESSES: Final[Mapping[str, Any]] = {
    "poisson": Poisson,
    "gamma": GammaGaps,
    "weibull": WeibullGaps,
    "mmpp": MarkovModulated,
    "on-off": OnOff,
    "diurnal": Diurnal,
    "flash-crowd": FlashCrowd,
    "clients": HeavyClients,
}


def arrival_times(arrivals: Arrivals, rate_per_s: float, num_requests: int, seed: int) -> FloatArray:
    """[num_requests] ascending times in seconds. Raises InputError for a rate that is out of range."""
    if not LOWEST_RATE <= rate_per_s <= 1 / LOWEST_RATE:
        raise InputError(f"the rate is {rate_per_s} requests/s; it must be from {LOWEST_RATE:g} to {1 / LOWEST_RATE:g}")
    return arrivals.times(num_requests, seed, rate_per_s)


def _unit_times(gaps: Distribution, num_requests: int, seed: int) -> FloatArray:
    """The first arrival comes one gap after 0."""
    return np.cumsum(gaps.quantile(stream(seed, "arrivals").random(num_requests)))


def _client(gaps: Distribution, share: float, first: float, until: float, rng: np.random.Generator) -> FloatArray:
    """A client's arrivals from the first up to `until`, in mean gaps of all clients together."""
    found = times = np.array([first])
    while times[-1] <= until:
        found = np.append(found, gaps.quantile(rng.random(math.ceil(share * until) + 10)) / share)
        times = np.cumsum(found)  # from the first on, so that `until` changes none of them by rounding
    return times[times <= until]


def _switched(levels: tuple[float, float], means_s: tuple[float, float], work: FloatArray, seed: int) -> FloatArray:
    """When so much work has come at a rate that alternates between two levels, whose lengths are memoryless."""
    phases = stream(seed, "arrivals", 1)
    if phases.random() < means_s[1] / sum(means_s):
        levels, means_s = levels[::-1], means_s[::-1]
    ends_s, passed = np.zeros(1), np.zeros(1)
    while passed[-1] <= work[-1]:
        lengths = phases.standard_exponential(1024) * np.tile(means_s, 512)
        ends_s = np.append(ends_s, ends_s[-1] + np.cumsum(lengths))
        passed = np.append(passed, passed[-1] + np.cumsum(lengths * np.tile(levels, 512)))
    # Where nothing arrives no work passes: an arrival lies after the silence, not before it.
    place = np.searchsorted(passed, work, side="right") - 1
    level = np.asarray(levels)[place % 2]
    return np.asarray(ends_s[place] + (work - passed[place]) / level, dtype=np.float64)
