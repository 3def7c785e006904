"""What one question needs several times, and is worked out once."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")

_known: ContextVar[dict[Hashable, Any] | None] = ContextVar("known", default=None)


@contextmanager
def one_question() -> Iterator[None]:
    """All that is asked within, also by other questions, is one question; it is forgotten afterwards."""
    if _known.get() is not None:
        yield
        return
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def once(work: Callable[P, T]) -> Callable[P, T]:
    """What `work` returns for the same arguments, which are hashable, is worked out once within one question."""

    @wraps(work)
    def found(*args: P.args, **kwargs: P.kwargs) -> T:
        known, asked = _known.get(), (work, args, tuple(kwargs.items()))
        if known is None:
            return work(*args, **kwargs)
        if asked not in known:
            known[asked] = work(*args, **kwargs)
        return cast(T, known[asked])

    return found
