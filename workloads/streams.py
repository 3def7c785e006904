"""The first numbers of many random streams at once: numpy's SeedSequence and Philox, compiled, bit for bit."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from files.compiling.kernels import intrinsic, kernel
from workloads.kernels import entry_point
from workloads.requests import FloatArray, IntArray

Keys = npt.NDArray[np.uint64]
Words = npt.NDArray[np.uint64]  # of 32 bits each
NUMBERS_AT_ONCE: Final = 4  # a block: what Philox makes of one counter
_POOL: Final = 4  # of a SeedSequence: words of 32 bits
_11, _16, _32, _MASK = np.uint64(11), np.uint64(16), np.uint64(32), np.uint64(0xFFFFFFFF)
# numpy/random/bit_generator.pyx
_FIRST, _FIRST_FACTOR = np.uint64(0x43B0D7E5), np.uint64(0x931E8875)
_LAST, _LAST_FACTOR = np.uint64(0x8B51F9DD), np.uint64(0x58F38DED)
_MIX_LEFT, _MIX_RIGHT = np.uint64(0xCA01F9DD), np.uint64(0x4973F715)
# numpy/random/src/philox/philox.h
_ROUNDS: Final = 10
_MULTIPLY_0, _MULTIPLY_2 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_BUMP_0, _BUMP_1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)


def _python_product(one: np.uint64, other: np.uint64) -> tuple[np.uint64, np.uint64]:
    product = int(one) * int(other)
    return np.uint64(product >> 64), np.uint64(product & 0xFFFFFFFFFFFFFFFF)


def _product_of_numba() -> Callable[..., Any]:
    from workloads.product import product  # noqa: PLC0415  numba, where something is compiled

    return product


_product = intrinsic(_product_of_numba, _python_product)
"""The upper and the lower 64 bits of a product."""


def stream_keys(words: Sequence[int], place: int, rows: range) -> Keys:
    """[rows, 2] keys of the Philox generators of numpy's SeedSequences of these words, each of 32 bits.

    At `place` of the words stands the row.
    """
    keys = np.empty((len(rows), 2), np.uint64)
    _fill_keys(np.array(words, np.uint64), place, np.array(rows, np.uint64), np.empty(_POOL, np.uint64), keys)
    return keys


def first_numbers(keys: Keys, blocks: IntArray) -> FloatArray:
    """[4 * blocks, keys] numbers in [0, 1): the four of each of these blocks of each stream, from block 0 on."""
    found = np.empty((NUMBERS_AT_ONCE * len(blocks), len(keys)))
    _fill_numbers(keys, blocks, found)
    return found


@kernel
def _hashed(word: np.uint64, constant: np.uint64, factor: np.uint64) -> np.uint64:
    """A word of 32 bits, hashed; `constant` is `factor` to the power of the words hashed before, times the first."""
    word = (word ^ constant) * (constant * factor & _MASK) & _MASK
    return word ^ word >> _16


@kernel
def _mixed(one: np.uint64, other: np.uint64) -> np.uint64:
    mixed = (_MIX_LEFT * one - _MIX_RIGHT * other) & _MASK
    return mixed ^ mixed >> _16


@entry_point
def _fill_keys(words: Words, place: int, rows: Words, pool: Words, keys: Keys) -> None:
    for at in range(len(rows)):
        words[place] = rows[at]
        _mix_into(pool, words)
        constant = _LAST
        for word in range(_POOL):
            pool[word] = _hashed(pool[word], constant, _LAST_FACTOR)
            constant = constant * _LAST_FACTOR & _MASK
        keys[at, 0] = pool[0] | pool[1] << _32
        keys[at, 1] = pool[2] | pool[3] << _32


@kernel
def _mix_into(pool: Words, words: Words) -> None:
    constant = _FIRST
    for at in range(_POOL):
        pool[at] = _hashed(words[at], constant, _FIRST_FACTOR)
        constant = constant * _FIRST_FACTOR & _MASK
    for source in range(_POOL):
        for at in range(_POOL):
            if at != source:
                pool[at] = _mixed(pool[at], _hashed(pool[source], constant, _FIRST_FACTOR))
                constant = constant * _FIRST_FACTOR & _MASK
    for more in range(_POOL, len(words)):
        for at in range(_POOL):
            pool[at] = _mixed(pool[at], _hashed(words[more], constant, _FIRST_FACTOR))
            constant = constant * _FIRST_FACTOR & _MASK


@entry_point
def _fill_numbers(keys: Keys, blocks: IntArray, found: FloatArray) -> None:
    for place in range(len(blocks)):
        first = NUMBERS_AT_ONCE * place
        for row in range(len(keys)):
            one, two, three, four = next_numbers(blocks[place], keys[row, 0], keys[row, 1])
            found[first, row] = one
            found[first + 1, row] = two
            found[first + 2, row] = three
            found[first + 3, row] = four


@kernel
def next_numbers(block: int, key_0: np.uint64, key_1: np.uint64) -> tuple[float, float, float, float]:
    """Four numbers in [0, 1) of a stream, after four for each block before: Philox 4x64-10 (Salmon et al., SC 2011)."""
    at_0, at_1, at_2, at_3 = np.uint64(block + 1), np.uint64(0), np.uint64(0), np.uint64(0)
    for _ in range(_ROUNDS):
        high_0, low_0 = _product(_MULTIPLY_0, at_0)
        high_2, low_2 = _product(_MULTIPLY_2, at_2)
        at_0, at_1, at_2, at_3 = high_2 ^ at_1 ^ key_0, low_2, high_0 ^ at_3 ^ key_1, low_0
        key_0 += _BUMP_0
        key_1 += _BUMP_1
    return _share(at_0), _share(at_1), _share(at_2), _share(at_3)


@kernel
def _share(word: np.uint64) -> float:
    return np.int64(word >> _11) * 2.0**-53
