"""Values of files as types: what is wrong is told with its place, what stands there and what is allowed."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from msgspec import field

from files.reading import InputError
from files.schema import AtLeastOne, Number, Positive, Strict, table, typed

Mode = Literal["fast", "steady"]


@dataclass(frozen=True, kw_only=True)
class Machine:
    name: str
    cores: AtLeastOne
    memory_gib: Positive = 1.0

    def __post_init__(self) -> None:
        if self.cores > self.memory_gib * 64:
            raise ValueError("more cores than its memory can feed; correct one")


class Spread(Strict):
    mean: Positive
    sd: Number = 1.0


class Table(Strict):
    turns: Spread | Positive
    names: tuple[str, ...] = ()
    ranges: dict[str, Number] = field(default_factory=dict)
    modes: tuple[Mode, ...] = ()
    shares: dict[Mode, Number] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"turns": {"mean": math.nan}}, "f.toml: turns.mean is nan; it must be a number above 0"),
        ({"turns": {"mean": math.inf}}, "f.toml: turns.mean is inf; it must be a number above 0, at most 1e+15"),
        ({"turns": {"mean": True}}, "f.toml: turns.mean is true; it must be a number above 0"),
        ({"turns": {"mean": 10**5000}}, "f.toml: turns.mean is a number of thousands of digits; it must be"
         " a number above 0"),
        ({"turns": {"mena": 3}}, "f.toml: no key 'mena' in turns; did you mean 'mean'?"),
        ({"turns": {}}, "f.toml: turns: 'mean' is missing; give it"),
        ({"turns": "x"}, "f.toml: turns is 'x'; it must be a number or a table"),
        ({"turns": 1, "names": ["a", 3]}, "f.toml: names[2] is 3; it must be text"),
        ({"turns": 1, "names": None}, "f.toml: names is nothing; it must be a list"),
        ({"turns": 1, "ranges": {"a": "b"}}, "f.toml: ranges.a is 'b'; it must be a finite number"),
        ({"turns": 1, "ranges": {**dict.fromkeys("abcdefg", 1.0), "h": {}}},
         "f.toml: ranges.h is a table; it must be a finite number"),
        ({"turns": 1, "modes": ["slow"]}, "f.toml: modes[1] is 'slow'; it must be one of fast, steady"),
        ({"turns": 1, "shares": {"stedy": 1}}, "f.toml: no key 'stedy' in shares; did you mean 'steady'?"),
        ({"turns": 1e300}, "f.toml: turns is 1e+300; it must be a number above 0, at most 1e+15"),
        ({"turnz": 1}, "f.toml: no key 'turnz'; did you mean 'turns'?"),
        (3, "f.toml: it is 3; it must be a table"),
        ({"turns": {"mean": 1.0, 3: 4}}, "f.toml: turns has the key 3; a key must be text"),
        ({"turns": 1, "ranges": {True: 1.0}}, "f.toml: ranges has the key true; a key must be text"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_told_with_place_and_what_is_allowed(value: Any, told: str) -> None:
    with pytest.raises(InputError) as error:
        typed(value, Table, "f.toml")
    assert str(error.value) == told


def test_a_right_value_becomes_its_type() -> None:
    assert typed({"turns": {"mean": 3}}, Table, "f.toml") == Table(turns=Spread(mean=3.0))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"cores": 0}, "m.toml: cores is 0; it must be a whole number, at least 1"),
        ({"cores": "2"}, "m.toml: cores is '2'; it must be a whole number, at least 1"),
        ({"core": 2}, "m.toml: no key 'core'; did you mean 'cores'?"),
        ({"cores": 2, "name": "b"}, "m.toml: no key 'name'; known: cores, memory_gib"),
        ({}, "m.toml: 'cores' is missing; give it"),
        ({"cores": 1000}, "m.toml: more cores than its memory can feed; correct one"),
    ],
)
def test_a_file_that_somebody_writes_becomes_a_dataclass_or_is_told(content: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as error:
        table(content, Machine, "m.toml", name="a")
    assert str(error.value) == told
    assert table({"cores": 2}, Machine, "m.toml", name="a") == Machine(name="a", cores=2)
