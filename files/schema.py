"""What a file must hold, as types: msgspec checks them, and a mistake is told with its place, in words."""

import re
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, inspect

from files.documents import ReadJson
from files.names import nearest_hint, shortened
from files.reading import InputError, shown

T = TypeVar("T")

_MOST = 1e15
Number = Annotated[float, Meta(ge=-_MOST, le=_MOST, description="a finite number")]
"""No NaN, no infinity: comparisons with a bound refuse both."""
Positive = Annotated[float, Meta(gt=0, le=_MOST, description="a number above 0")]
NotNegative = Annotated[float, Meta(ge=0, le=_MOST, description="a number, at least 0")]
Share = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]
Count = Annotated[int, Meta(ge=0, lt=2**53, description="a whole number, at least 0")]
AtLeastOne = Annotated[int, Meta(ge=1, lt=2**53, description="a whole number, at least 1")]
Tokens = Annotated[int, Meta(ge=0, lt=2**31 - 1, description="a whole number of tokens, at least 0")]


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a file that somebody writes by hand: a key that is not known is an error."""


class Lenient(msgspec.Struct, frozen=True, kw_only=True):
    """A table of a file that another program writes: keys that are not read may be anything."""


# A union of a bounded number with a tuple of fixed length crashes msgspec 0.22; a list of fixed length does not.
def typed(value: object, kind: type[T], file: Path | str, place: str = "", *, name: str = "") -> T:
    """A document's value as that type; `place` is where it stands in the file, `name` its own. Raises InputError."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        parts = (shown(file), described(str(error), value, kind, place, name))
        raise InputError(": ".join(part for part in parts if part)) from None


def table(content: ReadJson, kind: type[T], file: Path | str, **given: Any) -> T:
    """A table that somebody writes by hand as a dataclass; `given` fields are not the file's to say.

    Raises InputError, also for a key that is no field.
    """
    known = {item.name for item in fields(kind)} - given.keys()  # type: ignore[arg-type]
    unknown = next((key for key in content if key not in known), None)
    if unknown is not None:
        raise InputError(f"{shown(file)}: {_no_key(unknown, '', known)}")
    return typed({**content, **given}, kind, file)


_PLACE = re.compile(r" - at (`key` in )?`\$(.*)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")
_WORDS = {
    "float": "a number", "int": "a whole number", "str": "text", "bool": "true or false", "array": "a list",
    "object": "a table", "null": "nothing", "date": "a date", "datetime": "a time",
}  # fmt: skip


def described(message: str, value: object, kind: object, place: str = "", of: str = "") -> str:
    """What msgspec found wrong, as `PLACE: NAME is VALUE; it must be …`; `of` is the name of the whole."""
    found = _PLACE.search(message)
    said = message[: found.start()] if found else message
    steps: list[str | int] = []
    for key, index in _STEP.findall(found[2]) if found else ():
        steps.append(key or (int(index) if index else _wrong_key(value, kind, steps)))
    at, schema = _follow(value, inspect.type_info(kind), steps)
    path = (f"[{step + 1}]" if isinstance(step, int) else f".{step}" for step in steps)
    name = ": ".join(part for part in (place, "".join((of, *path)).lstrip(".")) if part)
    if unknown := re.search(r"unknown field `(.*)`", said):
        known = [item.encode_name for part in _parts(schema) for item in getattr(part, "fields", ())]
        return _no_key(unknown[1], name, known)
    if missing := re.search(r"missing required field `(.*)`", said):
        return f"{f'{name}: ' * bool(name)}'{missing[1]}' is missing; give it"
    if not said.startswith(("Expected", "Invalid", "Number")):  # what a class itself says of its values
        return f"{f'{name}: ' * bool(name)}{said}"
    if found and found[1]:
        known = [key for part in _parts(schema) for key in _literals(getattr(part, "key_type", None))]
        if not known:  # in YAML a key may be a number, or a list
            wrong = next((key for key in at if not isinstance(key, str)), None)
            return f"{name or 'it'} has the key {_shown(wrong)}; a key must be text"
        return _no_key(next((key for key in map(str, at) if key not in known), ""), name, known)
    of_all = getattr(schema, "extra_json_schema", None)  # else, of several kinds, each is told
    allowed = "" if re.search(r"\| (?!null)", said) and not of_all else _allowed(schema)
    most = None if re.search(r" to |at most", allowed) else re.search(r" (<=|<) (\d\S*)", said)
    allowed = f"{allowed}{f', at most {float(most[2]):g}' if most else ''}" if allowed else _in_words(said)
    hint = f": {nearest_hint(str(at), _literals(schema))}" if allowed == "a known name" else ""
    return f"{name or 'it'} is {_shown(at)}; it must be {allowed}{hint}"


