"""One independent random stream per purpose."""

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from files.reading import InputError

if TYPE_CHECKING:
    from workloads.streams import Keys

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
    "prefixes": 13,
    "adapter": 14,
}


FloatArray = npt.NDArray[np.float64]
_WORD_BITS, _FEWEST_WORDS = 32, 4  # of a seed, as numpy's SeedSequence has it


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


def keys_of_rows(seed: int, purpose: str, rows: range, *index: int) -> "Keys":
    """[rows, 2] what opens the streams (row, *index)."""
    from workloads.streams import stream_keys  # noqa: PLC0415  the compiler, where users are drawn

    size = max(-(-checked_seed(seed).bit_length() // _WORD_BITS), _FEWEST_WORDS)
    words = [seed >> _WORD_BITS * place & 2**_WORD_BITS - 1 for place in range(size)]
    return stream_keys([*words, _PURPOSES[purpose], 0, *index], size + 1, rows)


def uniform_rows(count: int, seed: int, purpose: str, rows: range, *index: int) -> FloatArray:
    """[rows, count] the first numbers of the streams (row, *index), as `stream` gives them one by one."""
    from workloads.streams import NUMBERS_AT_ONCE, first_numbers  # noqa: PLC0415  the compiler, where users are drawn

    blocks = np.arange(-(-count // NUMBERS_AT_ONCE))
    numbers = first_numbers(keys_of_rows(seed, purpose, rows, *index), blocks)
    return np.ascontiguousarray(numbers[:count].T)


def mixed_words(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Each word's bits spread over all of it (splitmix64's finalizer)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def hashed_uniforms(seed: int, purpose: str, *index: object) -> FloatArray:
    """Numbers in [0, 1), each of which depends on (seed, purpose) and its own `index` alone, arrays of whole numbers.

    For what few rows need: unlike a stream, nothing else has to be drawn.
    """
    found = mixed_words(np.array([checked_seed(seed) % 2**64], np.uint64))
    for part in (_PURPOSES[purpose], *index):
        found = mixed_words(found * np.uint64(0x9E3779B97F4A7C15) + np.asarray(part).astype(np.uint64))
    return (found >> np.uint64(11)).astype(np.float64) * 2.0**-53
