"""Parquet tables with one request per row, under Headcount's own names."""

from pathlib import Path
from typing import Any, Final

from workloads.formats.parsing.columns import Columns, read_columns
from workloads.formats.parsing.parquet_rows import parquet_file, parquet_rows
from workloads.traces.trace_format import PARQUET_MARK, Recorded, TraceFormat

_SCOPE: Final = b"hash_id_scope"
_OPTIONAL: Final = {
    "time": "arrival_s", "session": "session_id", "think": "think_time_s", "priority": "priority",
    "tenant": "tenant",
    "ids": "hash_ids", "block_size": "block_size", "block_tokens": "block_tokens", "prefix": "cached_prefix_tokens",
}  # fmt: skip


def read(path: Path, _block_size: int | None, num_requests: int | None) -> Recorded:
    """`input_tokens` and `output_tokens`; of `arrival_s`, `session_id`, `think_time_s`, … what is there.

    Block ids are equal content throughout the file, or, where there are think times or the file's metadata say
    `hash_id_scope` session, within a session. Without ids a session's turns share what its lengths say.
    """
    file = parquet_file(path)
    names, metadata = file.schema_arrow.names, file.schema_arrow.metadata or {}
    found = {says: name for says, name in _OPTIONAL.items() if name in names}
    if "time" in found and _is_empty(file, found["time"]):
        del found["time"]
    if "ids" not in found or not {"block_size", "block_tokens"} & found.keys():
        found = {says: name for says, name in found.items() if says not in ("ids", "block_size", "block_tokens")}
    scope = metadata.get(_SCOPE, b"session" if "think" in found else b"global")
    columns = Columns(
        prompt=("input_tokens",),
        output="output_tokens",
        time_unit_s=1.0,
        ids_are_sessions=scope != b"global",
        failed="requests without tokens",
    )
    return read_columns(path, columns.with_names(found), num_requests, parquet_rows)


def _is_empty(file: Any, name: str) -> bool:
    """Whether no row has a value; told by the file's statistics."""
    metadata = file.metadata
    place = next(at for at in range(metadata.num_columns) if metadata.schema.column(at).path == name)
    counts = [metadata.row_group(group).column(place).statistics for group in range(metadata.num_row_groups)]
    return all(count is not None and count.null_count == count.num_values + count.null_count for count in counts)


FORMAT: Final = TraceFormat(
    name="parquet",
    looks_like="Parquet with input_tokens, output_tokens",
    recognises=lambda head: head == PARQUET_MARK.decode(),
    read=read,
    source="Headcount's own names; see docs/reference/file-formats.md",
)
