"""Rows of numbers as text, made many at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from boundary.kept.kernel_cache import compiled
from workloads.requests import Int32Array, IntArray

_ROWS_AT_ONCE = 50_000  # whose text is small enough for its memory to be used again
_MOST_DIGITS = 19  # of an int64
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


Piece = bytes | Numbers | Lists | Choice


def write_rows(path: Path, num_rows: int, pieces: Callable[[slice], Sequence[Piece]], head: bytes = b"") -> None:
    """Write each row as its pieces one after the other; `pieces` makes those of some rows."""
    with path.open("wb") as file:
        file.write(head)
        for start in range(0, num_rows, _ROWS_AT_ONCE):
            rows = slice(start, min(start + _ROWS_AT_ONCE, num_rows))
            file.write(_text(rows.stop - rows.start, pieces(rows)))


def _text(num_rows: int, pieces: Sequence[Piece]) -> memoryview:
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
    text = np.empty(most, np.uint8)
    length = _fill(
        text,
        np.frombuffer(bytes(literals), np.uint8),
        np.asarray([*ends, len(literals)]),
        np.concatenate(columns).astype(np.int64),
        np.stack([start + offset for start, offset in zip(starts, offsets, strict=False)]).astype(np.int64),
        np.asarray(widths),
    )
    return text[:length].data


@compiled
def _fill(  # noqa: PLR0917  numba takes arrays one by one
    text: npt.NDArray[np.uint8], literals: npt.NDArray[Any], ends: IntArray, values: IntArray, starts: IntArray,
    widths: IntArray,
) -> int:  # fmt: skip
    """Fill in the text; its length. Digits are written from the last; of width 0 are characters."""
    at = 0
    for row in range(starts.shape[1] - 1):
        before = 0
        for column in range(len(ends)):
            for place in range(before, ends[column]):
                text[at] = literals[place]
                at += 1
            before = ends[column]
            if column == len(widths):
                continue
            for place in range(starts[column, row], starts[column, row + 1]):
                if widths[column] == 0:
                    text[at] = values[place]
                    at += 1
                    continue
                if place > starts[column, row]:
                    text[at] = _BETWEEN
                    at += 1
                value, digits = values[place], 1
                bound = 10
                while digits < widths[column] or (digits < _MOST_DIGITS - 1 and value >= bound):
                    digits += 1
                    bound *= 10
                for digit in range(digits - 1, -1, -1):
                    text[at + digit] = 48 + value % 10
                    value //= 10
                at += digits
    return at
