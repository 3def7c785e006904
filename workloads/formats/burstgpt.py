"""BurstGPT traces, releases 1 to 3: CSV with seconds, request and response tokens, perhaps sessions."""

from pathlib import Path
from typing import Final

from workloads.formats.parsing.columns import Columns, read_csv
from workloads.formats.parsing.csv_rows import first_names
from workloads.traces.trace_format import Recorded, TraceFormat

_COLUMNS: Final = Columns(
    time="Timestamp",
    time_unit_s=1.0,
    prompt=("Request tokens",),
    output="Response tokens",
    failed="failed requests (0 tokens)",
)
_SESSION: Final = "Session ID"


def recognises(head: str) -> bool:
    """Whether the first line names columns of tokens that only this format has."""
    return not {*_COLUMNS.prompt, _COLUMNS.output}.isdisjoint(first_names(head))


def read(path: Path, _block_size: int | None, num_requests: int | None) -> Recorded:
    """Rows without response tokens are failed requests, which are left out; arrivals count from the earliest.

    Release 3 has sessions, whose turns keep their times of arrival.
    """
    return read_csv(path, _COLUMNS, num_requests, optional={"session": _SESSION})


FORMAT: Final = TraceFormat(
    name="burstgpt",
    looks_like="CSV with Timestamp,Request tokens,Response tokens",
    recognises=recognises,
    read=read,
    source="HPMLL/BurstGPT, CC-BY-4.0 (Wang et al., BurstGPT, KDD 2025)",
)
