"""Rows of a CSV file with a header, block by block, whatever the file's size."""

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from files.names import one_line, shortened
from files.reading import InputError, shown, text_blocks, text_lines
from workloads.formats.parsing.cells import MARGIN, Bytes, Cells
from workloads.requests import IntArray

BLANK_LINE = "is empty; only the end of the file may have empty lines"
_COMMA, _NEWLINE, _RETURN = b",\n\r"


def column_names(header: str) -> list[str]:
    """The names in a line of CSV; none where it is no such line."""
    try:
        return [name.strip() for name in next(csv.reader([header.lstrip("\ufeff").replace("\r", "")]), [])]
    except csv.Error:
        return []


def first_names(head: str) -> list[str]:
    """The names of the columns, from a file's beginning; none where it is no CSV."""
    line = head.partition("\n")[0]
    return [] if line.lstrip("\ufeff \t")[:1] in ("{", "[") else column_names(line)


def header_of(path: Path) -> list[str]:
    """The names of a file's columns."""
    with text_lines(path) as file:
        return column_names(file.readline())


def csv_rows(path: Path, needed: Sequence[str], wanted: Callable[[], float]) -> Iterator[dict[str, Cells]]:
    """The rows of the file, some 100,000 at once; columns go by name, in any order, among any others.

    `wanted` says how many more rows are wanted; what comes after them is not looked at. Raises InputError.
    """
    names: list[str] = []
    line, blank_line = 1, 0
    for read in text_blocks(path):
        block = read
        if not names:
            header, _, block = block.removeprefix(b"\xef\xbb\xbf").partition(b"\n")
            names = _checked_header(path, column_names(header.decode()), needed)
            line = 2
        while block and wanted() > 0:
            piece, block = _split(block, wanted())
            rows = piece.rstrip(b"\r\n ")
            if rows and blank_line:
                raise InputError(f"{shown(path)}, line {blank_line}: {BLANK_LINE}")
            num_rows, num_blank = 0, piece.count(b"\n", len(rows))
            if rows:
                found = _read(path, rows, names, needed, line)
                num_rows = len(found[needed[0]])
                yield found
            if num_blank > 1 or not rows:
                blank_line = blank_line or line + num_rows
            line += num_rows + num_blank - bool(rows)
        if wanted() <= 0:
            return


def _split(block: bytes, most: float) -> tuple[bytes, bytes]:
    """The first lines, and the rest."""
    if most >= len(block):
        return block, b""
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _NEWLINE)
    cut = int(ends[int(most) - 1]) + 1 if most <= len(ends) else len(block)
    return block[:cut], block[cut:]


def _checked_header(path: Path, names: list[str], needed: Sequence[str]) -> list[str]:
    header = shortened(one_line(", ".join(names)), 200)
    missing = [name for name in needed if name not in names]
    if missing:
        raise InputError(f"{shown(path)}, line 1: no column {', '.join(missing)}; the header has {header}")
    if len(set(names)) < len(names):
        raise InputError(f"{shown(path)}, line 1: a column is there twice; the header has {header}")
    return names


def _read(path: Path, rows: bytes, names: list[str], wanted: Sequence[str], line: int) -> dict[str, Cells]:
    if b'"' in rows:
        rows = b"\n".join(_unquoted(path, text, line + number) for number, text in enumerate(rows.split(b"\n")))
    buffer = np.frombuffer(MARGIN + rows + MARGIN, np.uint8)
    ends = _cell_ends(path, buffer, len(names), line)
    columns = {}
    for name in wanted:
        place = names.index(name)
        start = ends[:, place - 1] + 1 if place else np.concatenate([[len(MARGIN)], ends[:-1, -1] + 1])
        start, end = _without_space(buffer, start, ends[:, place])
        columns[name] = Cells(path=path, name=name, first_line=line, buffer=buffer, start=start, end=end)
    return columns


def _without_space(buffer: Bytes, start: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
    """Without the spaces before and the carriage return after."""
    while (spaces := (buffer[start] == ord(" ")) & (start < end)).any():
        start = start + spaces
    end = end - ((end > start) & (buffer[end - 1] == _RETURN))
    return start, end


def _cell_ends(path: Path, buffer: Bytes, num_columns: int, line: int) -> IntArray:
    """[rows, columns] where each cell ends."""
    margin = len(MARGIN)
    inside = buffer[margin : 1 - margin]
    ends = np.flatnonzero((inside == _COMMA) | (inside == _NEWLINE)) + margin
    if len(ends) % num_columns == 0:
        cells = ends.reshape(-1, num_columns)
        is_end = buffer[cells] == _NEWLINE
        if is_end[:, -1].all() and not is_end[:, :-1].any():
            return cells
    for number, text in enumerate(inside[:-1].tobytes().split(b"\n")):
        _check_row(path, text, num_columns, line + number)
    raise AssertionError("a block whose rows are all right has right cells")


def _check_row(path: Path, text: bytes, num_columns: int, line: int) -> None:
    if not text.strip():
        raise InputError(f"{shown(path)}, line {line}: {BLANK_LINE}")
    num_cells = text.count(b",") + 1
    if num_cells != num_columns:
        found = f"{num_cells} cell{'s' * (num_cells > 1)}"
        raise InputError(f"{shown(path)}, line {line}: has {found}; the header has {num_columns} columns")


def _unquoted(path: Path, text: bytes, line: int) -> bytes:
    """A row whose cells have neither quotation marks nor commas."""
    if b'"' not in text:
        return text
    try:
        (cells,) = csv.reader([text.decode()], strict=True)
    except csv.Error:
        raise InputError(f"{shown(path)}, line {line}: has a quotation mark that is not closed") from None
    return ",".join(cell.replace(",", " ") for cell in cells).encode()
