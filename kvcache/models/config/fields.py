"""Typed access to one config, with errors that name the model."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvcache.models.config.families import Family


class Fields:
    """One config's values: a key is looked up under each of its spellings, then among the family's defaults.

    A dot leads into an object: `linear_attn_config.num_heads`.
    """

    def __init__(self, config: Mapping[str, Any], name: str, family: Family) -> None:
        self.config, self.name, self.family = config, name, family

    @property
    def model_type(self) -> str:
        """The family's name; empty where the config has none."""
        return str(self.config.get("model_type") or "")

    def raw(self, *keys: str) -> Any:
        """The first value that is present under one of the spellings, else None; an explicit null is no default."""
        return self._found(*keys)[1]

    def _found(self, *keys: str) -> tuple[str, Any]:
        """That value, with the spelling that it stands under: the first one where there is none."""
        for source in (self.config, self.family.defaults):
            found = [(key, value) for key in keys for value in _at(source, key)]
            if found:
                return next((pair for pair in found if pair[1] is not None), (keys[0], None))
        return keys[0], None

    def integer(self, *keys: str, default: int | None = None) -> int:
        """A whole number; `ValueError` where it is missing without a default, or is none."""
        key, value = self._found(*keys)
        if value is not None:
            return self.whole(value, key.split(".")[-1])
        if default is None:
            raise ValueError(f"model {self.name!r}: config.json lacks {key!r}; add it")
        return default

    def whole(self, value: Any, what: str) -> int:
        """`value` where it is a whole number of at least 0, else `ValueError`."""
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(f"{what} is {value!r}, must be a whole number")
        if value < 0:
            raise self.error(f"{what} is {value}, must not be negative")
        return value

    def optional(self, *keys: str) -> int | None:
        """A whole number, or None where it is absent."""
        return None if self.raw(*keys) is None else self.integer(*keys)

    def flag(self, *keys: str, default: bool = False) -> bool:
        """A yes or no."""
        value = self.raw(*keys)
        return default if value is None else bool(value)

    def listed(self, *keys: str) -> Sequence[Any] | None:
        """A list, or None where it is absent; `ValueError` where it is none."""
        key, value = self._found(*keys)
        if value is None or isinstance(value, list | tuple):
            return value
        raise self.error(f"{key} is {value!r}, must be a list")

    @property
    def hidden_size(self) -> int:
        """Width of what layers read and write."""
        return self.integer("hidden_size", "n_embd", "d_model")

    def times_hidden(self, key: str) -> int:
        """A width that the config gives as a multiple of the hidden size."""
        factor = self.raw(key)
        if isinstance(factor, bool) or not isinstance(factor, int | float) or factor <= 0:
            raise self.error(f"{key} is {factor!r}, must be a positive number")
        return int(factor * self.hidden_size)

    def error(self, problem: str) -> ValueError:
        """The error for a problem of this model's config."""
        return ValueError(f"model {self.name!r}: {problem}; correct its config.json")


def _at(source: Mapping[str, Any], key: str) -> Iterator[Any]:
    """What stands under a key, through objects where it has dots; nothing where the key is absent."""
    first, _, rest = key.partition(".")
    if first not in source:
        return
    if not rest:
        yield source[first]
    elif isinstance(source[first], Mapping):
        yield from _at(source[first], rest)
