"""The CSV of the Azure LLM inference traces: times and lengths."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from workloads.requests import RequestTable
from workloads.writing.text_rows import Numbers, Piece, write_rows
from workloads.writing.trace_writer import (
    TraceWriter,
    lost_content,
    lost_priority,
    lost_sessions,
    lost_tenants,
    lost_times,
    times_of,
)

_HEAD: Final = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
_FIRST_DAY: Final = np.datetime64("2000-01-01", "D")
_TICKS_PER_S: Final = 10**7  # seven decimals, as published
_DAY_S: Final = 86_400


def write(table: RequestTable, path: Path, _block_size: int) -> None:
    """Times as dates from the 1st of January 2000 on, to 100 ns."""
    ticks = np.rint(times_of(table) * _TICKS_PER_S).astype(np.int64)

    def pieces(rows: slice) -> Sequence[Piece]:
        seconds, fraction = np.divmod(ticks[rows], _TICKS_PER_S)
        days, second = np.divmod(seconds, _DAY_S)
        dates = _FIRST_DAY + days
        months, years = dates.astype("M8[M]"), dates.astype("M8[Y]")
        return (
            Numbers(years.astype(np.int64) + 1970, width=4),
            b"-",
            Numbers((months - years).astype(np.int64) + 1, width=2),
            b"-",
            Numbers((dates - months).astype(np.int64) + 1, width=2),
            b" ",
            Numbers(second // 3600, width=2),
            b":",
            Numbers(second // 60 % 60, width=2),
            b":",
            Numbers(second % 60, width=2),
            b".",
            Numbers(fraction, width=7),
            b",",
            Numbers(table.prompt_tokens[rows]),
            b",",
            Numbers(table.output_tokens[rows]),
            b"\n",
        )

    write_rows(path, table.num_requests, pieces, _HEAD)


def lost(table: RequestTable, _block_size: int) -> tuple[str, ...]:
    """All but times to 100 ns, and lengths."""
    return (
        *lost_times(times_of(table), _TICKS_PER_S, "100 ns"),
        *lost_sessions(table),
        *lost_content(table),
        *lost_priority(table),
        *lost_tenants(table),
    )


WRITER: Final = TraceWriter(
    name="azure",
    suffixes=(".csv",),
    write=write,
    lost=lost,
    clients={"inference-perf": ""},
)
