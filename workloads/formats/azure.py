"""Azure LLM inference traces of 2023, 2024 or 2025: CSV with a timestamp, prompt tokens, output tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from boundary.names import shortened
from workloads.errors import TraceError
from workloads.requests import FloatArray, IntArray, RequestTable, independent_requests
from workloads.trace_format import TraceFormat

_COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_ROWS_AT_ONCE: Final = 1_000_000  # keeps the text of the 27 million rows of 2024 out of memory


def recognises(head: str) -> bool:
    """Whether the first line names any of the columns."""
    return not set(_COLUMNS).isdisjoint(_names(head.splitlines()[0]))


def read(path: Path, _trace_block_size: int) -> RequestTable:
    """Arrivals relative to the earliest row; rows in file order; each request's content its own.

    Timestamps have any number of decimals up to 9, with or without a zone; other columns are ignored.
    """
    _check_header(path)
    nanoseconds: list[IntArray] = []
    lengths: dict[str, list[IntArray]] = {name: [] for name in _COLUMNS[1:]}
    try:
        first_line = 2
        for part in pd.read_csv(
            path,
            dtype=str,
            keep_default_na=False,
            skip_blank_lines=False,
            skipinitialspace=True,
            encoding="utf-8-sig",
            chunksize=_ROWS_AT_ONCE,
        ):
            rows = _without_trailing_blanks(part)
            nanoseconds.append(_nanoseconds(path, rows["TIMESTAMP"], first_line))
            for name, parts in lengths.items():
                parts.append(_token_counts(path, rows[name], first_line))
            first_line += len(part)
    except UnicodeDecodeError:
        raise TraceError(f"{path}: not a text file; traces are CSV in UTF-8") from None
    except pd.errors.ParserError as error:
        raise TraceError(f"{path}: not readable as CSV: {str(error).splitlines()[-1]}") from None
    times = np.concatenate(nanoseconds) if nanoseconds else np.zeros(0, np.int64)
    if len(times) == 0:
        raise TraceError(f"{path}: has a header but no rows; a trace needs at least one request")
    return independent_requests(
        arrival_s=(times - times.min()) / 1e9,
        prompt_tokens=np.concatenate(lengths["ContextTokens"]),
        output_tokens=np.concatenate(lengths["GeneratedTokens"]),
    )


def _names(header: str) -> list[str]:
    return [name.strip().strip('"') for name in header.split(",")]


def _check_header(path: Path) -> None:
    with path.open(encoding="utf-8-sig") as file:
        names, first_row = _names(file.readline()), file.readline()
    missing = [name for name in _COLUMNS if name not in names]
    if missing:
        header = shortened(", ".join(names), 200)
        raise TraceError(f"{path}, line 1: no column {', '.join(missing)}; the header has {header}")
    num_fields = first_row.count(",") + 1  # pandas would take a first row that is too long as one with row names
    if num_fields > len(names):
        raise TraceError(f"{path}, line 2: has {num_fields} fields; the header has {len(names)}")


def _without_trailing_blanks(part: pd.DataFrame) -> pd.DataFrame:
    filled = np.flatnonzero((part.fillna("") != "").any(axis=1).to_numpy())
    return part.iloc[: filled[-1] + 1 if len(filled) else 0]


def _nanoseconds(path: Path, texts: pd.Series[Any], first_line: int) -> IntArray:
    times = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
    _refuse(path, texts, times.isna().to_numpy(), first_line, "a date such as 2023-11-16 18:15:46.6805900")
    return np.asarray(times.dt.as_unit("ns").astype("int64"), dtype=np.int64)


def _token_counts(path: Path, texts: pd.Series[Any], first_line: int) -> IntArray:
    counts: FloatArray = pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64)
    bad = ~((counts >= 1) & (counts < 2**31) & (counts == np.floor(counts)))
    _refuse(path, texts, bad, first_line, "a whole number of tokens, at least 1")
    return counts.astype(np.int64)


def _refuse(path: Path, texts: pd.Series[Any], bad: Any, first_line: int, allowed: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        found = texts.iloc[row]
        shown = repr(shortened(found)) if isinstance(found, str) and found else "empty"
        raise TraceError(f"{path}, line {first_line + row}: {texts.name} is {shown}; it must be {allowed}")


FORMAT: Final = TraceFormat(
    name="azure",
    looks_like=f"CSV with {','.join(_COLUMNS)}",
    recognises=recognises,
    read=read,
    source="Azure/AzurePublicDataset, AzureLLMInferenceTrace_*.csv, CC-BY-4.0 (Patel et al., Splitwise, ISCA 2024)",
)
