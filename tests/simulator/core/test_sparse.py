"""What a run does not touch costs no memory."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from simulator.core import layout, sparse
from simulator.results import request_times

ROWS, LONG = 2_000, 16_384  # 131 MB, of which the first word of each row is used: 8 MB of pages


def _resident_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])


@pytest.mark.skipif(sys.platform != "linux", reason="huge pages are refused on Linux alone")
def test_rows_of_which_little_is_used_take_little() -> None:
    before = _resident_bytes()
    found = sparse.zeros((ROWS, LONG), np.int32)
    found[:, 0] = 1
    assert _resident_bytes() - before < 30e6
    assert found.sum() == ROWS


@pytest.mark.skipif(sys.platform != "linux", reason="what is not touched is not counted on Linux alone")
def test_an_array_may_be_larger_than_the_machine_s_memory() -> None:
    found = sparse.zeros((2**16, 2**24), np.int32)  # 4 TB
    found[-1, -1] = 1
    assert found[0, 0] == 0 and found[-1, -1] == 1


def test_no_rows_are_an_array_too() -> None:
    assert sparse.zeros((0, 8), np.int32).shape == (0, 8)


def test_latencies_of_requests_do_not_keep_all_that_was_known_of_them() -> None:
    times = request_times(np.zeros(10, layout.REQUEST))
    assert all(getattr(times, name).base is None for name in times.__dataclass_fields__)
