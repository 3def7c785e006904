"""Typed access to one config, with errors that name the model."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from files.documents import Json, ReadJson
from files.errors import HeadcountError
from files.schema import typed
from kvcache.models.config.families import Family

T = TypeVar("T")
Size = Annotated[int, Meta(ge=0, le=10**9, description="a whole number from 0 to 1,000,000,000")]
"""A width, count or length: the largest published is 10^7 tokens of context."""
Positive = Annotated[int, Meta(ge=1, le=10**9, description="a whole number from 1 to 1,000,000,000")]
Few = Annotated[int, Meta(ge=0, le=10_000, description="a whole number from 0 to 10,000")]
_FEW = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "num_attention_heads", "num_key_value_heads")
Factor = Annotated[float, Meta(gt=0, le=10_000, description="a number above 0, at most 10,000")]
Word = Annotated[str, Meta(max_length=100, description="text of at most 100 characters")]
Names = Annotated[list[Word], Meta(max_length=10_000, description="a list of names, at most 10,000")]
Numbers = Annotated[list[Few], Meta(max_length=10_000, description="a list of whole numbers from 0, at most 10,000")]
Table = Json
_FLAGS = {"0": False, "1": True}


class Fields:
    """One config's values: a key is looked up under each of its spellings, then among the family's defaults.

    A dot leads into an object: `linear_attn_config.num_heads`.
    """

    def __init__(self, config: Mapping[str, object], name: str, family: Family) -> None:
        self.config, self.name, self.family = config, name, family

    @property
    def where(self) -> str:
        """What messages begin with."""
        return f"model {self.name!r}"

    @property
    def model_type(self) -> str:
        """The family's name; empty where the config has none."""
        return self.value(Word, "model_type") or ""

    def raw(self, *keys: str) -> Any:
        """The first value that is present under one of the spellings, else None; an explicit null is no default."""
        return self._found(*keys)[1]

    def _found(self, *keys: str) -> tuple[str, object]:
        """That value, with the spelling that it stands under: the first one where there is none."""
        for source in (self.config, self.family.defaults):
            found = [(key, value) for key in keys for value in _at(source, key)]
            if found:
                return next((pair for pair in found if pair[1] is not None), (keys[0], None))
        return keys[0], None

    def value(self, kind: type[T], *keys: str) -> T | None:
        """The first value as that type, or None where it is absent. Raises InputError."""
        key, value = self._found(*keys)
        return None if value is None else typed(value, kind, self.where, key)

    def integer(self, *keys: str, default: int | None = None) -> int:
        """A whole number; `ValueError` where it is missing without a default, or is none."""
        key, value = self._found(*keys)
        if value is not None:
            return typed(value, Few if keys[0] in _FEW else Size, self.where, key)
        if default is None:
            raise HeadcountError(f"{self.where}: config.json lacks {key!r}; add it")
        return default

    def optional(self, *keys: str) -> int | None:
        """A whole number, or None where it is absent."""
        return None if self.raw(*keys) is None else self.integer(*keys)

    def flag(self, *keys: str, default: bool = False) -> bool:
        """A yes or no."""
        key, value = self._found(*keys)
        return default if value is None else typed(_FLAGS.get(repr(value), value), bool, self.where, key)

    @property
    def hidden_size(self) -> int:
        """Width of what layers read and write."""
        return self.integer("hidden_size", "n_embd", "d_model")

    def times_hidden(self, key: str) -> int:
        """A width that the config gives as a multiple of the hidden size."""
        return int(typed(self.raw(key), Factor, self.where, key) * self.hidden_size)

    def error(self, problem: str) -> HeadcountError:
        """The error for a problem of this model's config."""
        return HeadcountError(f"{self.where}: {problem}; correct its config.json")


def _at(source: ReadJson, key: str) -> Iterator[object]:
    """What stands under a key, through objects where it has dots; nothing where the key is absent."""
    first, _, rest = key.partition(".")
    if first not in source:
        return
    if not rest:
        yield source[first]
    elif isinstance(source[first], Mapping):
        yield from _at(source[first], rest)
