"""Typed access to one config, with errors that name the model."""

from collections.abc import Mapping, Sequence
from typing import Any

from kvcache.models.config.family import Family


class Fields:
    """One config's values: a key is looked up under each of its spellings, then among the family's defaults."""

    def __init__(self, config: Mapping[str, Any], name: str, family: Family) -> None:
        self.config, self.name, self.family = config, name, family

    def raw(self, *keys: str) -> Any:
        """The first value that is present under one of the spellings, else None; an explicit null is no default."""
        for source in (self.config, self.family.defaults):
            for key in keys:
                if source.get(key) is not None:
                    return source[key]
            if any(key in source for key in keys):
                return None
        return None

    def integer(self, *keys: str, default: int | None = None) -> int:
        """A whole number; `ValueError` where it is missing without a default, or is none."""
        value = self.raw(*keys)
        if value is None:
            if default is None:
                raise ValueError(f"model {self.name!r}: config.json lacks {keys[0]!r}; add it")
            return default
        return self.whole(value, keys[0])

    def whole(self, value: Any, what: str) -> int:
        """`value` where it is a whole number of at least 0, else `ValueError`."""
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(
                f"model {self.name!r}: {what} is {value!r}, must be a whole number; correct its config.json"
            )
        if value < 0:
            raise ValueError(f"model {self.name!r}: {what} is {value}, must not be negative; correct its config.json")
        return value

    def optional(self, *keys: str) -> int | None:
        """A whole number, or None where it is absent."""
        return None if self.raw(*keys) is None else self.integer(*keys)

    def flag(self, *keys: str, default: bool) -> bool:
        """A yes or no."""
        value = self.raw(*keys)
        return default if value is None else bool(value)

    def listed(self, *keys: str) -> Sequence[Any] | None:
        """A list, or None where it is absent; `ValueError` where it is none."""
        value = self.raw(*keys)
        if value is None or isinstance(value, list | tuple):
            return value
        raise self.error(f"{keys[0]} is {value!r}, must be a list")

    def error(self, problem: str) -> ValueError:
        """The error for a problem of this model's config."""
        return ValueError(f"model {self.name!r}: {problem}; correct its config.json")
