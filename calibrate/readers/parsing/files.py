"""What a result file holds, as text or as JSON."""

import gzip
import json
import math
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Head = str | dict[str, Any]
_GZIP = b"\x1f\x8b"
_HEAD_CHARACTERS = 65_536
_EMPTY_LIST = "holds an empty list; was the run stopped before it sent requests?"
_DECODER = json.JSONDecoder()
_NO_SPACE = re.compile(r"\S")


def read_text(path: Path) -> str:
    """The whole file as text, unpacked if it is gzip. Raises ValueError."""
    try:
        with path.open("rb") as file:
            raw = file.read(_HEAD_CHARACTERS)
            if raw.startswith(_GZIP):
                raw = gzip.decompress(raw + file.read())
            elif b"\0" not in raw:  # else no text: weights may be larger than memory
                raw += file.read()
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise ValueError(f"{path}: its gzip data is cut off or damaged; copy the file again") from None
    except OSError as error:
        refuse_address(path)
        raise ValueError(f"{path} cannot be read: {(error.strerror or 'no reason given').lower()}") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ValueError(f"{path}: is not text in UTF-8; results are JSON, JSON lines, YAML, logs or metrics as text")
    if not text.strip():
        raise ValueError(f"{path}: the file is empty; was the run stopped before it wrote its result?")
    return text


def refuse_address(path: Path) -> None:
    """Raises ValueError where a server's address was given as a file."""
    if address := re.match(r"(https?):/+(.*)", str(path)):
        url = "://".join(address.groups())
        raise ValueError(
            f"{url} is a server's address, not a file; watch the server with "
            f"'headcount calibrate record --url {url} --out FOLDER', or save its /metrics to a file and give that"
        )


def head_of(path: Path) -> Head:
    """The first JSON object of a file, or its first characters where it is no JSON. Raises ValueError."""
    text = read_text(path)
    if text.lstrip()[0] not in "{[":
        return text[:_HEAD_CHARACTERS]
    try:
        value, _ = _value(path, text, len(text) - len(text.lstrip()))
    except ValueError:
        if re.match(r"\s*(\{|\[\s*\{)", text):
            raise
        return text[:_HEAD_CHARACTERS]  # a log's line may begin with a bracket
    first = next((item for item in value if isinstance(item, dict)), None) if isinstance(value, list) else value
    if isinstance(value, list) and not value:
        raise ValueError(f"{path}: {_EMPTY_LIST}")
    return first if isinstance(first, dict) else text[:_HEAD_CHARACTERS]


def json_objects(path: Path) -> list[dict[str, Any]]:
    """All JSON objects of a file: one, one per line, several after one another, or one list of them.

    Raises ValueError that names the line where the JSON breaks, or what stands there instead of an object.
    """
    found = []
    for line, value in _values(path, read_text(path)):
        for item in value if isinstance(value, list) else [value]:
            if not isinstance(item, dict):
                raise ValueError(f"{path}, line {line}: holds {kind(item)} where a JSON object {{…}} must be")
            found.append(item)
    if not found:
        raise ValueError(f"{path}: {_EMPTY_LIST}")
    return found


def _values(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    place, line = 0, 1
    while found := _NO_SPACE.search(text, place):
        line += text.count("\n", place, found.start())
        value, place = _value(path, text, found.start())
        yield line, value
        line += text.count("\n", found.start(), place)


def _value(path: Path, text: str, place: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, place)
    except json.JSONDecodeError as error:
        line = text.count("\n", 0, error.pos) + 1
        if not text[error.pos :].strip() or "Unterminated" in error.msg:
            raise ValueError(
                f"{path}, line {line}: the JSON is cut off; was the run stopped while it wrote? Copy or run it again"
            ) from None
        raise ValueError(f"{path}, line {line}: is not JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, thousands of brackets
        raise ValueError(f"{path}: holds a number too large or nesting too deep") from None


def kind(value: Any) -> str:
    """What stands in a file, in words."""
    names = {str: "a string", bool: "true or false", type(None): "null", dict: "an object", list: "a list"}
    return names.get(type(value), "a number")


def mapping(value: Any) -> dict[str, Any]:
    """The object, or an empty one where something else stands."""
    return value if isinstance(value, dict) else {}


def listing(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def number(value: Any) -> float:
    """NaN where it is none; "inf", as tools write an unlimited rate, is infinite."""
    if isinstance(value, str) and value.strip().lower() in {"inf", "infinity"}:
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def nanoseconds(value: Any) -> int | None:
    """A clock's whole number; None where it is none."""
    return value if type(value) is int and abs(value) < 2**63 else None


def first_number(*values: Any) -> float:
    """The first of the values that is a number, else NaN."""
    return next((found for value in values if not math.isnan(found := number(value))), math.nan)


def count(value: Any) -> int:
    """A finite number of requests; 0 where it is none."""
    found = number(value)
    return int(found) if math.isfinite(found) and found > 0 else 0


def numbers(**named: Any) -> dict[str, float]:
    """Those of the named values that are numbers."""
    return {name: found for name, value in named.items() if not math.isnan(found := number(value))}


def at(value: Any, *names: str) -> Any:
    """`value[names[0]][names[1]]…`, None where the way ends."""
    for name in names:
        value = mapping(value).get(name)
    return value
