"""Rows of JSON lines and of logs, as cells of text: what is wrong in them is said as of CSV."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from files.documents import Json, json_values, parse_json
from files.names import one_line, shortened
from files.reading import InputError, read_text, shown, text_lines
from files.schema import typed
from workloads.formats.parsing.cells import Cells
from workloads.formats.parsing.columns import Source
from workloads.formats.parsing.log_pattern import LogPattern

_ROWS_AT_ONCE = 20_000
_ENTRY = re.compile(r"[^\s,\[\]]")  # where the next one of an array begins


def json_cells(path: Path, needed: Sequence[str], wanted: Callable[[], float]) -> Iterator[dict[str, Cells]]:
    """JSON lines; a name such as usage.prompt_tokens leads into an object. Raises InputError."""
    decoder, paths = msgspec.json.Decoder(Json), {name: name.split(".") for name in needed}

    def values(number: int, text: str) -> list[str]:
        try:
            line = decoder.decode(text)
        except (msgspec.DecodeError, RecursionError):
            where = f"{shown(path)}, line {number}"
            line = typed(parse_json(text, where), Json, where)
        return [_text(_inside(line, name, paths[name])) for name in needed]

    return _cells(path, needed, wanted, values)


def array_cells(path: Path, needed: Sequence[str], wanted: Callable[[], float]) -> Iterator[dict[str, Cells]]:
    """The objects of a JSON array, as gateways export them, named as in `json_cells`. Raises InputError."""
    paths = {name: name.split(".") for name in needed}
    rows, lines = list[list[str]](), list[int]()
    for line, entry in _entries(path):
        if len(rows) >= wanted():
            break
        found = typed(entry, Json, path, f"line {line}")
        rows.append([_text(_inside(found, name, paths[name])) for name in needed])
        lines.append(line)
    if rows:
        yield _columns(path, needed, rows, lines)


def _entries(path: Path) -> Iterator[tuple[int, object]]:
    """Those of all arrays of a file, each with its first line."""
    text = read_text(path, "result_bytes")
    decoder = json.JSONDecoder()
    list(json_values(text, shown(path)))  # what is no JSON is refused here
    place, line, seen = 0, 1, 0
    while found := _ENTRY.search(text, place):
        line += text.count("\n", seen, found.start())
        seen = found.start()
        entry, place = decoder.raw_decode(text, found.start())
        yield line, entry


def log_cells(pattern: LogPattern, skipped: Counter[str]) -> Source:
    """Lines that the pattern matches, whose groups are the columns; the others are counted as `skipped`.

    Raises InputError where it matches no line.
    """

    def rows(path: Path, needed: Sequence[str], wanted: Callable[[], float]) -> Iterator[dict[str, Cells]]:
        groups = [pattern.groups[name] for name in needed]

        def values(number: int, text: str) -> list[str] | None:
            found = pattern.search(text, groups)
            if found is None:
                skipped["lines"] += 1
            return found

        found = False
        for cells in _cells(path, needed, wanted, values):
            found = True
            yield cells
        if not found:
            raise _nothing_matched(path, pattern.text)

    return rows


def _cells(
    path: Path, needed: Sequence[str], wanted: Callable[[], float], values: Callable[[int, str], list[str] | None]
) -> Iterator[dict[str, Cells]]:
    rows, lines = list[list[str]](), list[int]()
    with text_lines(path) as file:
        for number, text in enumerate(file, start=1):
            found = values(number, text.rstrip("\r\n")) if text.strip() else None
            if found is not None:
                rows.append(found)
                lines.append(number)
            if len(rows) >= min(_ROWS_AT_ONCE, wanted()):
                yield _columns(path, needed, rows, lines)
                rows, lines = [], []
                if wanted() <= 0:
                    return
    if rows:
        yield _columns(path, needed, rows, lines)


def _columns(path: Path, needed: Sequence[str], rows: list[list[str]], lines: list[int]) -> dict[str, Cells]:
    columns = np.array(rows, object).T
    return {name: Cells(path=path, name=name, column=columns[place], lines=lines) for place, name in enumerate(needed)}


def _inside(line: dict[str, object], name: str, steps: list[str]) -> Any:
    if name in line:
        return line[name]
    value: object = line
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _text(value: object) -> str:
    """As a cell of CSV would have it."""
    if type(value) in (int, float):  # as below, ten times as fast
        return repr(value)
    if value is None or isinstance(value, str):
        return one_line(value or "")
    return json.dumps(value)


def _nothing_matched(path: Path, pattern: str) -> InputError:
    """The error for a log without a line that the pattern matches."""
    with text_lines(path) as file:
        first = shortened(one_line(file.readline()))
    return InputError(
        f"{shown(path)}: no line matches the log pattern {shortened(pattern)!r}; the first line is '{first}'"
    )
