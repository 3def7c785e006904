"""The core's kernels: their decorators, routers that are called by address, hints to load memory."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from files.cache.kernel_cache import KernelCache
from files.compiling import kernels
from files.compiling.kernels import IS_COMPILED, intrinsic, kernel, late_entry_point, loaded, rare_kernel
from files.compiling.machine_code import MachineCode
from simulator.core.compiling.forms import FORMS

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

    from simulator.core.state import Arrays
    from simulator.core.types import AnyArray, EngineViews, RequestView, RouterMemory

__all__ = ["RUN", "entry_point", "kernel", "prefetch", "prefetch_in_row", "rare_kernel", "router_address"]
F = TypeVar("F", bound=Callable[..., Any])

SOURCES = Path(__file__).parent
"""Where all kernels of the core are."""

_routers: list[tuple[Callable[..., int], np.dtype[np.void]]] = []  # by address, where nothing is compiled


def _numba_s() -> "ModuleType":
    """What the core adds to numba, which it imports."""
    from simulator.core.compiling import intrinsics  # noqa: PLC0415  numba, where something is compiled

    return intrinsics


def entry_point(function: F) -> F:
    """A kernel of the core that Python calls."""
    return kernels.entry_point(function, sources=SOURCES, prepare=_numba_s, announced=True)


RUN: dict[str, Callable[["Arrays", float, int], int]] = {
    form: late_entry_point(
        "simulator.core.fleet", "advance", sources=SOURCES, form=form, prepare=_numba_s, announced=True
    )
    for form in FORMS
}
"""`fleet.advance` for fleets of each form."""


def parameter_dtype(names: tuple[str, ...]) -> np.dtype[np.void]:
    """A router's parameters as a record; without any there is one that is not used."""
    return np.dtype((np.record, [(name, "f8") for name in names or ("unused",)]))


@cache
def router_address(choose: Callable[..., int], parameters: tuple[str, ...] = ()) -> int:
    """Compile a router, or load it; the core calls it at this address.

    It is given the engines as it sees them (`ENGINE_VIEW` of `routing.layout`), the request (`REQUEST_VIEW`), its
    parameters by name, its own memory. It returns an engine.
    """
    if not IS_COMPILED:
        _routers.append((choose, parameter_dtype(parameters)))
        return len(_routers)

    def compiled() -> MachineCode:
        code: MachineCode = _numba_s().compile_router(choose, parameter_dtype(parameters))
        return code

    _, address = loaded(KernelCache.of(choose, "router", SOURCES), parameters, compiled)
    return address


def _call_python_router(
    address: int,
    engines: "EngineViews",
    request: "RequestView",
    parameters: "NDArray[np.float64]",
    memory: "RouterMemory",
) -> int:
    choose, names = _routers[address - 1]
    return choose(engines, request, parameters.view(names).view(np.recarray)[0], memory)


def _python_prefetch(_array: "AnyArray", *_index: int) -> None:
    pass


call_router = intrinsic(lambda: _numba_s().call_router, _call_python_router)
prefetch = intrinsic(lambda: _numba_s().prefetch, _python_prefetch)
"""`prefetch(array, index)` begins to load a record that is needed soon; it changes nothing, and any index will do."""
prefetch_in_row = intrinsic(lambda: _numba_s().prefetch_in_row, _python_prefetch)
"""The same of an array of two dimensions."""
