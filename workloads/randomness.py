"""One independent random stream per purpose."""

from functools import lru_cache
from typing import Any, Final

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
    "patience": 10,
    "backoff": 11,
    "tenant": 12,
}


FloatArray = npt.NDArray[np.float64]
_NUM_KEPT: Final = 128
_POOL, _MASK = 4, 0xFFFFFFFF  # of a SeedSequence: words of 32 bits
_KEYS: Final = 64  # streams whose keys are found at once


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


def first_uniforms(count: int, seed: int, purpose: str, *index: int) -> FloatArray:
    """The first numbers of a stream, read-only where they are few."""
    if count > _NUM_KEPT:
        return stream(seed, purpose, *index).random(count)
    return _kept_uniforms(seed, purpose, *index)[:count]


def uniform_rows(count: int, seed: int, purpose: str, rows: range, *index: int) -> FloatArray:
    """[rows, count] the first numbers of the streams (row, *index), as `first_uniforms` gives them."""
    if count <= _NUM_KEPT:
        return np.array([_kept_uniforms(seed, purpose, row, *index)[:count] for row in rows])
    found = np.empty((len(rows), count))
    bits = np.random.Philox(0)
    generator, state = np.random.Generator(bits), bits.state
    for row, numbers in zip(rows, found, strict=True):
        state["state"]["key"] = _keys(seed, purpose, index, row // _KEYS)[row % _KEYS]
        bits.state = state
        generator.random(out=numbers)
    return found


@lru_cache(maxsize=2**12)  # 4 MiB
def _keys(seed: int, purpose: str, index: tuple[int, ...], block: int) -> npt.NDArray[np.uint64]:
    """[_KEYS, 2] keys of the Philox generators of streams: what numpy's SeedSequence makes, for many at once.

    Constants and steps are those of numpy/random/bit_generator.pyx; opening a stream takes ten times as long.
    """
    words = [checked_seed(seed) >> 32 * place & _MASK for place in range(max(-(-seed.bit_length() // 32), _POOL))]
    hashed = _Hash(0x43B0D7E5, 0x931E8875)
    pool: list[Any] = [hashed(word) for word in words[:_POOL]]
    for source in range(_POOL):
        for place in range(_POOL):
            if place != source:
                pool[place] = _mixed(pool[place], hashed(pool[source]))
    rows = np.arange(block * _KEYS, (block + 1) * _KEYS, dtype=np.uint64)
    for word in (*words[_POOL:], _PURPOSES[purpose], rows, *index):
        pool = [_mixed(each, hashed(word)) for each in pool]
    final = _Hash(0x8B51F9DD, 0x58F38DED)
    low, high, low_2, high_2 = (final(each) for each in pool)
    return np.stack([low | high << np.uint64(32), low_2 | high_2 << np.uint64(32)], axis=1)


def mixed_words(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Each word's bits spread over all of it (splitmix64's finalizer)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def hashed_uniforms(seed: int, purpose: str, *index: Any) -> FloatArray:
    """Numbers in [0, 1), each of which depends on (seed, purpose) and its own `index` alone, arrays of whole numbers.

    For what few rows need: unlike a stream, nothing else has to be drawn.
    """
    found = mixed_words(np.array([checked_seed(seed) % 2**64], np.uint64))
    for part in (_PURPOSES[purpose], *index):
        found = mixed_words(found * np.uint64(0x9E3779B97F4A7C15) + np.asarray(part).astype(np.uint64))
    return (found >> np.uint64(11)).astype(np.float64) * 2.0**-53


class _Hash:
    """SeedSequence's hash of 32-bit words, whose multiplier changes at each call."""

    def __init__(self, start: int, factor: int) -> None:
        self._constant, self._factor = start, factor

    def __call__(self, word: Any) -> Any:
        word = word ^ self._constant
        self._constant = self._constant * self._factor & _MASK
        word = word * self._constant & _MASK
        return word ^ word >> 16


def _mixed(one: Any, other: Any) -> Any:
    mixed = (0xCA01F9DD * one - 0x4973F715 * other) & _MASK
    return mixed ^ mixed >> 16


@lru_cache(maxsize=2**15)  # 32 MiB at most
def _kept_uniforms(seed: int, purpose: str, *index: int) -> FloatArray:
    """A search draws the same users for every size, and opening a stream takes longer than drawing a few hundred."""
    uniforms = stream(seed, purpose, *index).random(_NUM_KEPT)
    uniforms.flags.writeable = False
    return uniforms
