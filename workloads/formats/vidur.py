"""Vidur's traces: CSV of prefill and decode tokens, with or without arrivals."""

from pathlib import Path
from typing import Final

from workloads.formats.parsing.columns import Columns, read_csv
from workloads.formats.parsing.csv_rows import first_names
from workloads.traces.trace_format import Recorded, TraceFormat

_COLUMNS: Final = Columns(prompt=("num_prefill_tokens",), output="num_decode_tokens", time_unit_s=1.0)


def recognises(head: str) -> bool:
    """Whether the first line names columns of tokens that only this format has."""
    return not set(_COLUMNS.names).isdisjoint(first_names(head))


def read(path: Path, _block_size: int | None, num_requests: int | None) -> Recorded:
    """Arrivals in seconds from the earliest; in a file of lengths alone all requests arrive at once."""
    return read_csv(path, _COLUMNS, num_requests, optional={"time": "arrived_at"})


FORMAT: Final = TraceFormat(
    name="vidur",
    looks_like="CSV with num_prefill_tokens,num_decode_tokens",
    recognises=recognises,
    read=read,
    source="microsoft/vidur, data/processed_traces, MIT (Agrawal et al., Vidur, MLSys 2024)",
)
