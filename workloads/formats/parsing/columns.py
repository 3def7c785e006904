"""Tables of one row per request, whose columns say the same under other names and in other units."""

import math
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from workloads.formats.parsing.cells import Cells, read_number
from workloads.formats.parsing.csv_rows import csv_rows, first_names, header_of
from workloads.formats.parsing.dates import Zones
from workloads.formats.parsing.rows import Request, Rows
from workloads.requests import OPEN_END, BoolArray, FloatArray, IntArray, independent_requests
from workloads.traces.trace_format import Recorded, TraceFormat, check_rows

RowsRead = Mapping[str, Cells]
"""The cells of rows that were read together, by column."""
Source = Callable[[Path, Sequence[str], Callable[[], float]], Iterator[RowsRead]]
"""Reads the named columns of a file, as long as more rows are wanted."""
ALL_AT_ONCE: Final = "the file has no arrival times: all requests arrive at once"
GROWS: Final = (
    "a turn whose prompt is at least as long as the session's prompt and answer before it is taken to begin with them"
)


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which column says what; an empty name is not said."""

    prompt: tuple[str, ...]
    """Their sum."""
    output: str
    time: str = ""
    time_unit_s: float | None = None
    """None: dates, or seconds where the first is a number."""
    session: str = ""
    think: str = ""
    think_unit_s: float = 1.0
    think_is_after: bool = False
    """Whether it is the time from this row's answer to the next row, else from the last answer to this row."""
    priority: str = ""
    tenant: str = ""
    prefix: str = ""
    """Tokens that the session's row before has, too."""
    ids: str = ""
    """Lists of block ids."""
    block_size: str = ""
    """Tokens of a block."""
    block_tokens: str = ""
    """Lists of the tokens of each block, where they differ."""
    ids_are_sessions: bool = False
    """Whether equal ids are equal content within a session alone; names that differ after a slash are one."""
    number: str = ""
    """Of a row within its session: no two rows have the same."""
    failed: str = ""
    """What a row without output tokens is; without a name for it such a row is refused."""

    @property
    def names(self) -> tuple[str, ...]:
        """All that are needed."""
        others = (
            self.output,
            self.time,
            self.session,
            self.think,
            self.priority,
            self.tenant,
            self.prefix,
            self.ids,
            self.block_size,
            self.block_tokens,
            self.number,
        )
        return tuple(dict.fromkeys(name for name in (*self.prompt, *others) if name))

    def with_names(self, names: Mapping[str, str]) -> "Columns":
        """The same with more columns, by what they say."""
        more: dict[str, Any] = dict(names)
        return replace(self, **more)


@dataclass(kw_only=True)
class _Clock:
    """Times of arrival as seconds since the first row's; dates keep their nanoseconds so."""

    unit_s: float | None
    origin_ns: int | None = None
    zones: Zones = field(default_factory=Zones)

    def seconds(self, cells: Cells, *, may_lack: bool) -> FloatArray:
        if self.unit_s is None and self.origin_ns is None and read_number(cells.text(0)) is not None:
            self.unit_s = 1.0
        if self.unit_s is not None:
            return cells.numbers(may_lack=may_lack) * self.unit_s
        nanoseconds = cells.nanoseconds(self.zones, may_lack=may_lack)
        self.origin_ns = int(nanoseconds[0]) if self.origin_ns is None else self.origin_ns
        return np.where(nanoseconds >= 0, (nanoseconds - self.origin_ns) / 1e9, np.nan)


@dataclass(frozen=True)
class _Part:
    """What some rows say of each request."""

    rows: RowsRead
    arrival_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray
    is_kept: BoolArray


def csv_format(
    *,
    name: str,
    columns: Columns,
    looks_like: str,
    source: str,
    optional: Mapping[str, str] = MappingProxyType({}),
    marks: Collection[str] = (),
    is_by_time: bool = True,
) -> TraceFormat:
    """CSV files whose header has these columns, and perhaps `optional` ones, by what they say; others are ignored.

    A file is known by any of the `marks`, by default the columns of tokens.
    """
    known = marks or (*columns.prompt, columns.output)

    def read(path: Path, _block_size: int | None, num_requests: int | None) -> Recorded:
        header = header_of(path) if optional else []
        also = {says: name for says, name in optional.items() if name in header}
        return read_columns(path, columns.with_names(also), num_requests, csv_rows)

    return TraceFormat(
        name=name,
        looks_like=looks_like,
        recognises=lambda head: not set(known).isdisjoint(first_names(head)),
        read=read,
        is_by_time=is_by_time,
        source=source,
    )


