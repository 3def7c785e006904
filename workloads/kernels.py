"""The kernels of workloads that are loaded without numba."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from files.compiling import kernels

F = TypeVar("F", bound=Callable[..., Any])


def entry_point(function: F) -> F:
    """A kernel of workloads that Python calls: it makes no arrays, and returns at most a number."""
    return kernels.entry_point(function, sources=Path(__file__).parent)