def _no_key(given: str, name: str, known: Iterable[str]) -> str:
    return f"no key '{shortened(given)}'{f' in {name}' * bool(name)}; {nearest_hint(given, known)}"


def _follow(value: object, schema: object, steps: list[str | int]) -> tuple[Any, Any]:
    """What stands at a place, and what should."""
    for step in steps:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list | tuple) and 0 <= step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
        schema = _inside(schema, step)
    return value, schema


def _wrong_key(value: object, kind: object, steps: list[str | int]) -> str | int:
    """The key of a table that may have any, whose value is wrong: msgspec does not name it."""
    inner, _ = _follow(value, inspect.type_info(kind), steps)
    keys = list(inner) if isinstance(inner, dict) else []
    while len(keys) > 1:
        half = keys[: len(keys) // 2]
        try:
            msgspec.convert(_replaced(value, steps, {key: inner[key] for key in half}), kind)
        except msgspec.ValidationError as error:
            keys = half if str(error).find("[...]") >= 0 else keys[len(half) :]
        else:
            keys = keys[len(half) :]
    return keys[0] if keys else "value"


def _replaced(value: Any, steps: list[str | int], inner: object) -> Any:
    if not steps:
        return inner
    items = list(value) if isinstance(value, list) else dict(value)
    items[steps[0]] = _replaced(value[steps[0]], steps[1:], inner)  # type: ignore[index]
    return items


def _parts(schema: object) -> tuple[Any, ...]:
    """The alternatives of a union, else the type itself."""
    schema = getattr(schema, "type", schema)
    return tuple(schema.types) if isinstance(schema, inspect.UnionType) else (schema,)


def _inside(schema: object, step: str | int) -> Any:
    inner = [_inside_one(part, step) for part in _parts(schema)]
    return next((part for part in inner if part is not None), None)


def _inside_one(schema: object, step: str | int) -> Any:
    if isinstance(schema, inspect.StructType | inspect.DataclassType):
        return next((item.type for item in schema.fields if item.encode_name == step), None)
    if isinstance(schema, inspect.TupleType) and isinstance(step, int):
        return schema.item_types[step] if step < len(schema.item_types) else None
    return getattr(schema, "item_type", getattr(schema, "value_type", None))


def _literals(schema: object) -> list[str]:
    return [str(value) for part in _parts(schema) for value in getattr(part, "values", ())]


def _allowed(schema: object) -> str:
    if literals := _literals(schema):
        return f"one of {', '.join(literals)}" if len(literals) < 10 else "a known name"
    parts = _parts(schema)
    described = [(getattr(part, "extra_json_schema", None) or {}).get("description", "") for part in (schema, *parts)]
    return next((text for text in described if text), "")


def _in_words(said: str) -> str:
    """`Expected `int | null`, got `str`` as "a whole number or nothing"."""
    expected = re.search(r"Expected `(.*?)`( (>=|<=|>|<) (\S+))?", said)
    if said == "Number out of range":
        return "a number that a double can hold"
    if expected is None:
        return said[:1].lower() + said[1:].replace("`", "'")
    kinds = " or ".join(_WORDS.get(part, part) for part in expected[1].split(" | "))
    bound = {">=": "of at least", "<=": "of at most", ">": "above", "<": "below"}.get(expected[3] or "", "")
    return f"{kinds} {bound} {expected[4]}" if bound else kinds


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}" if value else "an empty list"
    try:
        return shortened(repr(value))
    except ValueError:  # thousands of digits
        return "a number of thousands of digits"
