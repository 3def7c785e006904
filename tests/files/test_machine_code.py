"""Machine code that is loaded without numba: the same answers in every way, and nothing that a process lacks."""

import pickle
import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from files.compiling import kernels, lowering, machine_code
from files.compiling.kernels import IS_COMPILED
from files.compiling.machine_code import ArrayTable, MachineCode, argument_type, callable_at, linked
from files.errors import HeadcountError

pytestmark = pytest.mark.skipif(not IS_COMPILED, reason="nothing is compiled")
Values = NDArray[np.float64]


def scaled_sums(values: Values, factor: float, pair: tuple[Values, NDArray[np.int32]], start: int) -> float:
    total = 0.0
    for row in range(start, values.shape[0]):
        for column in range(values.shape[1]):
            pair[0][row] += np.log(values[row, column]) * factor / pair[1][column]
        total += pair[0][row]
    return total


def arguments(rows: int = 7) -> tuple[Any, ...]:
    values = np.random.default_rng(rows).random((rows, 5))
    return values, 1.75, (np.zeros(rows), np.arange(1, 6, dtype=np.int32)), 1


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> MachineCode:
    found = lowering.compile_entry_point(scaled_sums, kernels.WHOLE, arguments())
    return found._replace(shared_object=linked(found.object_file, tmp_path_factory.mktemp("linked")))


def called(code: MachineCode, load: Callable[[MachineCode], int], given: tuple[Any, ...]) -> tuple[float, bytes]:
    call = callable_at(load(code), code.returns, "scaled_sums", given)
    return call(given), given[2][0].tobytes()


def test_a_shared_object_and_llvm_give_the_same_bytes_as_python(code: MachineCode) -> None:
    given = arguments()
    expected = scaled_sums(*given), given[2][0].tobytes()
    assert called(code, machine_code._load_by_llvm, arguments()) == expected
    if not shutil.which("ld"):
        pytest.skip("this machine has no linker: install binutils")
    assert code.shared_object, "linked"
    assert called(code, machine_code._load_shared, arguments()) == expected


@pytest.mark.skipif(platform.machine() != "x86_64" or not shutil.which("objdump"), reason="reads x86 instructions")
def test_kernels_use_no_instruction_that_some_processors_of_the_architecture_lack(
    code: MachineCode, tmp_path: Path
) -> None:
    """A container image ships kernels. AVX and later have the prefix v, or larger registers."""
    (tmp_path / "kernel.o").write_bytes(code.object_file)
    command = ["objdump", "--disassemble", "--no-show-raw-insn", tmp_path / "kernel.o"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    instructions = re.findall(r"^ +[0-9a-f]+:\t(\w+)", shown, re.MULTILINE)
    assert "mulsd" in instructions
    assert not [name for name in instructions if name.startswith("v")]
    assert not re.search(r"%[yz]mm", shown)


def test_what_is_kept_is_what_was_compiled(code: MachineCode) -> None:
    assert MachineCode.from_bytes(code.to_bytes()) == code


def test_without_a_linker_llvm_loads_it(code: MachineCode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert linked(code.object_file, tmp_path) == linked(code.object_file, tmp_path / "absent") == b""
    assert called(code._replace(shared_object=b""), machine_code.load, arguments()) == called(
        code, machine_code.load, arguments()
    )


def test_a_shared_object_that_the_system_refuses_is_loaded_by_llvm(code: MachineCode) -> None:
    expected = called(code, machine_code._load_by_llvm, arguments())
    assert called(code._replace(shared_object=b"\x7fELF"), machine_code.load, arguments()) == expected


def test_code_that_needs_what_the_process_lacks_is_refused(code: MachineCode) -> None:
    with pytest.raises(HeadcountError, match="this process has no numba_is_absent"):
        machine_code.load(code._replace(externals=("numba_is_absent",), shared_object=b""))


def test_arrays_with_gaps_between_their_items_are_passed_as_they_are() -> None:
    values, factor, (_, counts), start = arguments(14)
    given = (values[::2], factor, (np.zeros(14)[::2], np.repeat(counts, 2)[::2]), start)
    expected = scaled_sums(given[0].copy(), factor, (np.zeros(7), counts), start)
    found = lowering.compile_entry_point(scaled_sums, kernels.WHOLE, given)
    assert callable_at(machine_code.load(found), found.returns, "scaled_sums", given)(given) == expected


def test_each_kind_of_argument_has_code_of_its_own() -> None:
    values = np.zeros((2, 2))
    frozen = values.copy()
    frozen.flags.writeable = False
    kinds = [
        values, values.astype(np.int64), values[0], np.zeros((4, 4))[::2, ::2], frozen, np.uint64(1), 1, 1.0, (1, 1.0),
        np.zeros(1, [("a", "i4"), ("b", "i4")]), np.zeros(1, [("b", "i4"), ("a", "i4")]),
    ]  # fmt: skip
    assert len({argument_type(value) for value in kinds}) == len(kinds)
    assert argument_type(True) == argument_type(np.int32(1)) == argument_type(1)
    with pytest.raises(TypeError, match="kernels take no str"):
        argument_type("1")


class Fields(NamedTuple):
    one: NDArray[np.int64]
    inner: tuple[Values, ...]


class Table(Fields, ArrayTable):
    """A table of arrays."""


def test_a_table_of_addresses_is_made_anew_where_arrays_are_replaced_or_pickled() -> None:
    table = Table(np.zeros(3, np.int64), (np.ones((2, 4)),))
    assert table.table.tolist() == [table.one.ctypes.data, 3, table.inner[0].ctypes.data, 2, 4]
    other = table._replace(one=np.zeros(5, np.int64))
    assert other.table.tolist()[:2] == [other.one.ctypes.data, 5]
    copied = pickle.loads(pickle.dumps(table))
    assert copied.table[0] == copied.one.ctypes.data != table.table[0]
    with pytest.raises(AssertionError, match="contiguous"):
        _ = Table(np.zeros(6, np.int64)[::2], ()).table
