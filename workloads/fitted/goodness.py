"""How far requests drawn from a fitted model are from those of its trace, and what the model does not hold."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.stats import ks_2samp, wasserstein_distance

from workloads.description.arrivals import earliest_arrival_s
from workloads.description.description import Description, describe_trace
from workloads.description.lengths import Spread
from workloads.fitted.fitted_trace import FittedTrace
from workloads.fitted.marginals import FEWEST
from workloads.requests import RequestTable
from workloads.traces.trace import Trace

# Larger differences are listed under `not_held`; we chose these. Two samples of 1,000 requests of one distribution are
# 0.06 apart or more in one of twenty cases: 1.36 * sqrt(2 / n) (Smirnov, Annals of Mathematical Statistics 19, 1948).
_MOST_KS: Final = 0.05
_MOST_FACTOR: Final = 1.5  # of burstiness
_MOST_HITS_OFF: Final = 0.03  # share of prompt blocks
_MOST_RANKS_OFF: Final = 0.1  # of rank correlation


@dataclass(frozen=True, kw_only=True)
class Distance:
    """Between two distributions."""

    ks: float
    """Kolmogorov and Smirnov's: the largest distance of the two shares below any value."""
    wasserstein: float
    """How far values must be moved on average, over the mean of the trace's."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Goodness:
    """A trace and a draw of the model beside one another."""

    trace: Description
    model: Description
    distances: Mapping[str, Distance]
    """By quantity."""
    cache_tokens: tuple[int, ...]

    @property
    def both(self) -> dict[str, Description]:
        return {"trace": self.trace, "model": self.model}

    @staticmethod
    def spread(of: Description, quantity: str) -> Spread | None:
        """Of one of `distances`; None where a description has none of it."""
        found: dict[str, Spread | None] = {"prompt tokens": of.prompt_tokens, "answer tokens": of.output_tokens}
        if of.sessions is not None:
            found |= {"turns": of.sessions.turns, "think time, s": of.sessions.think_s}
        return found.get(quantity)

    @property
    def hit_rates(self) -> dict[int | None, tuple[float, float]]:
        """Share of prompt blocks that a cache of so many tokens holds, of trace and model; None: unbounded."""
        trace, model = self.trace.reuse, self.model.reuse
        if trace is None:
            return {}
        found: dict[int | None, tuple[float, float]] = {}
        for size in self.cache_tokens:
            blocks = size // trace.block_size
            found[size] = trace.hit_rate(blocks), model.hit_rate(blocks) if model else 0.0
        return {**found, None: (trace.ideal_hit_rate, model.ideal_hit_rate if model else 0.0)}

    @property
    def dispersions(self) -> dict[int, tuple[float, float]]:
        """By window in seconds: variance over mean of the requests in it, of the trace and of the model."""
        if self.trace.arrivals is None or self.model.arrivals is None:
            return {}
        trace, model = self.trace.arrivals.windows, self.model.arrivals.windows
        widths = [width for width in trace if width in model]
        return {width: (trace[width].variance_over_mean, model[width].variance_over_mean) for width in widths}

    @property
    def not_held(self) -> tuple[str, ...]:
        """What differs, and what no such model holds, in sentences."""
        return (*self._differs(), *_never_held(self.trace, self.model))

    def _differs(self) -> Iterator[str]:
        for name, distance in self.distances.items():
            if distance.ks > _MOST_KS:
                yield f"The distribution of {name}: KS distance {distance.ks:.3f}."
        for width, (trace, model) in self.dispersions.items():
            if not trace / _MOST_FACTOR <= model <= trace * _MOST_FACTOR:
                yield f"Bursts within {width} s: variance / mean is {model:.3g}, the trace's {trace:.3g}."
        for size, (trace, model) in self.hit_rates.items():
            if abs(trace - model) > _MOST_HITS_OFF:
                cache = "an unbounded cache" if size is None else f"a cache of {size:,} tokens"
                yield f"Prefixes found in {cache}: {model:.1%}, in the trace {trace:.1%}; {_effect(trace, model)}."
        trace, model = (each.dependence.rank_correlation for each in (self.trace, self.model))
        if abs(trace - model) > _MOST_RANKS_OFF:
            yield f"Long prompts with long answers: rank correlation {model:.2f}, the trace's {trace:.2f}."


def _effect(trace: float, model: float) -> str:
    """What other shares of prompts in the cache do to answers that are made with the model."""
    if trace == 1:
        return "users are underestimated"
    computed = (1 - model) / (1 - trace) - 1
    less, wrongly = ("fewer", "over") if computed < 0 else ("more", "under")
    return f"{abs(computed):.0%} {less} prompt tokens are computed, and users are {wrongly}estimated"


def _never_held(trace: Description, model: Description) -> Iterator[str]:
    if trace.arrivals is not None:
        yield (
            "Which request follows which. Within a window of the recording, only the new tokens of neighbours are "
            "correlated."
        )
        yield "Times beyond the recording. A longer draw repeats its busy and quiet times."
    if trace.reuse is not None and trace.sessions is None:
        yield "Which requests belong to one user. It holds only how much of a prompt was sent before, and how long ago."
    if trace.sessions is not None and model.sessions is None:
        yield f"Later turns of sessions: the trace has fewer than {FEWEST}."
    if trace.table.priority.any():
        yield "Priorities."


def goodness(trace: Trace, model: FittedTrace, block_size: int, cache_tokens: tuple[int, ...]) -> Goodness:
    """The trace beside the draw that `--workload` takes of the model."""
    table = model.draw()
    drawn = Trace(name=model.name, format="fitted", table=table, source="")
    return Goodness(
        trace=describe_trace(trace, block_size),
        model=describe_trace(drawn, block_size),
        distances=dict(_distances(trace.table, table)),
        cache_tokens=cache_tokens,
    )


def _distances(trace: RequestTable, model: RequestTable) -> Iterator[tuple[str, Distance]]:
    one, other = _quantities(trace), _quantities(model)
    for name in one:
        if name in other:
            yield name, _distance(one[name], other[name])


def _quantities(table: RequestTable) -> dict[str, npt.NDArray[np.float64]]:
    found: dict[str, npt.NDArray[np.generic]] = {
        "prompt tokens": table.prompt_tokens,
        "answer tokens": table.output_tokens,
    }
    gaps = np.diff(np.sort(earliest_arrival_s(table)))
    follow = table.follows >= 0
    if follow.any():
        turns = np.bincount(table.first_turns())
        found |= {"turns": turns[turns > 0], "think time, s": table.think_s[follow]}
    elif (gaps > 0).any():
        found["gaps between arrivals, s"] = gaps
    return {name: np.asarray(values, np.float64) for name, values in found.items()}


def _distance(trace: npt.NDArray[np.float64], model: npt.NDArray[np.float64]) -> Distance:
    mean = float(trace.mean())
    return Distance(
        ks=float(ks_2samp(trace, model, method="asymp").statistic),
        wasserstein=float(wasserstein_distance(trace, model)) / mean if mean else 0.0,
    )
