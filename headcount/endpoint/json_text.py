"""Filler that is JSON: any object, or an instance of a schema."""

import json
from collections.abc import Mapping
from math import ceil, floor
from typing import Any

from files.documents import Json, ReadJson
from headcount.endpoint.requests import ApiError

_DEEPEST = 20  # levels of a schema; one that refers to itself has no end
_LONGEST = 1000  # elements of an array
_MOST_VALUES = 10_000
_LONGEST_TEXT = 100_000  # characters that a string must have at least
_FORMATS = {
    "date-time": "2026-01-01T00:00:00Z", "date": "2026-01-01", "time": "00:00:00Z", "email": "a@example.com",
    "uuid": "00000000-0000-4000-8000-000000000000", "uri": "https://example.com", "ipv4": "127.0.0.1",
}  # fmt: skip


def json_text(schema: Json, filler: str) -> str:
    """JSON text that the schema allows, `{}` allowing any object; its first free string is filled.

    Raises ApiError for a schema that is none, refers to nothing or to itself without end, or asks for a `pattern`.
    """
    if not schema:
        return json.dumps({"text": filler})
    try:
        return json.dumps(_Instance(schema, filler).of(schema, 0))
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError):
        raise _refused("a keyword has a value of another type than JSON Schema gives it") from None


class _Instance:
    """Builds one instance; `filler` goes into the first string that has room for it."""

    def __init__(self, root: ReadJson, filler: str) -> None:
        self._root, self._filler, self._left = root, filler, _MOST_VALUES

    def of(self, schema: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise _refused(f"its instances have more than {_MOST_VALUES:,} values")
        if depth > _DEEPEST:
            raise _refused(f"it has more than {_DEEPEST} levels")
        if schema is True or schema == {}:
            return "text"
        other = self._stands_for(_mapping(schema), depth)
        if other is not None:
            return self.of(other, depth + 1)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return schema["enum"][0]
        return self._typed(schema, depth)

    def _stands_for(self, schema: ReadJson, depth: int) -> Any:
        """The schema in whose place this one stands; None where it describes its values itself."""
        if "$ref" in schema:
            return self._found(str(schema["$ref"]))
        for key in ("anyOf", "oneOf"):
            if schema.get(key):
                return {**_without(schema, key), **_mapping(schema[key][0])}
        return self._joined(schema, depth) if schema.get("allOf") else None

    def _joined(self, schema: ReadJson, depth: int) -> Json:
        whole: Json = dict(_without(schema, "allOf"))
        for part in schema["allOf"]:
            own = _mapping(self._found(str(part["$ref"])) if "$ref" in _mapping(part) else part)
            nested = self._joined(own, depth + 1) if own.get("allOf") and depth < _DEEPEST else own
            properties = {**whole.get("properties", {}), **nested.get("properties", {})}
            required = [*whole.get("required", ()), *nested.get("required", ())]
            whole |= nested
            whole |= ({"properties": properties} if properties else {}) | ({"required": required} if required else {})
        return whole

    def _typed(self, schema: ReadJson, depth: int) -> Any:
        kind = schema.get("type") or (
            "object" if "properties" in schema else "array" if "items" in schema else "string"
        )
        kind = kind[0] if isinstance(kind, list) and kind else kind
        if kind == "object":
            properties = _mapping(schema.get("properties") or {})
            names = [*properties, *(name for name in schema.get("required") or () if name not in properties)]
            return {name: self.of(properties.get(name, True), depth + 1) for name in names}
        if kind == "array":
            items = [self.of(each, depth + 1) for each in schema.get("prefixItems") or ()]
            count = min(int(schema.get("minItems", 1)), int(schema.get("maxItems", _LONGEST)), _LONGEST)
            return items + [self.of(schema.get("items", True), depth + 1) for _ in range(count - len(items))]
        if kind in ("integer", "number"):
            return _number(schema, is_whole=kind == "integer")
        if kind in ("boolean", "null"):
            return True if kind == "boolean" else None
        if kind != "string":
            raise _refused(f"type {str(kind)[:40]!r} is not known")
        return self._string(schema)

    def _string(self, schema: ReadJson) -> str:
        if "pattern" in schema:
            raise _refused("pattern is not simulated; leave it out")
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
        if least > _LONGEST_TEXT:
            raise _refused(f"minLength is above {_LONGEST_TEXT:,}")
        text = self._filler or "text"
        self._filler = ""
        text = text.ljust(least, "x")
        return text if most is None else text[: int(most)]

    def _found(self, reference: str) -> Any:
        found: Any = self._root
        for part in reference.removeprefix("#").strip("/").split("/"):
            if part and (not isinstance(found, Mapping) or part not in found):
                raise _refused(f"$ref {reference[:80]!r} leads nowhere")
            found = found[part] if part else found
        return found


def _number(schema: ReadJson, *, is_whole: bool) -> Any:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    step = schema.get("multipleOf") or (1 if is_whole else None)
    is_open = "minimum" not in schema and low is not None
    if step is None:
        if low is not None and high is not None:
            return (low + high) / 2
        return low + 1 if low is not None else high - 1 if high is not None else 1.0
    if low is not None:
        times = floor(low / step) + 1 if is_open else ceil(low / step)
    else:
        times = 1 if high is None or high > step else floor(high / step) - ("maximum" not in schema)
    value = times * step
    return int(value) if is_whole else value


def _mapping(value: Any) -> ReadJson:
    if not isinstance(value, Mapping):
        raise _refused("a schema must be an object")
    return value


def _without(schema: ReadJson, key: str) -> Json:
    return {name: value for name, value in schema.items() if name != key}


def _refused(why: str) -> ApiError:
    return ApiError(f"this JSON schema cannot be answered: {why}", param="response_format")
