"""What Python code hands over is of the types that the signature says, or is told by name."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from boundary.arguments import check_argument


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (3, int), (np.int64(3), int), (3, float), (np.float64(0.5), float), (float("inf"), float), (True, bool),
        ("a", str), (Path("a"), str | Path), (None, int | None), ([1, 2], Sequence[int]), ((), tuple[int, ...]),
        (np.array([1, 2]), Sequence[int]), (("a", 1), tuple[str, int]), ({"a": 1}, Mapping[str, Any]),
        (print, Callable[..., Any]), (int, str | Callable[[int], Any]), (np.zeros(2), NDArray[np.float64]), ([], Any),
    ],
)  # fmt: skip
def test_a_right_value_passes(value: object, hint: Any) -> None:
    check_argument("it", value, hint)


@pytest.mark.parametrize(
    ("value", "hint", "told"),
    [
        ("x", int, "seed is 'x'; it must be a whole number"),
        (True, int, "seed is True; it must be a whole number"),
        (1.0, int, "seed is 1.0; it must be a whole number"),
        (float("nan"), float, "seed is nan; it must be a number"),
        (3, bool, "seed is 3; it must be True or False"),
        ("ab", Sequence[str], "seed is 'ab'; it must be a list, each text"),
        ([1, "2"], Sequence[int], "seed is [1, '2']; it must be a list, each a whole number"),
        ("1s", float | None, "seed is '1s'; it must be a number or None"),
        ([1], NDArray[np.float64], "seed is [1]; it must be a ndarray"),
        ("x" * 1000, int, f"seed is '{'x' * 58}…; it must be a whole number"),
    ],
)
def test_a_wrong_value_is_told_by_name(value: object, hint: Any, told: str) -> None:
    with pytest.raises(ValueError) as error:
        check_argument("seed", value, hint)
    assert str(error.value) == told
