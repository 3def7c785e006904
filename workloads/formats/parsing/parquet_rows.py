"""Rows of a Parquet file, batch by batch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from files.names import error_shown, one_line, shortened
from files.reading import InputError, shown
from workloads.formats.parsing.cells import A_NUMBER, A_WHOLE, MOST_NUMBER, tokens_in_words
from workloads.formats.parsing.dates import A_DATE, Zones
from workloads.requests import OPEN_END, BoolArray, FloatArray, IntArray

_ROWS_AT_ONCE, _LISTS_AT_ONCE = 100_000, 1000


@dataclass(frozen=True, kw_only=True)
class Values:
    """One column of some rows, as `Cells` has it from text."""

    path: Path
    name: str
    first_row: int
    column: Any
    """A pyarrow array."""

    def place(self, row: int) -> str:
        return f"row {self.first_row + row}"

    def text(self, row: int) -> str:
        found = self.column[row].as_py()
        return "" if found is None else str(found)

    def texts(self) -> list[str]:
        return ["" if value is None else str(value) for value in self.column.to_pylist()]

    def lists(self) -> list[list[int] | None]:
        found: list[list[int] | None] = self.column.to_pylist()
        for row, value in enumerate(found):
            if value is not None and not (isinstance(value, list) and all(isinstance(item, int) for item in value)):
                raise self.refuse(row, "a list of whole numbers")
        return found

    def tokens(self, *, least: int = 1) -> IntArray:
        found = self._numbers(tokens_in_words(least))
        self._require((found >= least) & (found < OPEN_END) & (found == np.floor(found)), tokens_in_words(least))
        return found.astype(np.int64)

    def whole(self) -> IntArray:
        found = np.nan_to_num(self._numbers(A_WHOLE), nan=0.0)
        self._require((np.abs(found) < 2**31) & (found == np.floor(found)), A_WHOLE)
        return found.astype(np.int64)

    def numbers(self, *, may_lack: bool = False) -> FloatArray:
        found = self._numbers(A_NUMBER)
        self._require((found >= 0) & (found <= MOST_NUMBER) | (may_lack & np.isnan(found)), A_NUMBER)
        return found

    def nanoseconds(self, _zones: Zones, *, may_lack: bool = False) -> IntArray:
        if not str(self.column.type).startswith("timestamp"):
            raise self.refuse(0, A_DATE)
        found = self.column.to_numpy(zero_copy_only=False).astype("datetime64[ns]").astype(np.int64)
        is_empty = found == np.iinfo(np.int64).min
        self._require((found >= 0) | (may_lack & is_empty), A_DATE)
        return np.where(is_empty, -1, found)

    def _numbers(self, allowed: str) -> FloatArray:
        """NaN where there is none."""
        try:
            return np.array(self.column.to_numpy(zero_copy_only=False), np.float64)
        except (TypeError, ValueError):
            raise self.refuse(0, allowed) from None

    def _require(self, is_right: BoolArray, allowed: str) -> None:
        if not is_right.all():
            raise self.refuse(int(np.argmin(is_right)), allowed)

    def refuse(self, row: int, allowed: str) -> InputError:
        found = self.text(row)
        value = repr(shortened(found)) if found else "empty"
        return InputError(f"{shown(self.path)}, {self.place(row)}: {self.name} is {value}; it must be {allowed}")


def parquet_file(path: Path) -> Any:
    """The file, open. Raises InputError where it is damaged, or nothing here can read it."""
    try:
        from pyarrow import parquet  # noqa: PLC0415  an optional extra
    except ImportError:
        raise InputError(f"{shown(path)}: Parquet needs pyarrow: pip install 'headcount[parquet]'") from None
    try:
        return parquet.ParquetFile(path)
    except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
        raise _damaged(path, error) from None


def parquet_rows(path: Path, needed: Sequence[str], wanted: Callable[[], float]) -> Iterator[dict[str, Values]]:
    """The rows of the file; columns go by name. `wanted` says how many more rows are wanted. Raises InputError."""
    file = parquet_file(path)
    names = file.schema_arrow.names
    missing = [name for name in needed if name not in names]
    if missing:
        has = shortened(one_line(", ".join(names)), 200)
        raise InputError(f"{shown(path)}: no column {', '.join(missing)}; it has {has}")
    first_row = 1
    try:
        has_lists = any(str(file.schema_arrow.field(name).type).startswith(("list", "large_list")) for name in needed)
        most = min(_LISTS_AT_ONCE if has_lists else _ROWS_AT_ONCE, wanted())
        for batch in file.iter_batches(batch_size=int(most), columns=list(needed)):
            if wanted() <= 0:
                return
            yield {
                name: Values(
                    path=path, name=name, first_row=first_row, column=batch.column(batch.schema.names.index(name))
                )
                for name in needed
            }
            first_row += batch.num_rows
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(f"{shown(path)}: not readable as Parquet: {one_line(error_shown(error))}")
