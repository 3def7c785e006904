"""How often Python looks for objects that nobody can reach."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_relaxed() -> Iterator[None]:
    """While millions of objects that stay are made: looking for garbage among them is a fifth to half of the time."""
    before = gc.get_threshold()
    gc.set_threshold(20_000, 20, 50)  # never at all would double a compiler's memory
    try:
        yield
    finally:
        gc.set_threshold(*before)
