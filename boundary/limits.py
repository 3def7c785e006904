"""How much is taken in from outside, and why there is an end to it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import Any

from boundary.names import nearest_hint, shortened


def _limit(default: float, why: str) -> Any:
    return field(default=default, metadata={"why": why})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Each may be raised: `--limit turns=100000` on the command line, `with limits_raised(turns=100_000)` in Python."""

    settings_bytes: float = _limit(16e6, "a file of settings is parsed whole: ten times a profile or config.json")
    result_bytes: float = _limit(200e6, "a result, log or recording: parsed, it takes up to ten times its size")
    line_bytes: float = _limit(16e6, "one line of a trace; with block hashes for a million tokens it has some 500 kB")
    values: float = _limit(1e7, "values of a YAML file, each counted as often as its aliases repeat it")
    nesting: float = _limit(50, "brackets within brackets; no format needs ten")
    rows: float = _limit(1e8, "requests of a trace, at some 100 bytes each; Azure's largest has 27 million")
    turns: float = _limit(10_000, "turns of one conversation: all that came before the start are drawn")
    answer_s: float = _limit(10.0, "seconds for the whole answer of a server, not for each piece of it")
    answer_bytes: float = _limit(50e6, "one answer of a server; vLLM's metrics are some 100 kB")


_current: ContextVar[Limits] = ContextVar("limits", default=Limits())  # noqa: B039  frozen


def limits() -> Limits:
    """Those in force."""
    return _current.get()


@contextmanager
def limits_raised(**changed: float) -> Iterator[None]:
    """Other limits for a while. Raises ValueError for a name that is none, or a limit that is not above 0."""
    known = {item.name for item in fields(Limits)}
    for name, value in changed.items():
        if name not in known:
            raise ValueError(f"no limit {shortened(name)!r}; {nearest_hint(name, known)}")
        if isinstance(value, bool) or not isinstance(value, Real) or not value > 0:
            raise ValueError(f"limit {name} is {value!r}; give a number above 0")
    token = _current.set(replace(limits(), **changed))
    try:
        yield
    finally:
        _current.reset(token)


def how_to_raise(name: str) -> str:
    """The end of a message about a limit."""
    return f"(limit {name}; --limit {name}=N raises it)"


def reference_rows() -> Iterator[tuple[str, float, str]]:
    """Name, default and reason of each limit."""
    for item in fields(Limits):
        yield item.name, getattr(Limits(), item.name), item.metadata["why"]
