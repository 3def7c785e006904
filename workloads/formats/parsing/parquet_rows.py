"""Rows of a Parquet file, batch by batch."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from files.names import error_shown, one_line, shortened
from files.reading import InputError, shown
from workloads.formats.parsing.cells import Cells

_ROWS_AT_ONCE, _LISTS_AT_ONCE = 100_000, 1000


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


def parquet_rows(path: Path, needed: Sequence[str], wanted: Callable[[], float]) -> Iterator[dict[str, Cells]]:
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
            rows = range(first_row, first_row + batch.num_rows)
            yield {
                name: Cells(path=path, name=name, column=_array(batch.column(name)), lines=rows, unit="row")
                for name in needed
            }
            first_row = rows.stop
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise _damaged(path, error) from None


def _array(column: Any) -> npt.NDArray[np.generic]:
    """Numbers and dates as NumPy has them, NaN and NaT for none; whole numbers with gaps and all else as objects."""
    kind = str(column.type)
    if kind.startswith(("timestamp", "float", "double", "halffloat")) or ("int" in kind[:4] and not column.null_count):
        found: npt.NDArray[np.generic] = column.to_numpy(zero_copy_only=False)
        return found
    objects = np.empty(len(column), object)
    objects[:] = column.to_pylist()
    return objects


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(f"{shown(path)}: not readable as Parquet: {one_line(error_shown(error))}")
