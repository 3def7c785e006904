"""Azure LLM inference traces of 2023, 2024 or 2025: CSV with a timestamp, prompt tokens, output tokens."""

from pathlib import Path
from typing import Final

from workloads.formats.parsing.columns import Columns, read_csv
from workloads.formats.parsing.csv_rows import first_names
from workloads.traces.trace_format import Recorded, TraceFormat

_COLUMNS: Final = Columns(time="TIMESTAMP", prompt=("ContextTokens",), output="GeneratedTokens")


def recognises(head: str) -> bool:
    """Whether the first line names any of the columns."""
    return not set(_COLUMNS.names).isdisjoint(first_names(head))


def read(path: Path, _block_size: int | None, num_requests: int | None) -> Recorded:
    """Arrivals relative to the earliest row that is read; rows in file order; each request's content its own.

    Timestamps have any number of decimals, all with or all without a zone; other columns are ignored.
    """
    return read_csv(path, _COLUMNS, num_requests)


FORMAT: Final = TraceFormat(
    name="azure",
    looks_like="CSV with TIMESTAMP,ContextTokens,GeneratedTokens",
    recognises=recognises,
    read=read,
    source="Azure/AzurePublicDataset, AzureLLMInferenceTrace_*.csv, CC-BY-4.0 (Patel et al., Splitwise, ISCA 2024)",
)
