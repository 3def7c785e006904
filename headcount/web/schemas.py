"""JSON schemas of the options of a question, and the values that a program gives for them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from files.documents import Json
from files.errors import HeadcountError
from files.names import check_names
from headcount.web.fields import Field, fields_of

_MOST_EXAMPLES: Final = 12
_VALUE: Final = [{"type": "string"}, {"type": "number"}]
_VALUES: Final = {"type": "array", "items": {"anyOf": _VALUE}}


def options_schema(asked: Sequence[Field]) -> Json:
    """A JSON schema of options by their names."""
    properties = {field.name: _property(field) for field in asked}
    required = [field.name for field in asked if field.is_required and not field.is_many]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _property(field: Field) -> Json:
    about = {"description": field.help + (f" Default: {field.default}." if field.default else "")}
    if field.is_switch:
        return {"type": "boolean", **about}
    examples = [] if field.name == "model" else list(field.suggestions)[:_MOST_EXAMPLES]  # a catalog lists models
    return {"anyOf": [*_VALUE, _VALUES], **about, **({"examples": examples} if examples else {})}


def texts_of(field: Field, value: object) -> list[str]:
    """A value as on the command line, or several. Raises HeadcountError for what no option takes."""
    return [_text(field, each) for each in (value if isinstance(value, list) else [value])]


def _text(field: Field, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float | dict):
        raise HeadcountError(f"{field.name} is {shown(value)}; give text or a number, or a list of them")
    return json.dumps(value) if isinstance(value, dict) else str(value)


def pairs_of(question: str, given: Mapping[str, object]) -> list[tuple[str, str]]:
    """Options of a JSON object as a link has them. Raises UnknownNameError or HeadcountError."""
    known = {field.name: field for field in fields_of(question)}
    check_names(given, known, f"option of {question}")
    missing = [name for name, field in known.items() if field.is_required and name not in given]
    if missing:
        raise HeadcountError(f"{question} needs {' and '.join(missing)}; give each by its name")
    return [pair for name, value in given.items() for pair in _pairs(known[name], value)]


def _pairs(field: Field, value: object) -> Iterator[tuple[str, str]]:
    if field.is_switch:
        if not isinstance(value, bool):
            raise HeadcountError(f"{field.name} is {shown(value)}; give true or false")
        yield field.name, "on" if value else "off"
        return
    values = texts_of(field, value)
    yield from ((field.name, each) for each in (values if field.is_many else [",".join(values)]))


def shown(value: object) -> str:
    """The beginning of a value, for a message."""
    return json.dumps(value)[:80]
