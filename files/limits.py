"""How much is taken in from outside, and why there is an end to it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import Any

from files.errors import HeadcountError
from files.names import nearest_hint, shortened


def _limit(default: float, why: str) -> Any:
    return field(default=default, metadata={"why": why})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Each may be raised: `--limit turns=100000` on the command line, `with limits_raised(turns=100_000)` in Python."""

    settings_bytes: float = _limit(16e6, "a file of settings is parsed whole: ten times a profile or config.json")
    result_bytes: float = _limit(200e6, "a result, log or recording: parsed, it takes up to ten times its size")
    line_bytes: float = _limit(16e6, "one line of a trace; with block hashes for a million tokens it has some 500 kB")
    values: float = _limit(1e7, "values of a YAML file, each counted as often as its aliases repeat it")
    nesting: float = _limit(50, "levels of lists and tables within one another; no format needs ten")
    rows: float = _limit(1e7, "rows of a trace, at some 100 bytes each; Azure's largest has 27 million")
    requests: float = _limit(2e6, "requests of one run, at some 500 bytes each; a search keeps two runs at once")
    turns: float = _limit(10_000, "turns of one conversation: all that came before the start are drawn")
    answer_s: float = _limit(10.0, "seconds for the whole answer of a server, not for each piece of it")
    store_bytes: float = _limit(2e9, "simulations kept in the cache folder; beyond it the oldest are forgotten")
    answer_bytes: float = _limit(5e6, "one answer of a server; vLLM's metrics are some 100 kB")


_in_force = [Limits()]  # the last one; of the whole program, since loads are drawn in threads


def limits() -> Limits:
    """Those in force."""
    return _in_force[-1]


@contextmanager
def limits_raised(**changed: float) -> Iterator[None]:
    """Other limits for a while. Raises HeadcountError for a name that is none, or a limit that is not above 0."""
    known = {item.name for item in fields(Limits)}
    for name, value in changed.items():
        if name not in known:
            raise HeadcountError(f"no limit {shortened(name)!r}; {nearest_hint(name, known)}")
        if isinstance(value, bool) or not isinstance(value, Real) or not value > 0:
            raise HeadcountError(f"limit {name} is {value!r}; give a number above 0")
    _in_force.append(replace(limits(), **changed))
    try:
        yield
    finally:
        _in_force.pop()


def check_limit(name: str, value: float, what: str) -> None:
    """Raise HeadcountError where there is more of something than its limit."""
    most = getattr(limits(), name)
    if value > most:
        raise HeadcountError(f"{value:,.0f} {what} are more than {most:,.0f} {how_to_raise(name)}")


def how_to_raise(name: str) -> str:
    """The end of a message about a limit."""
    return f"(limit {name}; --limit {name}=N raises it)"


def reference_rows() -> Iterator[tuple[str, float, str]]:
    """Name, default and reason of each limit."""
    for item in fields(Limits):
        yield item.name, getattr(Limits(), item.name), item.metadata["why"]
