"""How kernels are compiled.

An entry point is compiled, optimized and cached as one whole. The kernels below it are only lowered and linked into
it: machine code, Python wrappers and cache entries of their own, which nobody uses, took 4/5 of the time to compile.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.ccallback import CFunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import register_pass
from numba.core.registry import CPUDispatcher
from numba.core.sigutils import normalize_signature
from numba.core.typed_passes import NativeLowering
from numba.core.untyped_passes import DeadBranchPrune
from numba.extending import intrinsic, typeof_impl
from numba.np import arrayobj

from files.cache.kernel_cache import KernelCache
from files.garbage import gc_relaxed
from simulator.core.compiling.by_reference import pass_by_reference
from simulator.core.compiling.folding import FOLDING
from simulator.core.routing.layout import ENGINE_VIEW, REQUEST_VIEW
from simulator.core.state import Arrays

if TYPE_CHECKING:
    from numba.core.base import BaseContext
    from numba.core.compiler import CompileResult, StateDict
    from numba.core.compiler_machinery import CompilerPass, PassManager
    from numba.core.typing.context import BaseContext as TypingContext
    from numba.core.typing.templates import Signature
    from numpy.typing import NDArray

    from simulator.core.types import AnyArray, EngineViews, RequestView, RouterMemory

Lowering: TypeAlias = Callable[["BaseContext", "ir.IRBuilder", "Signature", "Sequence[ir.Value]"], "ir.Value"]
"""Emits an intrinsic's code where it is called."""
F = TypeVar("F", bound=Callable[..., Any])

SOURCES = Path(__file__).parent
"""Where all kernels of the core are."""
_OPTIONS = {"_nrt": False, "error_model": "numpy", "no_cfunc_wrapper": True}


class _Unlinked(JITCodeLibrary):
    """A kernel's code, neither optimized nor turned into machine code: its entry point does both."""

    def finalize(self) -> None:
        self._finalized = True


class _OptimizedOnce(JITCodeLibrary):
    """An entry point's code, without numba's first round, which finds counts of references that cancel out."""

    def _optimize_final_module(self) -> None:
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)


def _lower_into(library: type[JITCodeLibrary], state: "StateDict") -> None:
    state.library = library(state.targetctx.codegen(), state.func_id.func_qualname)
    state.library.enable_object_caching()


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerEntryPoint(NativeLowering):
    _name = "lower_entry_point"

    def run_pass(self, state: "StateDict") -> bool:
        _lower_into(_OptimizedOnce, state)
        lowered: bool = super().run_pass(state)
        return lowered


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerOnly(NativeLowering):
    """Lower a kernel, and let its callers link it with the kernels that it calls."""

    _name = "lower_only"

    def run_pass(self, state: "StateDict") -> bool:
        _lower_into(_Unlinked, state)
        state.flags.no_compile = True
        super().run_pass(state)
        lowered, libraries = state["cr"], dict.fromkeys([state.library, *state.library._linking_libraries])
        name = lowered.fndesc.mangled_name
        state.targetctx.insert_user_function(name, lowered.fndesc, list(libraries))
        state["cr"] = lowered._replace(cfunc=name)
        return True


def _with_passes(
    pipelines: "list[PassManager]", change: "Callable[[CompilerPass], list[CompilerPass]]"
) -> "list[PassManager]":
    """A compiler's only pipeline, each of whose passes is changed for others."""
    (pipeline,) = pipelines
    pipeline.passes = [(step, text) for old, text in pipeline.passes for step in change(old)]
    pipeline._finalized = False
    pipeline.finalize()
    return [pipeline]


class _KernelCompiler(Compiler):
    def define_pipelines(self) -> "list[PassManager]":
        return _with_passes(super().define_pipelines(), lambda step: [_LowerOnly if step is NativeLowering else step])


class _EntryPointCompiler(Compiler):
    def define_pipelines(self) -> "list[PassManager]":
        return _with_passes(
            super().define_pipelines(), lambda step: [_LowerEntryPoint if step is NativeLowering else step]
        )


