"""Takes out of a kernel, before it is compiled, what a plain fleet has no use for."""

from types import ModuleType
from typing import Any

from numba.core import ir
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.dispatcher import Dispatcher
from numba.core.ir_utils import get_definition, guard

from simulator.core.compiling.plain import EMPTY, FIELDS


@register_pass(mutates_CFG=False, analysis_only=False)
class FoldPlain(FunctionPass):
    """Put in the values of a plain fleet; numba then drops the branches that they rule out, unseen."""

    _name = "fold_plain"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        function = state.func_ir
        for block in function.blocks.values():
            for statement in block.body:
                if isinstance(statement, ir.Assign):
                    _replace(function, statement)
        return True


def _replace(function: Any, statement: Any) -> None:
    old = statement.value
    new = _constant(function, old) or _plain_kernel(function, old)
    if new is not None:
        statement.value = new
        function._definitions[statement.target.name] = [
            new if found is old else found for found in function._definitions[statement.target.name]
        ]


def _constant(function: Any, value: Any) -> Any:
    """The constant that a field is, or the length of an empty array."""
    field = _field(value)
    if field in FIELDS:
        return ir.Const(FIELDS[field], value.loc)
    if isinstance(value, ir.Expr) and value.op in ("getitem", "static_getitem"):
        shape = guard(get_definition, function, value.value)
        if _field(shape) == "shape" and _field(guard(get_definition, function, shape.value)) in EMPTY:
            return ir.Const(0, value.loc)
    return None


def _field(value: Any) -> str | None:
    return value.attr if isinstance(value, ir.Expr) and value.op == "getattr" else None


def _plain_kernel(function: Any, value: Any) -> Any:
    """The plain form of a kernel that is called by its name, or as one of its module's."""
    found = value.value if isinstance(value, ir.Global) else None
    name = _field(value)
    if name is not None:
        owner = guard(get_definition, function, value.value)
        if isinstance(owner, ir.Global) and isinstance(owner.value, ModuleType):
            found = getattr(owner.value, name, None)
    if not isinstance(found, Dispatcher) or not hasattr(found, "plain"):
        return None
    return ir.Global(found.py_func.__name__, found.plain, value.loc)
