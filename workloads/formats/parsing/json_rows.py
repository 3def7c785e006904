"""Lines of JSON, one object each."""

import json
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from files.documents import parse_json, read_json
from files.reading import InputError, shown, text_blocks, text_lines
from files.schema import Lenient, typed
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
_BLOCK_BYTES: Final = 1 << 18


@lru_cache(maxsize=2)
def first_object(head: str) -> dict[str, object]:
    """The object in the first line of a file, or in all of it; empty where there is none."""
    text = head.strip()
    for part in (text.partition("\n")[0], text):
        try:
            found = json.loads(part)
        except (ValueError, RecursionError):
            continue
        return found if isinstance(found, dict) else {}
    return {}


def json_blocks(path: Path, kind: type[T]) -> Iterator[list[T] | None]:
    """Some lines at a time as that type; None, at last, where one is no such object: `json_rows` knows what to say.

    Raises InputError.
    """
    decoder = msgspec.json.Decoder(kind)
    for block in text_blocks(path, _BLOCK_BYTES):
        try:
            lines = decoder.decode_lines(block)
        except (msgspec.DecodeError, RecursionError):
            lines = []
        if len(lines) != block.count(b"\n") + (not block.endswith(b"\n")):
            yield None
            return
        yield lines


def json_rows(path: Path, kind: type[T], rows: Rows, *, skip: int = 0) -> Iterator[tuple[str, T]]:
    """The lines as that type, each with its place, as long as `rows` wants more; the first `skip` were read before.

    Raises InputError.
    """
    decoder, blank_line = msgspec.json.Decoder(kind), 0
    with text_lines(path) as file:
        for number, text in enumerate(islice(file, skip, None), start=skip + 1):
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
