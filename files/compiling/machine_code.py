"""Machine code that is loaded and called without numba, whose import takes longer than most simulations.

Numba's native functions take the address of their result, one for an exception, and their arguments piece by piece:
of an array the owner and the parent (none here), the size, the item's size, the address, the shape, the strides.
"""

import ctypes
import json
import os
import sys
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from files.errors import HeadcountError

_RESULTS: dict[str, Any] = {
    "none": ctypes.c_void_p,
    "bool": ctypes.c_bool,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "float64": ctypes.c_double,
}
"""What a kernel may return, by numba's names."""


class MachineCode(NamedTuple):
    """A function and all that it calls but `externals`, which the process must have."""

    symbol: str
    returns: str
    externals: tuple[str, ...]
    object_file: bytes
    shared_object: bytes
    """The same, linked; empty where this machine has no linker."""

    def to_bytes(self) -> bytes:
        """A line of JSON, then both files."""
        line = json.dumps([*self[:3], len(self.object_file)])
        return line.encode() + b"\n" + self.object_file + self.shared_object

    @classmethod
    def from_bytes(cls, stored: bytes) -> "MachineCode":
        line, _, content = stored.partition(b"\n")
        symbol, returns, externals, size = json.loads(line)
        return cls(symbol, returns, tuple(externals), content[:size], content[size:])


def linked(object_file: bytes, folder: Path) -> bytes:
    """The shared object of an object file, made in a private folder; empty where there is no linker that does it."""
    import shutil  # noqa: PLC0415  these three where something is compiled
    import subprocess  # noqa: PLC0415
    import tempfile  # noqa: PLC0415

    linker = shutil.which("ld") if sys.platform == "linux" else None
    if linker is None:
        return b""
    try:
        with tempfile.TemporaryDirectory(dir=folder) as inside:
            given, made = Path(inside, "kernel.o"), Path(inside, "kernel.so")
            given.write_bytes(object_file)
            done = subprocess.run([linker, "-shared", "-o", made, given], capture_output=True, check=False)
            return made.read_bytes() if done.returncode == 0 else b""
    except OSError:  # such as a full disk
        return b""


_kept: list[Any] = []  # what was loaded is never freed: its address may be anywhere


def load(code: MachineCode) -> int:
    """The function's address in this process; raises HeadcountError where the process lacks what it calls."""
    try:
        return _load_shared(code)
    except OSError:
        return _load_by_llvm(code)


def _load_shared(code: MachineCode) -> int:
    """Load a shared object from memory, so that what was checked is what is loaded: 40 MB less than with LLVM."""
    if not code.shared_object:
        raise OSError("there is none")
    descriptor = os.memfd_create("kernel")  # stays open: the system knows a library by its path, which must be its own
    with open(descriptor, "wb", closefd=False) as file:
        file.write(code.shared_object)
    library = ctypes.CDLL(f"/proc/self/fd/{descriptor}", os.RTLD_NOW | os.RTLD_LOCAL)
    _kept.append(library)
    try:
        return ctypes.cast(library[code.symbol], ctypes.c_void_p).value or 0
    except AttributeError as error:
        raise OSError(str(error)) from error


@cache
def _target_machine() -> Any:
    from llvmlite import binding  # noqa: PLC0415  30 ms and 40 MB, where it is needed

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding.Target.from_default_triple().create_target_machine(jit=True)


def _load_by_llvm(code: MachineCode) -> int:
    """Load an object file; each has an engine of its own, since two processes give different functions one symbol."""
    from llvmlite import binding  # noqa: PLC0415  as above

    lacking = [name for name in code.externals if binding.address_of_symbol(name) is None]
    if lacking:
        raise HeadcountError(f"this process has no {lacking[0]}")
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), _target_machine())
    engine.add_object_file(binding.ObjectFileRef.from_data(code.object_file))
    engine.finalize_object()
    address: int = engine.get_function_address(code.symbol)
    if not address:
        raise HeadcountError(f"it has no {code.symbol}")
    _kept.append(engine)
    return address


@cache
def _dtype_text(dtype: np.dtype[Any]) -> str:
    """All that code depends on: of a record each field's name, type and offset."""
    if dtype.names is None or dtype.fields is None:
        return dtype.str
    fields = [(name, _dtype_text(dtype.fields[name][0]), dtype.fields[name][1]) for name in dtype.names]
    return f"{fields}{dtype.itemsize}"


class ArrayTable(tuple[Any, ...]):
    """A named tuple of arrays, and of such tuples, that kernels get as one address: of each array's address and shape.

    The arrays are contiguous.
    """

    @cached_property
    def table(self) -> NDArray[np.int64]:
        words: list[int] = []
        for array in _arrays(self):
            assert array.flags.c_contiguous, "kernels take contiguous arrays alone"
            words += (array.ctypes.data, *array.shape)
        return np.array(words, np.int64)

    @cached_property
    def types(self) -> str:
        return " ".join([f"{_dtype_text(array.dtype)}{array.ndim}{array.flags.writeable}" for array in _arrays(self)])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(self)  # without the addresses, which are this process's


def _arrays(value: tuple[Any, ...]) -> list[NDArray[Any]]:
    return [array for item in value for array in (_arrays(item) if isinstance(item, tuple) else [item])]


def argument_type(value: Any) -> str:
    """What the code for an argument depends on; integers of all widths are passed as 64 bits."""
    if isinstance(value, np.ndarray):
        layout = "C" if value.flags.c_contiguous else "F" if value.flags.f_contiguous else "A"
        return f"{_dtype_text(value.dtype)}{value.ndim}{layout}{value.flags.writeable}"
    if isinstance(value, ArrayTable):
        return value.types
    if isinstance(value, tuple):
        return f"({' '.join(map(argument_type, value))})"
    if isinstance(value, np.uint64):
        return "uint64"
    if isinstance(value, int | np.integer):
        return "int64"
    if isinstance(value, float):
        return "float64"
    raise TypeError(f"kernels take no {type(value).__name__}")


def _pieces(value: Any) -> list[int | float]:
    if isinstance(value, np.ndarray):
        return [0, 0, value.size, value.itemsize, value.ctypes.data, *value.shape, *value.strides]
    if isinstance(value, ArrayTable):
        return [value.table.ctypes.data]
    if isinstance(value, tuple):
        return [piece for item in value for piece in _pieces(item)]
    return [float(value) if isinstance(value, float) else int(value)]


def callable_at(address: int, returns: str, name: str, arguments: tuple[Any, ...]) -> Callable[[tuple[Any, ...]], Any]:
    """The function at an address, for arguments of the same types as these; the interpreter lock is released."""
    kinds = [ctypes.c_double if isinstance(piece, float) else ctypes.c_int64 for piece in _pieces(arguments)]
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *kinds)(address)
    result_type = _RESULTS[returns]

    def call(arguments: tuple[Any, ...]) -> Any:
        result, exception = result_type(), ctypes.c_void_p()
        status = function(ctypes.addressof(result), ctypes.addressof(exception), *_pieces(arguments))
        assert status == 0, f"{name} failed with status {status}"
        return result.value

    return call
