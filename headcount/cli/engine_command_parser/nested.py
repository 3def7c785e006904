"""Flags whose value is one JSON object, given whole or key by key: `--a JSON`, `--a.key value`, `--a.key.key=value`."""

import json
import re
from collections.abc import Mapping
from typing import Any

from files.documents import Json, parse_json
from files.errors import HeadcountError
from files.names import shortened

_FLAG = re.compile(r"^--?(?P<name>[A-Za-z][\w-]*?)(?:\.(?P<keys>[\w.-]+\+?))?(?:=(?P<value>.*))?$", re.DOTALL)
_SWITCHES = {"true": True, "false": False}


def take_objects(words: list[str], option: str, objects: Mapping[str, str]) -> tuple[list[str], dict[str, Json]]:
    """The other words, and each object whose flag is in `objects`, by what that says its name is; later keys win.

    A value there may be `name.key`: the flag then gives that key alone. Raises HeadcountError for a flag without a
    value, or for text that is no JSON object.
    """
    kept: list[str] = []
    found: dict[str, Json] = {}
    rest = iter(words)
    for word in rest:
        match = _FLAG.match(word)
        target = objects.get(match["name"].replace("_", "-")) if match else None
        if match is None or target is None or (match["name"] == "O" and not match["keys"]):
            kept.append(word)
            continue
        value = match["value"] if match["value"] is not None else next(rest, None)
        if value is None:
            raise HeadcountError(f"{option}: {shortened(word)} takes one value; it was given none")
        name, *own = target.split(".")
        keys = own + (match["keys"].split(".") if match["keys"] else [])
        merge(found.setdefault(name, {}), _nested(keys, _plain(value)) if keys else json_object(option, name, value))
    return kept, found


def merge(config: Json, more: Mapping[str, object]) -> None:
    """`more` wins."""
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(config.get(key), dict):
            merge(config[key], value)
        else:
            config[key] = value


def _nested(keys: list[str], value: Any) -> Json:
    if keys[-1].endswith("+"):  # a list, as vLLM reads it
        keys, value = [*keys[:-1], keys[-1][:-1]], str(value).split(",")
    for key in reversed(keys):
        value = {key: value}
    found: Json = value
    return found


def _plain(text: str) -> Any:
    """A switch, a number, JSON, or the text itself."""
    if text.lower() in _SWITCHES:
        return _SWITCHES[text.lower()]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def json_object(option: str, name: str, text: str) -> Json:
    """Raises HeadcountError for text that is none."""
    found = parse_json(text, f"{option}: --{name}")
    if not isinstance(found, dict):
        raise HeadcountError(f"{option}: --{name} is '{shortened(text)}'; give a JSON object")
    return found
