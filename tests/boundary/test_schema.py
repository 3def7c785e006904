"""Values of files as types: what is wrong is told with its place, what stands there and what is allowed."""

import math
from typing import Any

import pytest
from msgspec import field

from boundary.files import InputError
from boundary.schema import Number, Positive, Strict, typed


class Spread(Strict):
    mean: Positive
    sd: Number = 1.0


class Table(Strict):
    turns: Spread | float
    names: tuple[str, ...] = ()
    ranges: dict[str, Number] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"turns": {"mean": math.nan}}, "f.toml: turns.mean is nan; it must be a number above 0"),
        ({"turns": {"mean": math.inf}}, "f.toml: turns.mean is inf; it must be a number above 0"),
        ({"turns": {"mean": True}}, "f.toml: turns.mean is true; it must be a number above 0"),
        ({"turns": {"mean": 10**5000}}, "f.toml: turns.mean is a number of thousands of digits; it must be"
         " a number above 0"),
        ({"turns": {"mena": 3}}, "f.toml: no key 'mena' in turns; did you mean 'mean'?"),
        ({"turns": {}}, "f.toml: turns: 'mean' is missing; give it"),
        ({"turns": "x"}, "f.toml: turns is 'x'; it must be a number or a table"),
        ({"turns": 1, "names": ["a", 3]}, "f.toml: names[2] is 3; it must be text"),
        ({"turns": 1, "names": None}, "f.toml: names is nothing; it must be a list"),
        ({"turns": 1, "ranges": {"a": "b"}}, "f.toml: ranges holds a value that is none; each must be a finite number"),
        ({"turnz": 1}, "f.toml: no key 'turnz'; did you mean 'turns'?"),
        (3, "f.toml: it is 3; it must be a table"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_told_with_place_and_what_is_allowed(value: Any, told: str) -> None:
    with pytest.raises(InputError) as error:
        typed(value, Table, "f.toml")
    assert str(error.value) == told


def test_a_right_value_becomes_its_type() -> None:
    assert typed({"turns": {"mean": 3}}, Table, "f.toml") == Table(turns=Spread(mean=3.0))
