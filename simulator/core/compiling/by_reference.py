"""How kernels are given a run's arrays: as the address of a table that holds each array's data and shape.

As a tuple its several hundred values went from kernel to kernel, which took most of the time to compile.
"""

from hashlib import sha256
from typing import TYPE_CHECKING

from llvmlite import ir
from numba.core import types
from numba.core.datamodel.models import PrimitiveModel
from numba.core.imputils import lower_getattr_generic
from numba.core.types.containers import NamedTuple
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.core.typing.typeof import typeof_impl
from numba.extending import register_model
from numba.np import arrayobj

if TYPE_CHECKING:
    from numba.core.base import BaseContext
    from numba.core.datamodel import DataModelManager
    from numba.core.typing.typeof import _TypeofContext as TypeofContext

    from simulator.core.sglang.layout import SGLangArrays
    from simulator.core.state import Arrays
    from simulator.core.types import AnyArray

_WORD = ir.IntType(64)


class ByReference(types.Type):
    """The type of a named tuple of arrays, and of such tuples, whose kernels get the table's address."""

    def __init__(self, fields: NamedTuple) -> None:
        self.fields = fields
        self.places: dict[
            str, tuple[types.Array | ByReference, int]
        ] = {}  # each field's type, and where its words begin
        word = 0
        for name, kind in zip(fields.fields, fields.types, strict=True):
            self.places[name] = ByReference(kind) if isinstance(kind, NamedTuple) else kind, word
            word += _num_words(kind)
        self.num_words = word
        super().__init__(f"{fields.instance_class.__name__}_{sha256(str(fields.key).encode()).hexdigest()[:16]}")


def _num_words(kind: types.Array | NamedTuple) -> int:
    if isinstance(kind, NamedTuple):
        return sum(_num_words(field) for field in kind.types)
    return 1 + kind.ndim  # data, shape


def pass_by_reference(arrays: type) -> None:
    """Let kernels take a named tuple's arrays by reference."""

    def typeof(value: "Arrays", context: "TypeofContext") -> ByReference:
        return ByReference(NamedTuple([_field_type(field, context) for field in value], type(value)))

    typeof_impl.register(arrays)(typeof)


def _field_type(value: "Arrays | SGLangArrays | AnyArray", context: "TypeofContext") -> types.Type:
    found = typeof_impl(value, context)
    return found.fields if isinstance(found, ByReference) else found


@register_model(ByReference)
class _ReferenceModel(PrimitiveModel):
    def __init__(self, manager: "DataModelManager", kind: ByReference) -> None:
        super().__init__(manager, kind, _WORD.as_pointer())


@infer_getattr
class _Fields(AttributeTemplate):
    key = ByReference

    def generic_resolve(self, kind: ByReference, field: str) -> types.Type | None:
        return kind.places[field][0] if field in kind.places else None


def _array(context: "BaseContext", builder: ir.IRBuilder, kind: ByReference, table: ir.Value, field: str) -> ir.Value:
    """An array as the table has it, which never changes while kernels run: LLVM may load it where and when it likes."""
    _promise(builder.function, kind)
    found, word = kind.places[field]
    if isinstance(found, ByReference):
        return builder.gep(table, [_WORD(word)])
    array = arrayobj.make_array(found)(context, builder)
    data = _loaded(builder, builder.bitcast(table, array.data.type.as_pointer()), word)
    shape = [_loaded(builder, table, word + 1 + axis) for axis in range(found.ndim)]
    strides = [_WORD(context.get_abi_sizeof(context.get_data_type(found.dtype)))]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    arrayobj.populate_array(array, data, shape, strides, strides[-1], None)
    return array._getvalue()


def _promise(function: ir.Function, kind: ByReference) -> None:
    """All of the table that a kernel takes as `a` can be read from the start, so LLVM may load ahead of a branch."""
    for argument in function.args:
        if argument.name == "arg.a":
            has = argument.attributes
            has.dereferenceable = max(has.dereferenceable, kind.num_words * _WORD.width // 8)
            has.align = _WORD.width // 8


def _loaded(builder: ir.IRBuilder, table: ir.Value, word: int) -> ir.Value:
    found = builder.load(builder.gep(table, [_WORD(word)]))
    found.set_metadata("invariant.load", builder.module.add_metadata([]))
    return found


lower_getattr_generic(ByReference)(_array)
