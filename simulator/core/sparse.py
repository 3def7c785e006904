"""Arrays of which a run touches little."""

import math
import mmap

import numpy as np
from numpy.typing import DTypeLike, NDArray

MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # which Python names from 3.13 on


def zeros(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[np.int32]:
    """Zeros that cost memory page by page as they are touched.

    NumPy asks for huge pages: where rows are long and their first words alone are used, these are 2 MB instead of
    4 KB a row (`tables` of 16 engines: 92 MB instead of 7). Nor is memory set aside for what is not touched: Linux
    refuses an array larger than the machine otherwise.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if not size or not hasattr(mmap, "MADV_NOHUGEPAGE"):  # Linux alone has it
        return np.zeros(shape, dtype)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | MAP_NORESERVE)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, dtype).reshape(shape)
