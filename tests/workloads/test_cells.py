"""Cells that are read many at once: the same as one by one."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.reading import InputError
from workloads.formats.parsing.cells import Cells, read_number
from workloads.formats.parsing.dates import nanoseconds, read_nanoseconds
from workloads.requests import OPEN_END

clocks = st.datetimes().map(lambda time: time.isoformat(" "))
dates = st.builds(
    "{}{}{}".format,
    st.one_of(clocks, clocks.map(lambda text: text.replace(" ", "T")), st.just("2023-11-16 18:15:46")),
    st.one_of(st.just(""), st.from_regex(r"\.[0-9]{1,12}", fullmatch=True)),
    st.sampled_from(["", "Z", "+00:00", "-05:30", "+0200", "+02", " UTC", " GMT"]),
)
damaged = st.builds(lambda text, at: text[:at] + text[at + 1 :], dates, st.integers(0, 25))
others = st.sampled_from(["", "now", "NaT", "2023", "20231116T181546", "2023-11-16", "10/Oct/2025:13:55:36 +0200", "٣"])
numbers = st.one_of(
    st.floats().map(repr), st.integers(-9, 2**40).map(str), st.text(max_size=4), st.sampled_from(["1_0", "٣", "1e3"])
)


def cells(texts: list[str]) -> Cells:
    return Cells(path=Path("a.csv"), name="x", column=np.array(texts, object), lines=range(2, 2 + len(texts)))


@given(st.lists(st.one_of(dates, damaged, others), min_size=1))
def test_dates_many_at_once_are_the_same_as_one_by_one(texts: list[str]) -> None:
    expected = [read_nanoseconds(text) for text in texts]
    assert nanoseconds(texts)[0].tolist() == [-1 if value is None else value for value in expected]


def read_tokens(text: str) -> float | None:
    value = read_number(text)
    return value if value is not None and value == int(value) and 1 <= value < OPEN_END else None


@given(st.lists(numbers, min_size=1))
def test_numbers_many_at_once_are_the_same_as_one_by_one(texts: list[str]) -> None:
    for read, read_one in ((Cells.numbers, read_number), (Cells.tokens, read_tokens)):
        expected = [read_one(text.strip()) for text in texts]
        if None in expected:
            with pytest.raises(InputError, match=rf"a\.csv, line {2 + expected.index(None)}: x is "):
                read(cells(texts))
        else:
            assert read(cells(texts)).tolist() == expected
