"""Cells of a column as numbers, dates or text; NumPy reads the numbers."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from files.names import shortened
from files.reading import InputError, shown
from workloads.formats.parsing.dates import A_DATE, ONE_ZONE, Zones, nanoseconds
from workloads.requests import OPEN_END, BoolArray, FloatArray, IntArray

MOST_NUMBER: Final = 1e15
A_NUMBER: Final = "a number, at least 0"
A_WHOLE: Final = "a whole number from -2,147,483,648 to 2,147,483,647"


@dataclass(frozen=True, kw_only=True)
class Cells:
    """One column of some rows. What is wrong raises InputError with its line."""

    path: Path
    name: str
    column: npt.NDArray[np.generic]
    """[n] text as it stands in the file, or what Parquet holds; None, NaN or NaT for nothing."""
    lines: Sequence[int]
    """[n] where the rows stand."""
    unit: str = "line"
    """What `lines` count."""

    def __len__(self) -> int:
        return len(self.column)

    def place(self, row: int) -> str:
        return f"{self.unit} {self.lines[row]}"

    def text(self, row: int) -> str:
        return _text(self.column[row])

    def texts(self) -> list[str]:
        try:
            return list(map(str.strip, self.column.tolist()))
        except TypeError:  # not all of it is text
            return list(map(_text, self.column.tolist()))

    def tokens(self, *, least: int = 1) -> IntArray:
        """Whole numbers of tokens."""
        found = self._floats()
        allowed = f"a whole number of tokens, at least {least}"
        self._require((found >= least) & (found < OPEN_END) & (found == np.floor(found)), allowed)
        return found.astype(np.int64)

    def numbers(self, *, may_lack: bool = False) -> FloatArray:
        """Finite numbers of at least 0; where they `may_lack`, an empty cell is NaN."""
        found = self._floats()
        is_right = (found >= 0) & (found <= MOST_NUMBER)
        if may_lack:
            is_right |= np.array([not text for text in self.texts()])
        self._require(is_right, A_NUMBER)
        return found

    def whole(self) -> IntArray:
        """Whole numbers of either sign."""
        found = [read_whole(text) for text in self.texts()]
        self._require(np.array([value is not None for value in found]), A_WHOLE)
        return np.array(found, np.int64)

    def nanoseconds(self, zones: Zones, *, may_lack: bool = False) -> IntArray:
        """Dates as nanoseconds since 1970, -1 for an empty cell."""
        if self.column.dtype.kind == "M":  # of Parquet, all of them in UTC
            found, is_empty = self.column.astype("M8[ns]").astype(np.int64), np.isnat(self.column)
            self._require((found >= 0) | (may_lack & is_empty), A_DATE)
            return np.where(is_empty, -1, found)
        texts = self.texts()
        found, has_zone = nanoseconds(texts)
        is_empty = np.array([may_lack and not text for text in texts])
        self._require((found >= 0) | is_empty, A_DATE)
        self._require(zones.are_alike(has_zone, is_empty) | is_empty, ONE_ZONE)
        return found

    def lists(self) -> list[list[int] | None]:
        """Whole numbers of each row, as Parquet holds them; None where a row has none."""
        found: list[list[int] | None] = self.column.tolist()
        for row, value in enumerate(found):
            if value is not None and not (isinstance(value, list) and all(isinstance(item, int) for item in value)):
                raise self.refuse(row, "a list of whole numbers")
        return found

    def _floats(self) -> FloatArray:
        """NaN where a cell is no number; Python's own digits are ASCII's here, without underscores."""
        with suppress(TypeError, ValueError):  # one by one, below
            text = "".join(self.column.tolist()) if self.column.dtype == object else ""
            if text.isascii() and "_" not in text:
                return self.column.astype(np.float64)
        found = [read_number(text) for text in self.texts()]
        return np.array([math.nan if value is None else value for value in found])

    def _require(self, is_right: BoolArray, allowed: str) -> None:
        if not is_right.all():
            raise self.refuse(int(np.argmin(is_right)), allowed)

    def refuse(self, row: int, allowed: str) -> InputError:
        found = self.text(row)
        value = repr(shortened(found)) if found else "empty"
        return InputError(f"{shown(self.path)}, {self.place(row)}: {self.name} is {value}; it must be {allowed}")


def _text(value: object) -> str:
    """As it would stand in a CSV file."""
    return value.strip() if isinstance(value, str) else "" if value is None or value != value else str(value)  # noqa: PLR0124


def read_number(text: str) -> float | None:
    """A finite number of at least 0, else None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= MOST_NUMBER and text.isascii() and "_" not in text else None


def read_whole(text: str) -> int | None:
    """A whole number of 32 bits, 0 where there is no text, else None."""
    if not text:
        return 0
    try:
        value = int(text.removesuffix(".0"))
    except ValueError:
        return None
    return value if -(2**31) <= value < 2**31 else None