@cache
def _compiler_of(form: str, base: type[Compiler]) -> type[Compiler]:
    """A compiler that first leaves out what fleets of that form have no use for."""
    if form not in FOLDING:
        return base

    class FormCompiler(base):
        def define_pipelines(self) -> "list[PassManager]":
            return _with_passes(
                super().define_pipelines(), lambda step: [FOLDING[form], step] if step is DeadBranchPrune else [step]
            )

    return FormCompiler


class _Kernel(CPUDispatcher):
    """A kernel, lowered once: integers of every width, and constants, are passed to it as int64."""

    def get_call_template(self, args: Sequence[types.Type], kws: Mapping[str, types.Type]) -> tuple[object, ...]:
        return super().get_call_template([types.int64 if isinstance(arg, types.Integer) else arg for arg in args], kws)

    def add_overload(self, cres: "CompileResult") -> None:
        self.overloads[tuple(cres.signature.args)] = cres


def _named(function: Callable[..., Any], form: str) -> Callable[..., Any]:
    """The function under a name that no other form has.

    Names are symbols of machine code, and of two forms that two processes compiled, one's calls would reach into the
    other where both are loaded: numba numbers names in one process alone.
    """
    found = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    found.__qualname__ = f"{function.__qualname__}.{form}"
    found.__module__ = function.__module__
    return found


class _Unlowered:
    """A kernel that numba is told of when an entry point which calls it is compiled: most runs load a compiled one."""

    def __init__(self, function: Callable[..., Any], options: dict[str, object]) -> None:
        self.py_func, self._options = function, options

    @cache  # noqa: B019  kernels live as long as the process
    def of_form(self, form: str) -> _Kernel:
        """The kernel for fleets of that form."""
        compiler, function = _compiler_of(form, _KernelCompiler), _named(self.py_func, form)
        return _Kernel(function, targetoptions=self._options, pipeline_class=compiler)


typeof_impl.register(_Unlowered)(lambda found, _context: types.Dispatcher(found.of_form("whole")))


def kernel(function: F) -> F:
    """Compile without reference counting: 34 M sequence-steps/s instead of 5 M, and nothing may be allocated."""
    return _kernel(function, is_inlined=True)


def rare_kernel(function: F) -> F:
    """A kernel that is called, not inlined: its callers stay small, and it is compiled once for all of them."""
    return _kernel(function, is_inlined=False)


def _kernel(function: F, *, is_inlined: bool) -> F:
    if numba.config.DISABLE_JIT:
        return function
    options = {**_OPTIONS, "nopython": True, "forceinline": is_inlined, "no_cpython_wrapper": True}
    return cast(F, _Unlowered(function, options))


class _EntryPoint(CPUDispatcher):
    def compile(self, sig: "Signature") -> object:
        with self._cache.compiled_by_one(sig, self.targetctx), gc_relaxed():
            return super().compile(sig)


def entry_point(function: F, form: str = "whole") -> F:
    """A kernel that Python calls; it releases the interpreter lock, so that replications run side by side."""
    if numba.config.DISABLE_JIT:
        return function
    options = {**_OPTIONS, "nopython": True, "nogil": True}
    compiler, named = _compiler_of(form, _EntryPointCompiler), _named(function, form)
    compiled = _EntryPoint(named, targetoptions=options, pipeline_class=compiler)
    compiled._cache = KernelCache(function, f"entry point, {form}", SOURCES, announced=True)
    return cast(F, compiled)


pass_by_reference(Arrays)

_ENGINES, _REQUEST = (numba.from_dtype(view) for view in (ENGINE_VIEW, REQUEST_VIEW))

_routers: list[tuple[Callable[..., int], np.dtype[np.void]]] = []  # by address, where nothing is compiled


def parameter_dtype(names: tuple[str, ...]) -> np.dtype[np.void]:
    """A router's parameters as a record; without any there is one that is not used."""
    return np.dtype((np.record, [(name, "f8") for name in names or ("unused",)]))


