"""One independent random stream per purpose."""

from __future__ import annotations

from typing import Final

import numpy as np

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
}


def stream(seed: int, purpose: str, *index: int) -> np.random.Generator:
    """The random stream of one purpose, independent of every other purpose, index and seed.

    The k-th number of a stream depends on (seed, purpose, index, k) alone, so that two what-ifs share what they can.
    """
    key = (_PURPOSES[purpose], *index)
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=key)))
