"""JSON, TOML and YAML as plain values: bounded in size and depth, no key twice, an error that names the line."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from files.errors import HeadcountError
from files.limits import how_to_raise, limits
from files.names import one_line, shortened
from files.reading import InputError, Purpose, read_text, shown

Json: TypeAlias = dict[str, Any]
"""An object of JSON, YAML or TOML. Whoever reads a value knows its type from the key, or checks it."""
ReadJson: TypeAlias = Mapping[str, Any]
"""The same where it is only read."""


def read_json(path: Path, purpose: Purpose = "settings_bytes") -> Any:
    """A JSON file's content. Raises InputError."""
    return parse_json(read_text(path, purpose), shown(path))


def parse_json(text: str, where: str) -> Any:
    """JSON from elsewhere than a file; `where` begins the message. Raises InputError."""
    with _told(where, "JSON", text):
        value = json.loads(text, object_pairs_hook=_once)
        _require_whole(value, text)
    return _nested(value, where)


def json_values(text: str, where: str) -> Iterator[tuple[int, object]]:
    """JSON values that follow one another, as in JSON lines, each with its first line. Raises InputError."""
    decoder, place, line = json.JSONDecoder(object_pairs_hook=_once), 0, 1
    while found := _NO_SPACE.search(text, place):
        line += text.count("\n", place, found.start())
        with _told(where, "JSON", text):
            value, place = decoder.raw_decode(text, found.start())
            _require_whole(value, text[found.start() : place])
        brackets = text.count("[", found.start(), place) + text.count("{", found.start(), place)
        yield line, value if brackets <= limits().nesting else _nested(value, where)
        line += text.count("\n", found.start(), place)


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file's content. Raises InputError."""
    text = read_text(path)
    with _told(shown(path), "TOML"):
        value = tomllib.loads(text)
    return _nested(value, shown(path))  # type: ignore[no-any-return]


def toml_lines(values: Mapping[str, object]) -> list[str]:
    """A table's lines, one for each value."""
    return [
        f"{name if name.replace('_', '').isalnum() else json.dumps(name)} = {toml_value(value)}"
        for name, value in values.items()
    ]


def toml_value(value: object) -> str:
    """A number, a text or a list of such, as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    return repr(float(value)) if isinstance(value, float) else str(value)


def read_yaml(path: Path, purpose: Purpose = "settings_bytes") -> Any:
    """A YAML file's content, plain values alone. Raises InputError, also for aliases that unfold without end."""
    return parse_yaml(read_text(path, purpose), shown(path))


def parse_yaml(text: str, where: str) -> Any:
    """The same of a text. Raises InputError that begins with `where`."""
    import yaml  # noqa: PLC0415  late: few runs read YAML

    with _told(where, "YAML"):
        try:
            _refuse_deep(text, where)
            value = yaml.load(text, Loader=_loader())  # a SafeLoader
        except yaml.MarkedYAMLError as error:
            line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
            raise InputError(f"{where}{line}: is not readable as YAML: {one_line(str(error.problem))}") from None
        except yaml.YAMLError as error:
            raise HeadcountError(str(error)) from None
        if _Measure(where).size(value, 0) > limits().values:
            most = f"{limits().values:,.0f} values"
            raise InputError(f"{where}: its aliases repeat more than {most} {how_to_raise('values')}")
    return value


def yaml_text(value: object) -> str:
    """A document's text: keys as they stand, texts of several lines as blocks."""
    import yaml  # noqa: PLC0415  late, as above

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    Dumper.add_representer(
        str,
        lambda dumper, text: dumper.represent_scalar(
            "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
        ),
    )
    found: str = yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=1_000)
    return found


_NO_SPACE = re.compile(r"\S")


@cache
def _loader() -> Any:
    """YAML's safe loader, which refuses a key that stands twice."""
    import yaml  # noqa: PLC0415  late, as above

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[object, object]:
            keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
            _refuse_twice([key for key in keys if isinstance(key, str)])
            found: dict[object, object] = super().construct_mapping(node, deep)
            return found

    return Loader


def _refuse_deep(text: str, where: str) -> None:
    """Before it is loaded: libyaml's loader overruns its stack. Its scanner, which reads ahead, may refuse earlier."""
    import yaml  # noqa: PLC0415  late, as above

    depth = 0
    try:
        for event in yaml.parse(text, Loader=_loader()):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > limits().nesting:
                raise _too_deep(where)
    except yaml.MarkedYAMLError as error:
        if "maximum nesting depth" in str(error.problem):
            raise _too_deep(where) from None
        raise


@contextmanager
def _told(where: str, language: str, text: str = "") -> Iterator[None]:
    """What a parser finds wrong in a text of that language, as InputError."""
    try:
        yield
    except InputError:
        raise
    except json.JSONDecodeError as error:
        place = f", line {error.lineno}, column {error.colno}" if "\n" in text.strip() else f", column {error.colno}"
        is_cut = "Unterminated" in error.msg or not text[error.pos :].strip()
        reason = "it is empty or cut off; write or copy it again" if is_cut else error.msg
        raise InputError(f"{where}{place}: is not JSON: {reason}") from None
    except (ValueError, RecursionError, TypeError, OverflowError) as error:
        raise InputError(f"{where}: is not readable as {language}: {_reason(error)}") from None


def _require_whole(value: object, text: str) -> None:
    r"""Raise UnicodeEncodeError for half a character: JSON may write `\ud800` alone, which no text can hold."""
    if "\\ud" in text or "\\uD" in text:
        json.dumps(value, ensure_ascii=False).encode()


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        _refuse_twice([key for key, _ in pairs])
    return found


def _refuse_twice(keys: list[str]) -> None:
    if len(set(keys)) < len(keys):
        twice = next(key for place, key in enumerate(keys) if key in keys[:place])
        raise HeadcountError(f"'{shortened(twice)}' is given twice; leave out one of them")


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeError):
        return r"it holds half a character, such as \ud800 without its other half"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if "integer string conversion" in str(error):
        return "it holds a number of thousands of digits"
    return one_line(str(error))


def _nested(value: object, where: str) -> Any:
    """The value, if it is not nested without end. Raises InputError."""
    _Measure(where).size(value, 0)
    return value


def _too_deep(where: str) -> InputError:
    most = f"{limits().nesting:,.0f} levels within one another"
    return InputError(f"{where}: has more than {most} {how_to_raise('nesting')}")


class _Measure:
    """How many values a document holds, what an alias repeats counted each time."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._sizes: dict[int, int] = {}

    def size(self, value: Any, depth: int) -> int:
        if not isinstance(value, dict | list) or not value:
            return 1
        if depth >= limits().nesting:
            raise _too_deep(self._where)
        known = self._sizes.get(id(value))
        if known is None:
            items = value.values() if isinstance(value, dict) else value
            parts = [item for item in items if isinstance(item, dict | list)]
            known = 1 + len(items) - len(parts) + sum(self.size(item, depth + 1) for item in parts)
            self._sizes[id(value)] = known
        return known