@cache
def router_address(choose: Callable[..., int], parameters: tuple[str, ...] = ()) -> int:
    """Compile a router, or load it; the core calls it at this address.

    It is given the engines as it sees them (`ENGINE_VIEW` of `routing.layout`), the request (`REQUEST_VIEW`), its
    parameters by name, its own memory. It returns an engine.
    """
    if numba.config.DISABLE_JIT:
        _routers.append((choose, parameter_dtype(parameters)))
        return len(_routers)
    options = {"_nrt": False, "error_model": "numpy"}
    values = numba.from_dtype(parameter_dtype(parameters))
    signature = types.int64(_ENGINES[::1], _REQUEST, values, types.int64[::1])
    compiled: Any = CFunc(choose, normalize_signature(signature), {}, options)
    compiled._cache = KernelCache(choose, "router", SOURCES)
    compiled.compile()
    address: int = compiled.address
    return address


def _call_router(
    _context: "TypingContext",
    _address: types.Type,
    engines: types.Type,
    request: types.Type,
    parameters: types.Type,
    memory: types.Type,
) -> "tuple[Signature, Lowering]":
    def call(
        context: "BaseContext", builder: ir.IRBuilder, signature: "Signature", values: Sequence[ir.Value]
    ) -> ir.Value:
        address, engines, request, parameters, memory = values
        record = arrayobj.make_array(signature.args[3])(context, builder, parameters).data
        given = [engines, request, record, memory]
        function = ir.FunctionType(ir.IntType(64), [value.type for value in given])
        return builder.call(builder.inttoptr(address, function.as_pointer()), given)

    return types.int64(types.int64, engines, request, parameters, memory), call


def _call_python_router(
    address: int,
    engines: "EngineViews",
    request: "RequestView",
    parameters: "NDArray[np.float64]",
    memory: "RouterMemory",
) -> int:
    choose, names = _routers[address - 1]
    return choose(engines, request, parameters.view(names).view(np.recarray)[0], memory)


call_router: Callable[..., int] = _call_python_router if numba.config.DISABLE_JIT else intrinsic(_call_router)


_CACHE_LINE_BYTES = 64


def _begin_to_load(
    context: "BaseContext", builder: ir.IRBuilder, signature: "Signature", values: Sequence[ir.Value]
) -> ir.Value:
    kind, index = signature.args[0], values[1:]
    array = arrayobj.make_array(kind)(context, builder, values[0])
    record = cgutils.get_item_pointer(context, builder, kind, array, index, wraparound=False)
    address, word = ir.IntType(8).as_pointer(), ir.IntType(32)
    hint = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(ir.VoidType(), [address, word, word, word]), "llvm.prefetch.p0i8"
    )
    begin = builder.bitcast(record, address)
    for offset in range(0, getattr(kind.dtype, "size", 1), _CACHE_LINE_BYTES):
        line = builder.gep(begin, [word(offset)])
        builder.call(hint, [line, word(1), word(3), word(1)])  # to write, keep, data
    return context.get_dummy_value()


def _prefetch(_context: "TypingContext", _array: types.Type, _index: types.Type) -> "tuple[Signature, Lowering]":
    return types.void(_array, types.int64), _begin_to_load


def _prefetch_in_row(
    _context: "TypingContext", _array: types.Type, _row: types.Type, _index: types.Type
) -> "tuple[Signature, Lowering]":
    return types.void(_array, types.int64, types.int64), _begin_to_load


def _python_prefetch(_array: "AnyArray", *_index: int) -> None:
    pass


prefetch: Callable[..., None] = _python_prefetch if numba.config.DISABLE_JIT else intrinsic(_prefetch)
"""`prefetch(array, index)` begins to load a record that is needed soon; it changes nothing, and any index will do."""
prefetch_in_row: Callable[..., None] = _python_prefetch if numba.config.DISABLE_JIT else intrinsic(_prefetch_in_row)
"""The same of an array of two dimensions."""
