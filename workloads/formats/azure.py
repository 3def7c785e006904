"""Azure LLM inference traces of 2023, 2024 or 2025: CSV with a timestamp, prompt tokens, output tokens."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np
import pandas as pd

from boundary.files import InputError, shown, text_lines
from boundary.names import one_line, shortened
from workloads.requests import FloatArray, IntArray, RequestTable, independent_requests
from workloads.trace_format import TraceFormat, check_rows

_COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_YEARS: Final = (pd.Timestamp("1970-01-01", tz="UTC"), pd.Timestamp("2200-01-01", tz="UTC"))
_ROWS_AT_ONCE: Final = 1_000_000  # keeps the text of the 27 million rows of 2024 out of memory


def recognises(head: str) -> bool:
    """Whether the first line names any of the columns."""
    return not set(_COLUMNS).isdisjoint(_names(head.splitlines()[0]))


def read(path: Path, _trace_block_size: int, num_requests: int | None) -> RequestTable:
    """Arrivals relative to the earliest row that is read; rows in file order; each request's content its own.

    Timestamps have any number of decimals up to 9, with or without a zone; other columns are ignored.
    """
    names = _check_header(path)
    parts: list[tuple[IntArray, IntArray, IntArray]] = []
    num_rows, blank_line = 0, 0
    rows_at_once = min(num_requests or _ROWS_AT_ONCE, _ROWS_AT_ONCE)
    with text_lines(path) as file:
        for part, first_line in _parts(path, file, names, rows_at_once):
            rows = _without_trailing_blanks(part)
            if blank_line and len(rows):
                raise InputError(f"{shown(path)}, line {blank_line}: is empty; only the end of the file may be")
            if len(rows) < len(part):
                blank_line = blank_line or first_line + len(rows)
            parts.append(_checked(path, rows, first_line))
            num_rows += len(rows)
            check_rows(path, num_rows)
            if num_requests is not None and num_rows >= num_requests:
                break
    if num_rows == 0:
        raise InputError(f"{shown(path)}: has a header but no rows; a trace needs at least one request")
    times, prompt_tokens, output_tokens = (np.concatenate(column) for column in zip(*parts, strict=True))
    return independent_requests(
        arrival_s=(times - times.min()) / 1e9, prompt_tokens=prompt_tokens, output_tokens=output_tokens
    )


def _parts(path: Path, file: TextIO, names: list[str], rows_at_once: int) -> Iterator[tuple[pd.DataFrame, int]]:
    """Rows as text, with the line of the first of them."""
    first_line = 2
    try:
        for part in pd.read_csv(
            file,
            header=0,
            names=names,
            dtype=str,
            keep_default_na=False,
            skip_blank_lines=False,
            skipinitialspace=True,
            quoting=csv.QUOTE_NONE,  # a quotation mark that is never closed would take in the whole file
            chunksize=rows_at_once,
        ):
            yield part, first_line
            first_line += len(part)
    except pd.errors.ParserError as error:
        raise InputError(f"{shown(path)}: not readable as CSV: {str(error).splitlines()[-1]}") from None


def _checked(path: Path, rows: pd.DataFrame, first_line: int) -> tuple[IntArray, IntArray, IntArray]:
    """Nanoseconds, prompt tokens, output tokens."""
    times, *lengths = (_unquoted(rows[name]) for name in _COLUMNS)
    nanoseconds = _nanoseconds(path, times, first_line)
    prompt_tokens, output_tokens = (_token_counts(path, texts, first_line) for texts in lengths)
    return nanoseconds, prompt_tokens, output_tokens


def _unquoted(texts: "pd.Series[Any]") -> "pd.Series[Any]":
    return texts.str.strip('"') if len(texts) and str(texts.iloc[0]).startswith('"') else texts


def _names(header: str) -> list[str]:
    return [name.strip().strip('"') for name in header.split(",")]


def _check_header(path: Path) -> list[str]:
    """The names of the columns."""
    with text_lines(path) as file:
        names, first_row = _names(file.readline()), file.readline()
    header = shortened(one_line(", ".join(names)), 200)
    missing = [name for name in _COLUMNS if name not in names]
    if missing:
        raise InputError(f"{shown(path)}, line 1: no column {', '.join(missing)}; the header has {header}")
    if len(set(names)) < len(names):
        raise InputError(f"{shown(path)}, line 1: a column is there twice; the header has {header}")
    num_fields = first_row.count(",") + 1  # pandas would take a first row that is too long as one with row names
    if num_fields > len(names):
        raise InputError(f"{shown(path)}, line 2: has {num_fields} fields; the header has {len(names)}")
    return names


def _without_trailing_blanks(part: pd.DataFrame) -> pd.DataFrame:
    filled = np.flatnonzero((part.fillna("") != "").any(axis=1).to_numpy())
    return part.iloc[: filled[-1] + 1 if len(filled) else 0]


def _nanoseconds(path: Path, texts: "pd.Series[Any]", first_line: int) -> IntArray:
    times = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
    bad = ~times.between(*_YEARS).to_numpy() | (texts >= ":").to_numpy(bool)  # pandas knows "now" and "today", too
    _refuse(path, texts, bad, first_line, "a date such as 2023-11-16 18:15:46.6805900")
    return np.asarray(times.dt.as_unit("ns").astype("int64"), dtype=np.int64)


def _token_counts(path: Path, texts: "pd.Series[Any]", first_line: int) -> IntArray:
    counts: FloatArray = pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64)
    bad = ~((counts >= 1) & (counts < 2**31) & (counts == np.floor(counts)))
    _refuse(path, texts, bad, first_line, "a whole number of tokens, at least 1")
    return counts.astype(np.int64)


def _refuse(path: Path, texts: "pd.Series[Any]", bad: Any, first_line: int, allowed: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        found = texts.iloc[row]
        value = repr(shortened(found)) if isinstance(found, str) and found else "empty"
        raise InputError(f"{shown(path)}, line {first_line + row}: {texts.name} is {value}; it must be {allowed}")


FORMAT: Final = TraceFormat(
    name="azure",
    looks_like=f"CSV with {','.join(_COLUMNS)}",
    recognises=recognises,
    read=read,
    source="Azure/AzurePublicDataset, AzureLLMInferenceTrace_*.csv, CC-BY-4.0 (Patel et al., Splitwise, ISCA 2024)",
)