def read_columns(path: Path, columns: Columns, num_requests: int | None, source: Source) -> Recorded:
    """Rows in the order of the file; arrivals count from the earliest row that is read. Raises InputError."""
    rows = Rows(path, num_requests)
    if not (columns.time or columns.think):
        rows.note(ALL_AT_ONCE)
    if columns.session and not columns.ids:
        rows.note(GROWS)
    if columns.session or columns.priority or columns.tenant or columns.ids:
        return _with_sessions(path, columns, rows, source)
    return _plain(path, columns, rows, source)


def _plain(path: Path, columns: Columns, rows: Rows, source: Source) -> Recorded:
    """Requests that share nothing, 16 bytes each while they are read."""
    found = (array("d"), array("i"), array("i"))
    num_kept, most = 0, rows.num_wanted

    def wanted() -> float:
        return most - num_kept

    for part in _parts(path, columns, source, wanted):
        kept = part.is_kept
        found[0].frombytes(part.arrival_s[kept].tobytes())
        found[1].frombytes(part.prompt_tokens[kept].astype(np.int32).tobytes())
        found[2].frombytes(part.output_tokens[kept].astype(np.int32).tobytes())
        num_kept += int(kept.sum())
        rows.leave_out(columns.failed, int((~kept).sum()))
        check_rows(path, num_kept)
    if not num_kept:
        return rows.recorded()
    arrival_s = np.frombuffer(found[0])
    arrival_s -= arrival_s.min()
    prompt_tokens, output_tokens = (np.frombuffer(column, np.int32) for column in found[1:])
    table = independent_requests(arrival_s=arrival_s, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
    return Recorded(table=table, notes=rows.notes())


def _with_sessions(path: Path, columns: Columns, rows: Rows, source: Source) -> Recorded:
    think_after_s: dict[str, float] = {}
    for part in _parts(path, columns, source, lambda: rows.num_wanted):
        numbers = part.rows[columns.number].texts() if columns.number else None
        for row, request in enumerate(_requests(part, columns)):
            if numbers is not None:
                place = part.rows[columns.number].place(row)
                rows.check_new(place, columns.number, numbers[row], within=request.session)
            if columns.think_is_after:
                session, wait_s = str(request.session), request.think_s
                request.think_s, think_after_s[session] = think_after_s.get(session, 0.0), wait_s or 0.0
            if part.is_kept[row]:
                rows.add(part.rows[columns.output].place(row), request)
            else:
                rows.leave_out(columns.failed)
    return rows.recorded()


def _requests(part: _Part, columns: Columns) -> Iterator[Request]:
    """All rows, also those that are not kept."""
    rows, none = part.rows, repeat(None)
    sessions = rows[columns.session].texts() if columns.session else none
    think = (rows[columns.think].numbers(may_lack=True) * columns.think_unit_s).tolist() if columns.think else none
    priority = rows[columns.priority].whole().tolist() if columns.priority else repeat(0)
    tenants = rows[columns.tenant].texts() if columns.tenant else none
    prefix = rows[columns.prefix].tokens(least=0).tolist() if columns.prefix else repeat(0)
    ids = rows[columns.ids].lists() if columns.ids else none
    sizes = rows[columns.block_size].tokens().tolist() if columns.block_size else repeat(0)
    lengths = rows[columns.block_tokens].lists() if columns.block_tokens else none
    whole = (part.arrival_s.tolist(), part.prompt_tokens.tolist(), part.output_tokens.tolist())
    for arrival_s, prompt, output, session, think_s, of_row, tenant, shared, of_blocks, size, of_each in zip(
        *whole, sessions, think, priority, tenants, prefix, ids, sizes, lengths, strict=False
    ):
        yield Request(
            prompt_tokens=prompt, output_tokens=output, arrival_s=_or_none(arrival_s), session=session or None,
            think_s=_or_none(think_s), priority=of_row, prefix_tokens=shared, ids=of_blocks or (), block_size=size,
            block_tokens=of_each or (), few_ids=True,
            scope=session.partition("/")[0] if session and columns.ids_are_sessions else None,
            tenant=tenant,
        )  # fmt: skip


def _or_none(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def _parts(path: Path, columns: Columns, source: Source, wanted: Callable[[], float]) -> Iterator[_Part]:
    clock, least = _Clock(unit_s=columns.time_unit_s), 0 if columns.failed else 1
    may_lack = bool(columns.session and columns.think)
    for rows in source(path, columns.names, wanted):
        prompts = [rows[name].tokens(least=least if len(columns.prompt) == 1 else 0) for name in columns.prompt]
        prompt, output = np.sum(prompts, axis=0), rows[columns.output].tokens(least=least)
        arrival_s = clock.seconds(rows[columns.time], may_lack=may_lack) if columns.time else np.zeros(len(prompt))
        too_long = prompt + output >= OPEN_END
        if too_long.any():
            raise rows[columns.output].refuse(int(np.argmax(too_long)), f"below {OPEN_END:,} tokens with the prompt")
        yield _Part(rows, arrival_s, prompt, output, (prompt > 0) & (output > 0))
