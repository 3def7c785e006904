"""Lines of JSON, one object each."""

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from boundary.documents import parse_json, read_json
from boundary.files import InputError, shown, text_lines
from boundary.schema import Lenient, typed
from workloads.formats.parsing.csv_rows import BLANK_LINE
from workloads.formats.parsing.rows import Rows
from workloads.requests import OPEN_END

T = TypeVar("T", bound=Lenient)
Tokens = Annotated[float, Meta(ge=1, lt=OPEN_END, multiple_of=1, description="a whole number of tokens, at least 1")]
TokensOrNone = Annotated[
    float, Meta(ge=0, lt=OPEN_END, multiple_of=1, description="a whole number of tokens, at least 0")
]
Seconds = Annotated[float, Meta(ge=0, le=1e12, description="a number of seconds, at least 0")]
Milliseconds = Annotated[float, Meta(ge=0, le=1e15, description="a number of milliseconds, at least 0")]
Nanoseconds = Annotated[float, Meta(ge=0, le=1e21, description="a number of nanoseconds, at least 0")]
Name = str | int | float


@lru_cache(maxsize=2)
def first_object(head: str) -> dict[str, Any]:
    """The object in the first line of a file, or in all of it; empty where there is none."""
    text = head.strip()
    for part in (text.partition("\n")[0], text):
        try:
            found = json.loads(part)
        except (ValueError, RecursionError):
            continue
        return found if isinstance(found, dict) else {}
    return {}


def json_rows(path: Path, kind: type[T], rows: Rows) -> Iterator[tuple[str, T]]:
    """The lines as that type, each with its place, as long as `rows` wants more. Raises InputError."""
    decoder, blank_line = msgspec.json.Decoder(kind), 0
    with text_lines(path) as file:
        for number, text in enumerate(file, start=1):
            if rows.num_wanted <= 0:
                return
            if text.isspace():
                blank_line = blank_line or number
                continue
            if blank_line:
                raise InputError(f"{shown(path)}, line {blank_line}: {BLANK_LINE}")
            place = f"line {number}"
            try:
                line = decoder.decode(text)
            except (msgspec.DecodeError, RecursionError):
                where = f"{shown(path)}, {place}"
                line = typed(parse_json(text, where), kind, where)
            yield place, line


def json_objects(path: Path, kind: type[T], rows: Rows) -> Iterator[tuple[str, T]]:
    """The same of a file that may also be one object over many lines. Raises InputError."""
    with text_lines(path) as file:
        first = file.readline()
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        yield "", typed(read_json(path, "result_bytes"), kind, path)
    else:
        yield from json_rows(path, kind, rows)
