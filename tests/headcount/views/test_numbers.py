"""Numbers as people read them."""

import pytest

from headcount.text.units import change, signed
from headcount.text.words import ratio_text
from simulator.study.statistics import Interval


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(40.2, 0, "+40"), (-0.3, 0, "0"), (0.3, 0, "+0"), (-0.04, 1, "0.0"), (-0.06, 1, "-0.1"), (-1234.0, 0, "-1,234")],
)
def test_what_rounds_to_zero_from_below_has_no_sign(value: float, digits: int, text: str) -> None:
    assert signed(value, digits) == text


def test_no_ratio_is_minus_zero_percent() -> None:
    assert ratio_text(Interval(0.998, 0.97, 1.02)) == "0 % (-3 to +2)"
    assert ratio_text(Interval(1.05, 0.999, 1.1)) == "+5 % (0 to +10)"
    assert change(-0.0004) == "0%"
