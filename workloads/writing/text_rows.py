"""Rows of numbers as text, made many at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from files.compiling.dispatchers import compiled
from workloads.requests import Int32Array, IntArray

_ROWS_AT_ONCE = 8_000  # whose text stays in a processor's own cache
_MOST_DIGITS = 19  # of an int64
_ONE, _TEN, _ZERO = np.uint64(1), np.uint64(10), np.uint64(ord("0"))  # dividing is quicker where nothing is below 0
_BETWEEN = ord(",")


@dataclass(frozen=True)
class Numbers:
    """Whole numbers from 0 on, one per row, with zeros in front up to `width` digits."""

    values: IntArray | Int32Array
    width: int = 1


@dataclass(frozen=True)
class Lists:
    """Whole numbers from 0 on, several per row with commas between: row i has values[start[i]:start[i + 1]]."""

    values: IntArray
    start: IntArray


@dataclass(frozen=True)
class Choice:
    """One of some texts per row, by its place among them."""

    texts: tuple[bytes, ...]
    which: IntArray

    @property
    def characters(self) -> Lists:
        """All rows' characters."""
        each = [np.frombuffer(text, np.uint8) for text in self.texts]
        length = np.array([len(text) for text in self.texts])[self.which]
        before = np.concatenate([[0], np.cumsum(length)])
        first = np.cumsum([0, *(len(text) for text in self.texts)])[self.which]
        place = np.repeat(first - before[:-1], length) + np.arange(before[-1])
        return Lists(np.concatenate(each).astype(np.int64)[place], before)


Text = npt.NDArray[np.uint8]
Piece = bytes | Numbers | Lists | Choice


def write_rows(path: Path, num_rows: int, pieces: Callable[[slice], Sequence[Piece]], head: bytes = b"") -> None:
    """Write each row as its pieces one after the other; `pieces` makes those of some rows."""
    text = np.empty(0, np.uint8)
    with path.open("wb") as file:
        file.write(head)
        for start in range(0, num_rows, _ROWS_AT_ONCE):
            rows = slice(start, min(start + _ROWS_AT_ONCE, num_rows))
            text, length = _text(rows.stop - rows.start, pieces(rows), text)
            file.write(text[:length].data)


def _text(num_rows: int, pieces: Sequence[Piece], text: Text) -> tuple[Text, int]:
    """Fill a text in, from its beginning, or a longer one where it is too short; and its length."""
    literals, ends, columns, starts, widths = bytearray(), [], list[Any](), list[IntArray](), list[int]()
    for piece in pieces:
        if isinstance(piece, bytes):
            literals += piece
            continue
        several = piece.characters if isinstance(piece, Choice) else piece
        ends.append(len(literals))
        columns.append(several.values)
        starts.append(several.start if isinstance(several, Lists) else np.arange(num_rows + 1))
        widths.append(several.width if isinstance(several, Numbers) else 0 if isinstance(piece, Choice) else 1)
    offsets = np.cumsum([0, *(len(column) for column in columns)])
    most = num_rows * len(literals) + sum(
        len(c) * (max(w, _MOST_DIGITS) + 1) for c, w in zip(columns, widths, strict=True)
    )
    text = text if most <= len(text) else np.empty(most, np.uint8)
    length = _fill(
        text,
        np.frombuffer(bytes(literals), np.uint8),
        np.asarray([*ends, len(literals)]),
        np.concatenate(columns, dtype=np.int64),
        np.stack([start + offset for start, offset in zip(starts, offsets, strict=False)], dtype=np.int64),
        np.asarray(widths),
    )
    return text, length


@compiled
def _fill(  # noqa: PLR0917  numba takes arrays one by one
    text: Text, literals: npt.NDArray[np.generic], ends: IntArray, values: IntArray, starts: IntArray,
    widths: IntArray,
) -> int:  # fmt: skip
    """Fill in the text; its length. Digits are written from the last; of width 0 are characters.

    Places are unsigned: numba looks at every signed one whether it counts from an array's end.
    """
    at, begins = np.uint64(0), starts.astype(np.uint64)
    for row in range(starts.shape[1] - 1):
        before = np.uint64(0)
        for column in range(len(ends)):
            end = np.uint64(ends[column])
            while before < end:
                text[at] = literals[before]
                at, before = at + _ONE, before + _ONE
            if column == len(widths):
                continue
            width, first = widths[column], begins[column, row]
            for place in range(first, begins[column, row + 1]):
                if width == 0:
                    text[at] = values[place]
                    at += _ONE
                    continue
                if place > first:
                    text[at] = _BETWEEN
                    at += _ONE
                value, digits, bound = np.uint64(values[place]), width, _TEN
                for _ in range(1, width):
                    bound *= _TEN
                while digits < _MOST_DIGITS and value >= bound:
                    digits += 1
                    bound *= _TEN
                at += np.uint64(digits)
                digit = at
                for _ in range(digits):
                    rest = value // _TEN
                    digit -= _ONE
                    text[digit] = _ZERO + value - rest * _TEN
                    value = rest
    return int(at)
