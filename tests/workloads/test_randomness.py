"""Random streams: many opened at once are those opened one by one."""

import numpy as np
import pytest

from files.reading import InputError
from workloads.randomness import stream, uniform_rows


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32, 2**64 + 5, 2**130 + 7, 2**160 - 1])
@pytest.mark.parametrize("count", [1, 128, 129, 1001])
@pytest.mark.parametrize("index", [(), (2,), (3, 4)])
def test_rows_are_the_streams_of_their_numbers(seed: int, count: int, index: tuple[int, ...]) -> None:
    rows = range(60, 70)
    found = uniform_rows(count, seed, "history", rows, *index)
    expected = [stream(seed, "history", row, *index).random(count) for row in rows]
    np.testing.assert_array_equal(found, expected)


def test_a_seed_below_0_is_refused() -> None:
    with pytest.raises(InputError, match="seed is -1; it must be a whole number, at least 0"):
        uniform_rows(500, -1, "turns", range(3))
