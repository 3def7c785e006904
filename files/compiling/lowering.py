"""How numba compiles kernels.

An entry point is compiled and optimized as one whole. The kernels below it are only lowered and linked into it:
machine code and Python wrappers of their own, which nobody uses, took 4/5 of the time to compile.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numba
from llvmlite import binding
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import register_pass
from numba.core.registry import CPUDispatcher, cpu_target
from numba.core.typed_passes import NativeLowering
from numba.core.untyped_passes import DeadBranchPrune
from numba.extending import intrinsic, typeof_impl

from files.compiling.kernels import WHOLE, Intrinsic, Kernel
from files.compiling.machine_code import MachineCode

if TYPE_CHECKING:
    from numba.core.compiler import CompileResult, StateDict
    from numba.core.compiler_machinery import CompilerPass, PassManager

FOLDING: dict[str, "type[CompilerPass]"] = {}
"""The pass of each form that leaves something out, entered by whoever has forms."""
_OPTIONS: dict[str, object] = {
    "_nrt": False, "error_model": "numpy", "nopython": True, "no_cfunc_wrapper": True, "no_cpython_wrapper": True,
}  # fmt: skip


@cache
def _relocatable_target() -> Any:
    """For every processor of this architecture, as fast as for this one alone, and to lie anywhere in memory."""
    return binding.Target.from_triple(binding.get_process_triple()).create_target_machine(
        opt=numba.config.OPT, cpu="generic", reloc="pic"
    )


class _Unlinked(JITCodeLibrary):
    """A kernel's code, neither optimized nor turned into machine code: its entry point does both."""

    def finalize(self) -> None:
        self._finalized = True


class _OptimizedOnce(JITCodeLibrary):
    """An entry point's code, without numba's first round, which finds counts of references that cancel out."""

    def _optimize_final_module(self) -> None:
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)

    def _finalize_final_module(self) -> None:
        self.machine_code: bytes = _relocatable_target().emit_object(self._final_module)
        self._finalized = True


def _lower_into(library: type[JITCodeLibrary], state: "StateDict") -> None:
    state.library = library(state.targetctx.codegen(), state.func_id.func_qualname)
    state.flags.no_compile = True


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


class _Lowered(CPUDispatcher):
    """A kernel, lowered once: integers of every width, and constants, are passed to it as int64, True as a boolean.

    Lowered for True and for False apart, kernels that it calls were missing in the machine code of some entry points.
    """

    def get_call_template(self, args: Sequence[types.Type], kws: Mapping[str, types.Type]) -> tuple[object, ...]:
        return super().get_call_template([_as_passed(arg) for arg in args], kws)

    def add_overload(self, cres: "CompileResult") -> None:
        self.overloads[tuple(cres.signature.args)] = cres


def _as_passed(kind: types.Type) -> types.Type:
    if isinstance(kind, types.Boolean):
        return types.boolean
    return types.int64 if isinstance(kind, types.Integer) and kind is not types.uint64 else kind


def _named(function: Callable[..., Any], form: str) -> Callable[..., Any]:
    """The function under a name that no other form has: names are symbols of machine code."""
    found = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    found.__qualname__ = f"{function.__qualname__}.{form}"
    found.__module__ = function.__module__
    return found


def kernel_of_form(function: Callable[..., Any], form: str, *, is_inlined: bool) -> Any:
    """A kernel as numba calls it from others."""
    options, compiler = {**_OPTIONS, "forceinline": is_inlined}, _compiler_of(form, _KernelCompiler)
    return _Lowered(_named(function, form), targetoptions=options, pipeline_class=compiler)


def intrinsic_of(emitter: Callable[..., Any]) -> Any:
    """An intrinsic as numba calls it, and knows it from now on."""
    found = intrinsic(emitter)
    cpu_target.typing_context.refresh()
    return found


typeof_impl.register(Kernel)(lambda found, _context: types.Dispatcher(found.of_form(WHOLE)))
typeof_impl.register(Intrinsic)(lambda found, _context: cpu_target.typing_context.resolve_value_type(found.of_numba()))


def compile_entry_point(function: Callable[..., Any], form: str, arguments: tuple[Any, ...]) -> MachineCode:
    """The machine code for arguments of these types."""
    return compile_types(function, form, tuple(_as_passed(numba.typeof(value)) for value in arguments))


def compile_types(function: Callable[..., Any], form: str, given: "tuple[types.Type, ...]") -> MachineCode:
    """The machine code for arguments of these types of numba's."""
    compiler = _compiler_of(form, _EntryPointCompiler)
    dispatcher = CPUDispatcher(_named(function, form), targetoptions=dict(_OPTIONS), pipeline_class=compiler)
    with global_compiler_lock:
        found = dispatcher._compiler.compile(given, None)
        found.library.finalize()
    externals = _externals(found.library._final_module)
    code = found.library.machine_code
    return MachineCode(found.fndesc.llvm_func_name, str(found.signature.return_type), externals, code, b"")


def _externals(module: Any) -> tuple[str, ...]:
    """The functions and variables that the code does not bring along; LLVM's own are instructions."""
    named = [*module.functions, *module.global_variables]
    return tuple(sorted(value.name for value in named if value.is_declaration and not value.name.startswith("llvm.")))
