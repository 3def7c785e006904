"""A digest of all that decides a simulation, the same in every process."""

import hashlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import Field, fields, is_dataclass
from enum import Enum
from functools import partial
from pathlib import PurePath
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kvcache.gpus.gpu import GPU, MONEY
from simulator.fleet.fleet import Fleet
from simulator.fleet.router import is_shipped
from simulator.study.running.task import Task
from simulator.study.store.origin import Origin

_OURS = ("files", "kvcache", "workloads", "simulator")  # their source is part of a task's origin
_LIBRARIES = ("builtins", "math", "numpy", "scipy")  # and these packages' versions


class UndigestibleError(TypeError):
    """What decides a simulation is code of the user's, or has a state that cannot be read."""


class Digests:
    """Digests of values; those of frozen objects are computed once, and the objects are held as long as this is."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, bytes]] = {}

    def of_task(self, task: Task, origin: Origin) -> bytes | None:
        """The key of a simulation computed there; None where not all that decides it is known."""
        try:
            parts = [self.of(part) for part in (task.fleet, task.load, task.size, task.slo, task.replication)]
        except UndigestibleError:
            return None
        return _joined([origin.code.encode(), origin.machine.encode(), *parts])

    def of(self, value: object) -> bytes:
        """Equal for values of one type and one content alone; an order counts. Raises UndigestibleError."""
        known = self._known.get(id(value))
        if known is not None:
            return known[1]
        found = _joined(self._parts(value))
        if is_dataclass(value) and not isinstance(value, type) and type(value).__dataclass_params__.frozen:  # type: ignore[attr-defined]
            self._known[id(value)] = (value, found)
        return found

    def _parts(self, value: object) -> Iterator[bytes]:
        if isinstance(value, np.ndarray | np.generic):
            yield from _array_parts(np.asarray(value))
        elif callable(value) and not isinstance(value, partial) and not is_dataclass(type(value)):
            yield from (b"name", _name(value))
        elif is_dataclass(value) or isinstance(value, msgspec.Struct):
            yield from self._object_parts(value)
        elif isinstance(value, Enum):
            yield from (b"enum", _name(type(value)), value.name.encode())
        elif isinstance(value, partial):
            yield from (b"partial", *map(self.of, (value.func, value.args, value.keywords)))
        elif isinstance(value, Mapping):
            yield b"mapping"
            yield from (self.of(part) for item in value.items() for part in item)
        elif isinstance(value, tuple | list):
            yield from (b"list" if isinstance(value, list) else b"tuple", *map(self.of, value))
        elif isinstance(value, set | frozenset):
            yield from (b"set", *sorted(map(self.of, value)))
        else:
            yield from _plain_parts(value)

    def _object_parts(self, value: Any) -> Iterator[bytes]:
        if isinstance(value, Fleet) and isinstance(value.router, str) and not is_shipped(value.router):
            raise UndigestibleError(f"router {value.router} is not Headcount's own")
        yield from (b"object", _name(type(value)))
        is_struct = isinstance(value, msgspec.Struct)
        names = value.__struct_fields__ if is_struct else [each.name for each in fields(value) if _decides(value, each)]
        for name in names:
            yield from (name.encode(), self.of(getattr(value, name)))


def _decides(value: object, each: "Field[Any]") -> bool:
    """Whether a simulation depends on the field: a GPU's price changes none."""
    return not (isinstance(value, GPU) and each.name in MONEY)


def _array_parts(value: NDArray[np.generic]) -> Iterator[bytes]:
    if value.dtype.hasobject:
        raise UndigestibleError("an array of objects")
    yield from (b"array", dtype_text(value.dtype).encode(), repr(value.shape).encode(), value.tobytes())


def dtype_text(dtype: np.dtype[np.generic]) -> str:
    """A dtype as a .npy file has it."""
    return repr(np.lib.format.dtype_to_descr(dtype))


def _plain_parts(value: object) -> Iterator[bytes]:
    if value is None or isinstance(value, bool):
        yield repr(value).encode()
    elif type(value) is bytes:
        yield from (b"bytes", value)
    elif type(value) is int:
        yield from (b"int", hex(value).encode())
    elif type(value) is float:
        yield from (b"float", np.float64(value).tobytes())
    elif type(value) is str:
        yield from (b"str", value.encode("utf-8", "surrogatepass"))
    elif isinstance(value, PurePath):
        yield from (b"path", str(value).encode("utf-8", "surrogateescape"))
    else:
        raise UndigestibleError(f"a {type(value).__name__}")


def _name(value: object) -> bytes:
    """A class or function by its name, where its code is part of the origin. Raises UndigestibleError for others."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", getattr(value, "__name__", None))
    found: object = sys.modules.get(str(module))
    for part in str(name).split("."):
        found = getattr(found, part, None)
    if found is not value or str(module).partition(".")[0] not in (*_OURS, *_LIBRARIES):
        raise UndigestibleError(f"code of {module}")
    return f"{module}:{name}".encode()


def _joined(parts: Any) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()
