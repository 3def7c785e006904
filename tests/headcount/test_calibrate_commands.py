"""What `headcount calibrate` says of input that it cannot use."""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["check-scheduler", "--python", "/nowhere/python"], "/nowhere/python"),
        (["check-scheduler", "--cases", "0"], "'0' is not a whole number of at least 1"),
    ],
)
def test_a_wrong_argument_is_told(headcount: Callable[..., Any], arguments: list[str], told: str) -> None:
    ran = headcount("calibrate", *arguments)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert told in ran.err
