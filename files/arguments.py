"""Arguments that come from Python: of the types that the signature says, or one ValueError that names the argument."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from inspect import signature
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from files.errors import HeadcountError
from files.names import value_shown

P = ParamSpec("P")
R = TypeVar("R")
_WORDS: Mapping[Any, str] = {
    int: "a whole number", float: "a number", str: "text", bool: "True or False", Path: "a Path", NoneType: "None",
}  # fmt: skip


def checked(function: Callable[P, R], names: Mapping[str, object]) -> Callable[P, R]:
    """The function, which looks at its arguments first; `names` are those that its annotations may use."""
    known = signature(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        hints = get_type_hints(function, localns=dict(names))
        bound = known.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            if name in hints and known.parameters[name].kind.name != "VAR_KEYWORD":
                check_argument(name, value, hints[name])
                if isinstance(value, Real) and hasattr(value, "item"):  # a number of NumPy's
                    bound.arguments[name] = value.item()
        return function(*bound.args, **bound.kwargs)

    return call


def check_argument(name: str, value: object, hint: object) -> None:
    """Raise HeadcountError unless the value is of that type."""
    if _is_huge(value):
        raise HeadcountError(f"{name} holds a whole number of too many digits; it must be below 2^63")
    if not _fits(value, hint):
        raise HeadcountError(f"{name} is {value_shown(value)}; it must be {_in_words(hint)}")


def _is_huge(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_is_huge, value))
    return isinstance(value, int) and abs(value) >= 2**63


def _fits(value: Any, hint: object) -> bool:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in get_args(hint))
    if hint is float:
        return isinstance(value, Real) and not isinstance(value, bool) and value == value  # noqa: PLR0124  no NaN
    if hint is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if (item := _item_of(hint)) is not None:
        listed = isinstance(value, Collection) and not isinstance(value, str | bytes)
        return listed and all(_fits(each, item) for each in value)
    kind = origin or hint
    return kind is Any or not isinstance(kind, type) or isinstance(value, kind)


def _item_of(hint: object) -> Any:
    """What each item of a list is; None for what is no list, or has items of several kinds."""
    kinds = [kind for kind in get_args(hint) if kind is not ...]
    return kinds[0] if get_origin(hint) in (Sequence, Collection, list, tuple) and len(kinds) == 1 else None


def _in_words(hint: object) -> str:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return " or ".join(_in_words(part) for part in get_args(hint))
    if (item := _item_of(hint)) is not None:
        return f"a list, each {_in_words(item)}"
    return _WORDS.get(hint) or f"a {getattr(origin or hint, '__name__', 'function')}"
