"""What is read of a nested document: leaves by dotted path, each of one type."""

import math
from collections.abc import Mapping
from types import GenericAlias
from typing import Any

import msgspec

from calibrate.readers.parsing.files import Figure, number
from files.schema import Lenient


class Leaves(Lenient, frozen=True):
    """A table of a document; `report["latency.mean"]` is None where it, or a table on the way, is missing."""

    def __getitem__(self, path: str) -> Any:
        value: object = self
        for name in path.split("."):
            if isinstance(value, Leaves):
                value = getattr(value, name, None)
            else:
                value = value.get(name) if isinstance(value, dict) else None
        return value

    def number(self, *paths: str) -> float:
        """The first of these leaves that is a number, else NaN."""
        for path in paths:
            if not math.isnan(found := number(self[path])):
                return found
        return math.nan


def leaves(kinds: Mapping[str, object], *figures: str) -> type[Leaves]:
    """A table with leaves of these kinds by dotted path, and with `figures`, which are numbers; all may be missing."""
    inside: dict[str, Any] = {}
    for path, kind in {**kinds, **dict.fromkeys(figures, Figure)}.items():
        name, _, rest = path.partition(".")
        if rest:
            inside.setdefault(name, {})[rest] = kind
        else:
            inside[name] = kind
    found = {name: leaves(kind) if isinstance(kind, dict) else kind for name, kind in inside.items()}
    fields = [(name, kind | None, None) for name, kind in found.items()]
    return msgspec.defstruct("Table", fields, bases=(Leaves,), frozen=True, kw_only=True)  # type: ignore[return-value]


def each(kind: type[Leaves]) -> GenericAlias:
    """A list of such tables."""
    return GenericAlias(list, (kind,))
