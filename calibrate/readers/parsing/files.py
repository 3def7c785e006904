"""What a result file holds, as text or as JSON."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from files.documents import Json, json_values
from files.reading import InputError, read_text, shown
from files.schema import typed

T = TypeVar("T")
Head = str | Json
Figure = float | None
"""What a tool measured, also NaN or infinite; None where it did not."""
Nanoseconds = Annotated[int, Meta(ge=0, lt=2**62, description="a clock's whole nanoseconds")]
_HEAD_CHARACTERS = 65_536
_EMPTY_LIST = "holds an empty list; was the run stopped before it sent requests?"


def result_text(path: Path) -> str:
    """The whole file as text, unpacked if it is gzip. Raises InputError."""
    text = read_text(path, "result_bytes")
    if not text.strip():
        raise InputError(f"{shown(path)}: the file is empty; was the run stopped before it wrote its result?")
    return text


def head_of(path: Path) -> Head:
    """The first JSON object of a file, or its first characters where it is no JSON. Raises InputError."""
    text = result_text(path)
    if text.lstrip()[0] not in "{[":
        return text[:_HEAD_CHARACTERS]
    try:
        _, value = next(json_values(text, shown(path)))
    except InputError:
        if re.match(r"\s*(\{|\[\s*\{)", text):
            raise
        return text[:_HEAD_CHARACTERS]  # a log's line may begin with a bracket
    first = next((item for item in value if isinstance(item, dict)), None) if isinstance(value, list) else value
    if isinstance(value, list) and not value:
        raise InputError(f"{shown(path)}: {_EMPTY_LIST}")
    return first if isinstance(first, dict) else text[:_HEAD_CHARACTERS]


def json_objects(path: Path) -> list[tuple[str, dict[str, object]]]:
    """All JSON objects of a file with their places: one, one per line, several after one another, or a list of them.

    Raises InputError that names the line where the JSON breaks, or what stands there instead of an object.
    """
    found = list(_objects(path))
    if not found:
        raise InputError(f"{shown(path)}: {_EMPTY_LIST}")
    return found if len(found) > 1 else [("", found[0][1])]


def _objects(path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    for line, value in json_values(result_text(path), shown(path)):
        items = value if isinstance(value, list) else [value]
        for number, item in enumerate(items, start=1):
            place = f"line {line}" + f", entry {number}" * (len(items) > 1)
            yield place, item if isinstance(item, dict) else typed(item, Json, path, place)


def typed_objects(path: Path, kind: type[T]) -> list[tuple[str, T]]:
    """All JSON objects of a file as that type, with their places. Raises InputError."""
    return [(place, typed(item, kind, path, place)) for place, item in json_objects(path)]


def number(value: object) -> float:
    """NaN where it is none; "inf", as tools write an unlimited rate, is infinite."""
    if isinstance(value, str) and value.strip().lower() in {"inf", "infinity"}:
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def first_number(*values: object) -> float:
    """The first of the values that is a number, else NaN."""
    return next((found for value in values if not math.isnan(found := number(value))), math.nan)


def count(value: Any) -> int:
    """A finite number of requests; 0 where it is none."""
    found = number(value)
    return int(found) if math.isfinite(found) and found > 0 else 0


def numbers(**named: object) -> dict[str, float]:
    """Those of the named values that are numbers."""
    return {name: found for name, value in named.items() if not math.isnan(found := number(value))}
