"""Rows of a CSV file with a header, block by block, whatever the file's size; NumPy reads them.

What it takes in silence is checked here: empty lines among the rows, quotation marks that are not closed.
"""

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from files.names import one_line, shortened
from files.reading import InputError, shown, text_blocks, text_lines
from workloads.formats.parsing.cells import Cells

BLANK_LINE = "is empty; only the end of the file may have empty lines"
_BLOCK_BYTES = 1 << 20


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
    """The rows of the file, some 30,000 at once; columns go by name, in any order, among any others.

    `wanted` says how many more rows are wanted; what comes after them is not looked at. Raises InputError.
    """
    names: list[str] = []
    line, blank_line = 1, 0
    for block in text_blocks(path, _BLOCK_BYTES):
        lines, read = block.decode().removesuffix("\n").split("\n"), 0
        if not names:
            names, read = _checked_header(path, column_names(lines[0]), needed), 1
        while read < len(lines) and (most := wanted()) > 0:
            rows = lines[read : int(min(read + most, len(lines)))]
            num_lines = len(rows)
            while rows and not rows[-1].strip():
                rows.pop()
            if rows and blank_line:
                raise InputError(f"{shown(path)}, line {blank_line}: {BLANK_LINE}")
            if rows:
                yield _read(path, rows, names, needed, line + read)
            if len(rows) < num_lines:
                blank_line = blank_line or line + read + len(rows)
            read += num_lines
        if wanted() <= 0:
            return
        line += len(lines)


def _checked_header(path: Path, names: list[str], needed: Sequence[str]) -> list[str]:
    header = shortened(one_line(", ".join(names)), 200)
    missing = [name for name in needed if name not in names]
    if missing:
        raise InputError(f"{shown(path)}, line 1: no column {', '.join(missing)}; the header has {header}")
    if len(set(names)) < len(names):
        raise InputError(f"{shown(path)}, line 1: a column is there twice; the header has {header}")
    return names


def _read(path: Path, rows: list[str], names: list[str], needed: Sequence[str], line: int) -> dict[str, Cells]:
    try:
        table = np.loadtxt(rows, dtype=object, delimiter=",", quotechar='"', comments=None, ndmin=2)
    except ValueError:
        table = np.empty((0, 0), object)
    is_wrong = table.shape != (len(rows), len(names))
    for number, text in enumerate(rows, start=line):
        if is_wrong or '"' in text:
            _check_row(path, text, len(names), number)
    assert not is_wrong, "rows that are all right make a table"
    lines = range(line, line + len(rows))
    return {name: Cells(path=path, name=name, column=table[:, names.index(name)], lines=lines) for name in needed}


def _check_row(path: Path, text: str, num_columns: int, line: int) -> None:
    if not text.strip():
        raise InputError(f"{shown(path)}, line {line}: {BLANK_LINE}")
    if "\r" in (text := text.rstrip("\r")):
        raise InputError(f"{shown(path)}, line {line}: has a carriage return inside; only a line's end may have one")
    try:
        (cells,) = csv.reader([text], strict=True)
    except csv.Error:
        raise InputError(f"{shown(path)}, line {line}: has a quotation mark that is not closed") from None
    if len(cells) != num_columns:
        found = f"{len(cells)} cell{'s' * (len(cells) > 1)}"
        raise InputError(f"{shown(path)}, line {line}: has {found}; the header has {num_columns} columns")
