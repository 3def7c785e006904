"""A mean context that was asked for, kept where `max_model_len` cuts the longest conversations."""

import math
from dataclasses import replace
from functools import lru_cache
from typing import Final

from workloads.populations.at_limit import END
from workloads.populations.derived import scaled
from workloads.populations.equilibrium import equilibrium
from workloads.populations.population import Population
from workloads.requests import OPEN_END

AS_LONG: Final = 0.95
"""Of a workload's mean context: where less is left of it, a limit cuts the workload itself."""
TOLERANCE: Final = 0.002  # of the mean context, by which it may be missed
_OF_MESSAGES, _OF_PASSAGES = (4.0, 12), (1.1, 6)  # steps of their length, in looking for what is long enough


def whole_context(population: Population) -> float:
    """Tokens of prompt and answer together, on average, where nothing is cut."""
    return equilibrium(replace(population, asked_context=None, at_limit=END), OPEN_END - 1).context


def keeps_context(population: Population, max_model_len: int) -> bool:
    """Whether a mean context was asked for that the limit is not to shorten.

    Not where conversations go on beyond the limit, and no multiple of one that the limit shortens itself.
    """
    asked = population.asked_context
    if asked is None or population.at_limit.goes_on:
        return False
    of = asked.times
    return of is None or equilibrium(of, max_model_len).context >= AS_LONG * whole_context(of)


@lru_cache(maxsize=64)
def keeping_context(population: Population, max_model_len: int) -> Population:
    """The users with messages, or retrieved passages, so much longer that the mean context is the one asked for.

    What the limit cuts of the longest conversations is so made up for. A mean beyond the limit becomes the limit.
    """
    own = replace(population, asked_context=None)
    if max_model_len >= OPEN_END - 1 or not keeps_context(population, max_model_len):
        return own
    return _Longer(own, max_model_len, min(whole_context(own), max_model_len)).found()


class _Longer:
    """The same users with messages or passages so many times as long, in search of a mean context."""

    def __init__(self, own: Population, max_model_len: int, target: float) -> None:
        self._own, self._max_model_len, self._target = own, max_model_len, target
        self._of_passages = own.retrieved is not None and own.retrieved.mean_tokens() > 0
        self._misses: dict[float, float] = {}

    def found(self) -> Population:
        """With the least factor that meets the mean; where none does, with the one that comes nearest."""
        (step, steps), near, far = _OF_PASSAGES if self._of_passages else _OF_MESSAGES, 1.0, 1.0
        for _ in range(steps):
            if self._miss(far) >= -TOLERANCE:
                break
            near, far = far, far * step
        if near < far and self._miss(far) > TOLERANCE:
            self._search(math.log(near), math.log(far))
        return self._longer(min(self._misses, key=lambda factor: (abs(self._misses[factor]), factor)))

    def _longer(self, factor: float) -> Population:
        own, retrieved = self._own, self._own.retrieved
        if factor == 1:
            return own
        if not self._of_passages or retrieved is None:
            return replace(own, user_tokens=scaled(own.user_tokens, factor))
        tokens = min(round(retrieved.chunk_tokens * factor), self._max_model_len)
        return replace(own, retrieved=replace(retrieved, chunk_tokens=tokens))

    def _miss(self, factor: float) -> float:
        """Logarithm of the mean context over the one in search."""
        if factor not in self._misses:
            mean = equilibrium(self._longer(factor), self._max_model_len).context
            self._misses[factor] = math.log(mean / self._target)
        return self._misses[factor]

    def _search(self, low: float, high: float) -> None:
        """Between logarithms of factors."""
        import scipy.optimize  # noqa: PLC0415  a report of a kept answer needs none of it

        scipy.optimize.brentq(lambda factor: self._miss(math.exp(factor)), low, high, xtol=TOLERANCE / 4)
