"""Functions that numba itself loads and calls: those that make arrays, or return them."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from files.cache.kernel_cache import KernelCache

F = TypeVar("F", bound=Callable[..., Any])


class _DispatcherCache(NullCache):
    """A dispatcher's cache: what numba pickles."""

    def __init__(self, kept: KernelCache) -> None:
        self._kept = kept

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function, or None, which has numba compile it."""
        rtsys.initialize(target_context)  # the symbols of reference counts; `refresh` would import the whole compiler
        key = _key(sig, target_context)
        return self._kept.read(key, lambda content: CompileResult._rebuild(target_context, *pickle.loads(content)))

    def save_overload(self, sig: Any, data: Any) -> None:
        if not data.lifted and not data.library.has_dynamic_globals:
            self._kept.write(_key(sig, data.target_context), dumps(data._reduce()))


def _key(sig: Any, target_context: Any) -> tuple[object, ...]:
    """These are compiled for this processor alone, which numba knows by name and features."""
    return sig, target_context.codegen().magic_tuple()


def compiled(function: F) -> F:
    """A function of numba's that is compiled once for this machine; it may call others of its package."""
    if numba.config.DISABLE_JIT:
        return function
    found: Any = numba.njit(function)
    depth = function.__module__.count(".")
    sources = Path(function.__code__.co_filename).parents[depth - 1]
    found._cache = _DispatcherCache(KernelCache.of(function, "compiled", sources))
    return cast(F, found)
