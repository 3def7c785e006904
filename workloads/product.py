"""The product of two numbers of 64 bits, whole, for numba."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types


def product(_context: object, _one: object, _other: object) -> tuple[Any, Callable[..., Any]]:
    """An intrinsic: the upper and the lower 64 bits."""

    def multiply(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        word, wide = ir.IntType(64), ir.IntType(128)
        product = builder.mul(*(builder.zext(value, wide) for value in values))
        halves = [builder.trunc(part, word) for part in (builder.lshr(product, wide(64)), product)]
        return context.make_tuple(builder, signature.return_type, halves)

    return types.containers.UniTuple(types.uint64, 2)(types.uint64, types.uint64), multiply
