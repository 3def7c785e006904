"""Other traces that the same users might have sent: parts of a trace in random order, some twice, some not at all."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from workloads.randomness import stream
from workloads.requests import FloatArray, IntArray
from workloads.traces.trace import Trace, by_session_arrival, picked

NUM_PARTS: Final = 20
"""What holds together for a twentieth of a trace, such as a busy minute, stays together."""
MANY_REQUESTS: Final = 1_000_000
"""Beyond them nobody calls a trace short."""
_DRAWS: Final = 1000
_NINETY: Final = 1.645  # standard deviations: 90 % of a normal's values lie between
_TOLD_FROM: Final = 0.1


@dataclass(frozen=True)
class Resampling:
    """A moving-block bootstrap of a trace: how much an answer differs between draws is how well the trace tells it.

    Source: Künsch, The Jackknife and the Bootstrap for General Stationary Observations, Annals of Statistics 1989.
    """

    trace: Trace

    def drawn(self, seed: int) -> Trace:
        """As many sessions, in NUM_PARTS parts that begin anywhere in the trace, wrapped round.

        A session that comes twice has contents of its own the second time. What it shared with one that does not come,
        or comes later, is in no cache, so that answers are a little worse than the trace's: compare draws with draws.
        """
        table, sessions = self.trace.table, self._parts(seed)
        sizes = self._sizes[sessions]
        of = np.repeat(np.arange(len(sessions)), sizes)
        within = np.arange(len(of)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        rows = self._order[self._begins[sessions][of] + within]
        gaps_s = self._gaps_s[sessions]
        moved_s = np.cumsum(gaps_s) - gaps_s - self._starts_s[sessions]
        found = picked(table, rows, _copies(sessions)[of], table.arrival_s[rows] + moved_s[of])
        return replace(self.trace, name=f"{self.trace.name}, resampled", table=found)

    def error_of_mean(self, values: FloatArray) -> float:
        """Standard deviation, as a share, of the mean over requests between draws; `values` are of the trace's rows."""
        sums = np.add.reduceat(values[self._order], self._begins)
        of_parts, requests = (self._sums_of_parts(each) for each in (sums, self._sizes))
        means = of_parts.sum(axis=1) / requests.sum(axis=1)
        return float(means.std() / means.mean())

    def _sums_of_parts(self, values: FloatArray | IntArray) -> FloatArray:
        """[_DRAWS, parts] sums of a quantity of sessions over the parts of many draws, about as many as there are."""
        until = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values]))])
        length = -(-len(values) // NUM_PARTS)
        starts = stream(0, "window", 7).integers(0, len(values), (_DRAWS, -(-len(values) // length)))
        sums: FloatArray = until[starts + length] - until[starts]
        return sums

    @cached_property
    def _order(self) -> IntArray:
        """Rows, sessions together, in order of arrival."""
        return by_session_arrival(self.trace.table)

    @cached_property
    def _begins(self) -> IntArray:
        """[sessions] place of each one's first row in the order."""
        return np.flatnonzero(self.trace.table.follows[self._order] < 0)

    @cached_property
    def _sizes(self) -> IntArray:
        """[sessions] how many rows each has."""
        return np.diff(self._begins, append=len(self._order))

    @cached_property
    def _starts_s(self) -> FloatArray:
        starts_s: FloatArray = self.trace.table.arrival_s[self._order[self._begins]]
        return starts_s

    @cached_property
    def _gaps_s(self) -> FloatArray:
        """[sessions] until the next one begins, wrapped round."""
        gaps_s: FloatArray = np.diff(self._starts_s, append=self._starts_s[0] + self.trace.period_s)
        return gaps_s

    def _parts(self, seed: int) -> IntArray:
        """Which sessions come, in their order."""
        count = len(self._begins)
        length = -(-count // NUM_PARTS)
        starts = stream(seed, "window", 6).integers(0, count, NUM_PARTS)
        sessions: IntArray = (starts[:, None] + np.arange(length)).ravel()[:count] % count
        return sessions


def sample_error(trace: Trace) -> tuple[float, float] | None:
    """Half a 90 % interval of mean prompts and of mean squared ones over recordings of the same users, as shares.

    None where that does not matter.
    """
    if not MANY_REQUESTS >= trace.num_requests > 1:
        return None
    resampling, prompts = Resampling(trace), trace.table.prompt_tokens.astype(np.float64)
    mean, square = (_NINETY * resampling.error_of_mean(values) for values in (prompts, prompts**2))
    return (mean, square) if square >= _TOLD_FROM else None


def sample_notes(trace: Trace) -> tuple[str, ...]:
    """That another recording of the same users would have given another answer, where that matters."""
    found = sample_error(trace)
    if found is None:
        return ()
    mean, square = found
    return (
        f"its {trace.num_requests:,} requests are a sample: between traces resampled from it, mean prompts differ by "
        f"±{mean:.0%}, mean squared prompts, which waits for prefill depend on, by ±{square:.0%} (90 %), capacities by "
        "as much, or up to twice that where the longest prompts decide who misses; the interval does not cover that; a "
        "longer recording would",
    )


def _copies(sessions: IntArray) -> IntArray:
    """[n] how many times the same session came before."""
    order = np.argsort(sessions, kind="stable")
    ordered = sessions[order]
    is_first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    place = np.arange(len(ordered))
    copies = np.empty_like(sessions)
    copies[order] = place - np.maximum.accumulate(np.where(is_first, place, 0))
    return copies
