"""The decorators of kernels; none of them imports numba, which compiles a kernel where no machine code is kept."""

import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, cast

from files.cache.kernel_cache import KernelCache
from files.compiling.machine_code import MachineCode, argument_type, callable_at, linked, load
from files.garbage import gc_relaxed

F = TypeVar("F", bound=Callable[..., Any])

IS_COMPILED = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
"""Whether kernels are compiled at all: numba's own variable has them run as plain Python, for debuggers."""
WHOLE = "whole"
"""The form of kernels that leave nothing out."""


class Kernel:
    """A kernel given to numba only when an entry point that calls it is compiled: most runs load a compiled one."""

    def __init__(self, function: Callable[..., Any], *, is_inlined: bool) -> None:
        self.py_func, self.is_inlined = function, is_inlined

    @cache  # noqa: B019  kernels live as long as the process
    def of_form(self, form: str) -> Any:
        """What numba calls, for fleets of that form."""
        from files.compiling.lowering import kernel_of_form  # noqa: PLC0415  numba, where something is compiled

        return kernel_of_form(self.py_func, form, is_inlined=self.is_inlined)


class Intrinsic:
    """Instructions that a kernel consists of where it is called; `emitter` names the function that emits them."""

    def __init__(self, emitter: Callable[[], Callable[..., Any]]) -> None:
        self._emitter = emitter

    @cache  # noqa: B019  as above
    def of_numba(self) -> Any:
        from files.compiling.lowering import intrinsic_of  # noqa: PLC0415  numba, where something is compiled

        return intrinsic_of(self._emitter())


def kernel(function: F) -> F:
    """Compile without reference counting: 34 M sequence-steps/s instead of 5 M, and nothing may be allocated."""
    return cast(F, Kernel(function, is_inlined=True)) if IS_COMPILED else function


def rare_kernel(function: F) -> F:
    """A kernel that is called, not inlined: its callers stay small, and it is compiled once for all of them."""
    return cast(F, Kernel(function, is_inlined=False)) if IS_COMPILED else function


def intrinsic(emitter: Callable[[], Callable[..., Any]], in_python: F) -> F:
    """An intrinsic of numba's, and what it does as plain Python."""
    return cast(F, Intrinsic(emitter)) if IS_COMPILED else in_python


class EntryPoint:
    """A kernel that Python calls; it releases the interpreter lock, so that replications run side by side.

    `find` gives the function where it is compiled, and `prepare` tells numba of types and forms before that.
    """

    def __init__(
        self,
        name: str,
        find: Callable[[], Callable[..., Any]],
        cache: KernelCache,
        form: str,
        prepare: Callable[[], object] | None,
    ) -> None:
        self._name, self._find, self._cache, self._form, self._prepare = name, find, cache, form, prepare
        self._calls: dict[tuple[str, ...], Callable[[tuple[Any, ...]], Any]] = {}
        self._loading = Lock()

    def __call__(self, *arguments: Any) -> Any:
        types = tuple(map(argument_type, arguments))
        call = self._calls.get(types)
        if call is None:
            with self._loading:
                call = self._calls.get(types) or self._loaded(types, arguments)
        return call(arguments)

    def _loaded(self, types: tuple[str, ...], arguments: tuple[Any, ...]) -> Callable[[tuple[Any, ...]], Any]:
        def compiled() -> MachineCode:
            from files.compiling.lowering import compile_entry_point  # noqa: PLC0415  numba, where it compiles

            if self._prepare is not None:
                self._prepare()
            return compile_entry_point(self._find(), self._form, arguments)

        code, address = loaded(self._cache, types, compiled)
        self._calls[types] = call = callable_at(address, code.returns, self._name, arguments)
        return call


def loaded(cache: KernelCache, types: tuple[str, ...], compiled: Callable[[], MachineCode]) -> tuple[MachineCode, int]:
    """The kept machine code for these types and its address, or what `compiled` gives, which is kept."""

    def read(stored: bytes) -> tuple[MachineCode, int]:
        code = MachineCode.from_bytes(stored)
        return code, load(code)

    with cache.compiled_by_one(types):
        found = cache.read(types, read)
        if found is None:
            with gc_relaxed():
                code = compiled()
            if (folder := cache.folder()) is not None:
                code = code._replace(shared_object=linked(code.object_file, folder))
            cache.write(types, code.to_bytes())
            found = code, load(code)
    return found


def entry_point(
    function: F, *, sources: Path, prepare: Callable[[], object] | None = None, announced: bool = False
) -> F:
    """Compile a kernel that Python calls, and the kernels that it calls, all in `sources`, as one whole."""
    if not IS_COMPILED:
        return function
    cache = KernelCache.of(function, "entry point", sources, announced=announced)
    return cast(F, EntryPoint(function.__qualname__, lambda: function, cache, WHOLE, prepare))


def late_entry_point(
    module: str, name: str, *, sources: Path, form: str, prepare: Callable[[], object], announced: bool
) -> Callable[..., Any]:
    """An entry point for fleets of a form, whose module of kernels is imported where it is compiled.

    The module is in `sources`, which is its package.
    """

    def find() -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(import_module(module), name)
        return found

    def run(*arguments: Any) -> Any:
        return find()(*arguments)

    if not IS_COMPILED:
        return run
    source = sources / f"{module.rpartition('.')[2]}.py"
    cache = KernelCache(f"{module}.{name}", source, f"entry point, {form}", sources, announced=announced)
    return EntryPoint(name, find, cache, form, prepare)
