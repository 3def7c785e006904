"""Small numbers for large ids."""

from typing import Final

import numpy as np

from workloads.kernels import entry_point
from workloads.requests import Int32Array, IntArray

_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio: ids that follow each other lie apart
_HIGH: Final = np.uint64(32)


def numbered(ids: IntArray) -> Int32Array:
    """[n] 0, 1, … for the ids, in the order in which each first appears."""
    found = np.empty(len(ids), np.int32)
    _number(ids, np.full(2 << max(len(ids), 1).bit_length(), -1, np.int32), found)
    return found


@entry_point
def _number(ids: IntArray, places: Int32Array, found: Int32Array) -> None:
    """`places` is a hash table of each id's first place, with linear probing; its length is a power of 2."""
    mask, count = len(places) - 1, 0
    for place in range(len(ids)):
        slot = np.int64((np.uint64(ids[place]) * _SPREAD) >> _HIGH) & mask
        while places[slot] >= 0 and ids[places[slot]] != ids[place]:
            slot = (slot + 1) & mask
        if places[slot] < 0:
            places[slot] = place
            found[place] = count
            count += 1
        else:
            found[place] = found[places[slot]]
