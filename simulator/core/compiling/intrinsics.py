"""What the core adds to numba: instructions, the type of its arrays, and the passes of its forms."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.np import arrayobj

from files.compiling.kernels import WHOLE
from files.compiling.lowering import compile_types
from files.compiling.machine_code import MachineCode
from simulator.core.compiling.by_reference import pass_by_reference
from simulator.core.compiling.folding import enter_forms
from simulator.core.routing.layout import ENGINE_VIEW, REQUEST_VIEW
from simulator.core.state import Arrays

if TYPE_CHECKING:
    import numpy as np
    from numba.core.base import BaseContext
    from numba.core.typing.context import BaseContext as TypingContext
    from numba.core.typing.templates import Signature

Lowering: TypeAlias = Callable[["BaseContext", "ir.IRBuilder", "Signature", "Sequence[ir.Value]"], "ir.Value"]
"""Emits an intrinsic's code where it is called."""

_ENGINES, _REQUEST = (numba.from_dtype(view) for view in (ENGINE_VIEW, REQUEST_VIEW))
_MEMORY = types.int64[::1]
_CACHE_LINE_BYTES = 64

pass_by_reference(Arrays)
enter_forms()


def compile_router(choose: Callable[..., int], parameters: "np.dtype[np.void]") -> MachineCode:
    """A router's machine code, which `call_router` calls by its address."""
    return compile_types(choose, WHOLE, (_ENGINES[::1], _REQUEST, numba.from_dtype(parameters), _MEMORY))


def call_router(
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
        record = builder.bitcast(record, context.get_value_type(types.voidptr))
        given = (*signature.args[1:3], types.voidptr, signature.args[4])
        function = builder.inttoptr(address, context.call_conv.get_function_type(types.int64, given).as_pointer())
        status, chosen = context.call_conv.call_function(
            builder, function, types.int64, given, [engines, request, record, memory]
        )
        return builder.select(status.is_ok, chosen, ir.Constant(chosen.type, -1))  # no engine

    return types.int64(types.int64, engines, request, parameters, memory), call


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


def prefetch(_context: "TypingContext", _array: types.Type, _index: types.Type) -> "tuple[Signature, Lowering]":
    return types.void(_array, types.int64), _begin_to_load


def prefetch_in_row(
    _context: "TypingContext", _array: types.Type, _row: types.Type, _index: types.Type
) -> "tuple[Signature, Lowering]":
    return types.void(_array, types.int64, types.int64), _begin_to_load
