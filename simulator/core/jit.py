"""How kernels are compiled, cached."""

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from platformdirs import user_cache_path

F = TypeVar("F", bound=Callable[..., Any])


def _source_digest() -> str:
    """numba's own cache does not notice that an imported kernel file changed, so all of them name the folder."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_directory() -> str:
    """The user's cache folder; where it cannot be written to, one that lasts until the machine restarts, or the run."""
    base = Path(os.environ.get("HEADCOUNT_CACHE_DIR") or user_cache_path("headcount"))
    for folder in (base / "kernels", Path(tempfile.gettempdir()) / "headcount-kernels"):
        directory = folder / _source_digest()
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(directory, os.W_OK):
            return str(directory)
    return tempfile.mkdtemp(prefix="headcount-kernels-")


_CACHE_DIRECTORY = _cache_directory()


def kernel(function: F) -> F:
    """Compile without reference counting: 34 M sequence-steps/s instead of 5 M, and nothing may be allocated."""
    return _compile(function, forceinline=True)


def entry_point(function: F) -> F:
    """A kernel that Python calls; it releases the interpreter lock, so that replications run side by side."""
    return _compile(function, nogil=True)


def _compile(function: F, **options: Any) -> F:
    previous = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = _CACHE_DIRECTORY
    try:
        compiled: F = numba.njit(cache=True, _nrt=False, error_model="numpy", **options)(function)
    finally:
        numba.config.CACHE_DIR = previous
    return compiled
