"""Frozen dataclasses with arrays as bytes and back: exact in every type and bit, and never run as code."""

import ast
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any

import msgspec
import numpy as np

from files.errors import HeadcountError
from simulator.study.store.digest import dtype_text

_PLAIN = (type(None), bool, int, float, str, bytes)


def encode(value: object) -> bytes:
    """Raises TypeError for what is no dataclass of the simulator, no array, list, tuple, mapping or plain value."""
    return msgspec.msgpack.encode(_packed(value))


def decode(content: bytes) -> Any:
    """What was encoded; its arrays may be written to. Raises HeadcountError for bytes that were not encoded here."""
    try:
        return _unpacked(msgspec.msgpack.decode(content))
    except Exception as error:
        raise HeadcountError(f"no encoded value: {error}") from error


def _packed(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        return [kind, dtype_text(value.dtype), value.shape, value.tobytes()]
    if is_dataclass(value) and type(value).__module__.startswith("simulator."):
        content = {item.name: _packed(getattr(value, item.name)) for item in fields(value)}
        return ["object", type(value).__module__, type(value).__name__, content]
    if type(value) is dict and all(type(key) is str for key in value):
        return ["dict", {key: _packed(each) for key, each in value.items()}]
    if type(value) in (list, tuple):
        return [type(value).__name__, *map(_packed, value)]
    raise TypeError(f"a {type(value).__name__} cannot be kept")


def _unpacked(value: object) -> Any:
    if not isinstance(value, list):
        return value
    kind, *parts = value
    if kind in ("array", "scalar"):
        found = np.frombuffer(parts[2], _dtype(parts[0])).reshape(parts[1])
        return found.copy() if kind == "array" else found[()]
    if kind == "object":
        return _class(parts[0], parts[1])(**{name: _unpacked(each) for name, each in parts[2].items()})
    if kind == "dict":
        return {key: _unpacked(each) for key, each in parts[0].items()}
    return {"list": list, "tuple": tuple}[kind](map(_unpacked, parts))


@cache
def _class(module: str, name: str) -> Any:
    found = getattr(import_module(module), name) if module.startswith("simulator.") else None
    if not isinstance(found, type) or not is_dataclass(found):
        raise HeadcountError(f"{module}.{name} is no dataclass")
    return found


@cache
def _dtype(text: str) -> np.dtype[np.generic]:
    return np.lib.format.descr_to_dtype(ast.literal_eval(text))
