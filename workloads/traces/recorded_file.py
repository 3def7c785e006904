"""What a trace file holds."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from files.reading import InputError, begins_with, shown, text_lines
from workloads.formats.parsing.columns import Columns, read_columns
from workloads.formats.parsing.columns import Source as RowSource
from workloads.formats.parsing.csv_rows import csv_rows
from workloads.formats.parsing.log_pattern import LogPattern
from workloads.formats.parsing.parquet_rows import parquet_rows
from workloads.formats.parsing.text_rows import array_cells, json_cells, log_cells
from workloads.traces.trace_file import TIMES, TraceFile, read_names
from workloads.traces.trace_format import PARQUET_MARK, Recorded, TraceFormat, find_format, trace_format

_FIRST_CHARACTERS: Final = 4096


def recorded(file: TraceFile, block_size: int | None, num_rows: int | None) -> tuple[TraceFormat | None, Recorded]:
    """As `TraceFile.recorded`."""
    if len(file.how) > 1:
        raise InputError(f"{shown(file.path)}: {' and '.join(file.how)} exclude each other; leave out all but one")
    path = Path(file.path)
    if file.columns is not None:
        return None, read_columns(path, _columns(read_names(file.columns)), num_rows, _source(path))
    if file.log_pattern is not None:
        return None, _read_log(path, file.log_pattern, num_rows)
    found = find_format(path) if file.format is None else trace_format(file.format)
    return found, found.recorded(path, block_size, num_rows)


def _columns(names: Mapping[str, str]) -> Columns:
    times = [TIMES[name] for name in names if name in TIMES]
    if len({of for of, _ in times}) < len(times):
        raise InputError("columns: time or think is given twice, in two units; leave out one of them")
    units = dict(times)
    column = {TIMES[name][0] if name in TIMES else name: value for name, value in names.items()}
    return Columns(
        prompt=tuple(column["prompt"].split("+")),
        output=column["output"],
        time=column.get("time", ""),
        time_unit_s=units.get("time"),
        session=column.get("session", ""),
        think=column.get("think", ""),
        think_unit_s=units.get("think") or 1.0,
        priority=column.get("priority", ""),
        tenant=column.get("tenant", ""),
        failed="requests without tokens",
    )


def _source(path: Path) -> RowSource:
    if begins_with(path, PARQUET_MARK):
        return parquet_rows
    with text_lines(path) as file:
        first = file.read(_FIRST_CHARACTERS).lstrip()[:1]
    return {"{": json_cells, "[": array_cells}.get(first, csv_rows)


def _read_log(path: Path, given: str, num_rows: int | None) -> Recorded:
    pattern = LogPattern(given)
    names = read_names({name: name for name in pattern.groups})
    skipped = Counter[str]()
    found = read_columns(path, _columns(names), num_rows, log_cells(pattern, skipped))
    lines = f"{skipped.total():,} lines that the log pattern does not match"
    return replace(found, notes=(*found.notes, f"left out of the trace: {lines}")) if skipped else found
