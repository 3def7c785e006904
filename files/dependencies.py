"""What from outside takes part in something: files that are read, code of the user's that is loaded."""

from collections.abc import Iterator
from contextlib import contextmanager

_watching: list[set[str]] = []  # of the whole program, since loads are drawn in threads


def record_dependency(what: object) -> None:
    """Told by whoever reads a file or loads the user's code."""
    for found in _watching:
        found.add(str(what))


@contextmanager
def watched_dependencies() -> Iterator[set[str]]:
    """Paths of files that are read meanwhile, those of Headcount too, and the user's code."""
    found: set[str] = set()
    _watching.append(found)
    try:
        yield found
    finally:
        _watching.pop()
