"""Takes out of a kernel, before it is compiled, what fleets of a form have no use for."""

from types import ModuleType
from typing import TYPE_CHECKING

from numba.core import ir
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.ir_utils import get_definition, guard

from files.compiling.lowering import FOLDING
from simulator.core.compiling.forms import EMPTY, FORMS

if TYPE_CHECKING:
    from numba.core.compiler import StateDict


class _Fold(FunctionPass):
    """Put in the values of a form; numba then drops the branches that they rule out, unseen."""

    form: str

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: "StateDict") -> bool:
        function = state.func_ir
        for block in function.blocks.values():
            for statement in block.body:
                if isinstance(statement, ir.Assign):
                    _replace(function, statement, self.form)
        return True


def _pass_of(form: str) -> type[_Fold]:
    folding = type("Fold", (_Fold,), {"form": form, "_name": f"fold_{form}"})
    return register_pass(mutates_CFG=False, analysis_only=False)(folding)


def enter_forms() -> None:
    """Have kernels be compiled in each form that leaves something out."""
    FOLDING.update({form: _pass_of(form) for form, fields in FORMS.items() if fields})


def _replace(function: ir.FunctionIR, statement: ir.Assign, form: str) -> None:
    old = statement.value
    new = _constant(function, old, FORMS[form]) or _kernel_of_form(function, old, form)
    if new is not None:
        statement.value = new
        function._definitions[statement.target.name] = [
            new if found is old else found for found in function._definitions[statement.target.name]
        ]


def _constant(function: ir.FunctionIR, value: ir.Expr | ir.Global, fields: dict[str, int]) -> ir.Const | None:
    """The constant that a field is, or the length of an empty array."""
    field = _field(value)
    if field in fields:
        return ir.Const(fields[field], value.loc)
    if isinstance(value, ir.Expr) and value.op in ("getitem", "static_getitem"):
        shape = guard(get_definition, function, value.value)
        if _field(shape) == "shape" and _field(guard(get_definition, function, shape.value)) in EMPTY:
            return ir.Const(0, value.loc)
    return None


def _field(value: ir.Expr | ir.Global) -> str | None:
    return value.attr if isinstance(value, ir.Expr) and value.op == "getattr" else None


def _kernel_of_form(function: ir.FunctionIR, value: ir.Expr | ir.Global, form: str) -> ir.Global | None:
    """That form of a kernel which is called by its name, or as one of its module's."""
    found = value.value if isinstance(value, ir.Global) else None
    name = _field(value)
    if name is not None:
        owner = guard(get_definition, function, value.value)
        if isinstance(owner, ir.Global) and isinstance(owner.value, ModuleType):
            found = getattr(owner.value, name, None)
    if found is None or not hasattr(found, "of_form"):
        return None
    return ir.Global(found.py_func.__name__, found.of_form(form), value.loc)
