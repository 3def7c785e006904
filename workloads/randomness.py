"""One independent random stream per purpose."""

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from boundary.files import InputError

# The numbers key the streams: a purpose keeps its number for ever, so that results stay reproducible.
_PURPOSES: Final = {
    "arrivals": 0,
    "start": 1,
    "turns": 2,
    "user_tokens": 3,
    "output_tokens": 4,
    "think_time": 5,
    "history": 6,
    "window": 7,
    "retrieved": 8,
    "thinking": 9,
}


_NUM_KEPT: Final = 128


def stream(seed: int, purpose: str, *index: int) -> np.random.Generator:
    """The random stream of one purpose, independent of every other purpose, index and seed.

    The k-th number of a stream depends on (seed, purpose, index, k) alone, so that two what-ifs share what they can.
    """
    key = (_PURPOSES[purpose], *index)
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(checked_seed(seed), spawn_key=key)))


def checked_seed(seed: int) -> int:
    """The seed. Raises InputError for one below 0."""
    if seed < 0:
        raise InputError(f"seed is {seed}; it must be a whole number, at least 0")
    return seed


def first_uniforms(count: int, seed: int, purpose: str, *index: int) -> npt.NDArray[np.float64]:
    """The first numbers of a stream, read-only where they are few."""
    if count > _NUM_KEPT:
        return stream(seed, purpose, *index).random(count)
    return _kept_uniforms(seed, purpose, *index)[:count]


@lru_cache(maxsize=2**15)  # 32 MiB at most
def _kept_uniforms(seed: int, purpose: str, *index: int) -> npt.NDArray[np.float64]:
    """A search draws the same users for every size, and opening a stream takes longer than drawing a few hundred."""
    uniforms = stream(seed, purpose, *index).random(_NUM_KEPT)
    uniforms.flags.writeable = False
    return uniforms
