"""Parquet under Headcount's own names: all that a table of requests says, content by whole blocks."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from files.reading import InputError
from workloads.requests import NO_PREDECESSOR, IntArray, RequestTable, repeated
from workloads.writing.block_ids import BlockIds, block_ids
from workloads.writing.json_lines import lost_within_blocks
from workloads.writing.trace_writer import TraceWriter, times_of

_ROWS_AT_ONCE: Final = 250_000
_ALIKE: Final = ("priority", "block_size")  # in most rows; of the others a dictionary takes time and saves nothing


def write(table: RequestTable, path: Path, block_size: int) -> None:
    """Columns as docs/reference/file-formats.md has them. Raises InputError without pyarrow."""
    if find_spec("pyarrow") is None:
        raise InputError("Parquet needs pyarrow: pip install 'headcount[parquet]', or write .jsonl")
    from pyarrow import parquet  # noqa: PLC0415  an optional extra

    times_of(table)  # raises where a row has none
    session, ids = _sessions(table), block_ids(table, block_size)
    none = _part(table, slice(0, 0), ids, session, block_size)
    with parquet.ParquetWriter(path, none.schema, use_dictionary=list(_ALIKE)) as writer:
        for start in range(0, table.num_requests, _ROWS_AT_ONCE):
            rows = slice(start, min(start + _ROWS_AT_ONCE, table.num_requests))
            writer.write_table(_part(table, rows, ids, session, block_size))


def _sessions(table: RequestTable) -> IntArray:
    """[n] the row of each session's first turn; NO_PREDECESSOR where there is one turn alone."""
    if (table.follows < 0).all():
        return repeated(NO_PREDECESSOR, table.num_requests, np.int64)
    first = table.first_turns()
    turns = np.bincount(first, minlength=table.num_requests)
    return np.where(turns[first] > 1, first, NO_PREDECESSOR)


def _part(table: RequestTable, rows: slice, ids: BlockIds, session: IntArray, block_size: int) -> Any:
    import pyarrow as pa  # noqa: PLC0415  an optional extra

    blocks, follows = ids.of_rows(rows), table.follows[rows] >= 0
    columns = {
        "arrival_s": pa.array(table.arrival_s[rows], mask=follows),
        "input_tokens": pa.array(table.prompt_tokens[rows]),
        "output_tokens": pa.array(table.output_tokens[rows]),
        "session_id": pa.array(session[rows], mask=session[rows] < 0),
        "think_time_s": pa.array(table.think_s[rows], mask=~follows),
        "priority": pa.array(table.priority[rows]),
        "hash_ids": pa.LargeListArray.from_arrays(blocks.start, blocks.values),
        "block_size": pa.array(np.full(len(follows), block_size)),
    }
    if table.tenancy is not None:
        names = pa.array([tenant.name for tenant in table.tenancy.tenants])
        columns["tenant"] = pa.DictionaryArray.from_arrays(pa.array(table.tenancy.of[rows]), names).cast(pa.string())
    return pa.table(columns).replace_schema_metadata({"hash_id_scope": "global"})


WRITER: Final = TraceWriter(name="parquet", suffixes=(".parquet",), write=write, lost=lost_within_blocks)
