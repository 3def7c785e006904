"""Mooncake traces: JSON lines with block hashes."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from boundary.names import shortened
from workloads.errors import TraceError
from workloads.requests import NO_PREDECESSOR, OPEN_END, RequestTable
from workloads.trace_format import TraceFormat

_LARGEST: Final = 1e18  # of a JSON number: NaN, infinity or what no float holds are refused with it
_LENGTHS: Final = ("input_length", "output_length")


def recognises(head: str) -> bool:
    """Whether the first line is a JSON object with Mooncake's names, or begins like one but cannot be parsed."""
    line = next(line for line in head.splitlines() if line.strip())
    if not line.lstrip().startswith("{") or line.strip() == "{":
        return False
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):  # what is wrong with it is told when it is read
        return True
    # Formats with some of the same names count in seconds (`chat_id`: Bailian) or hash other things (RAGPulse).
    others = "chat_id" in first or isinstance(first.get("hash_ids"), dict)
    return not others and not {*_LENGTHS, "hash_ids"}.isdisjoint(first)


def read(path: Path, trace_block_size: int) -> RequestTable:
    """Rows are the file's lines, so that a request's id is its 0-based line number, whatever the order of times.

    `timestamp` is in milliseconds from the trace's own start, and kept so. `input_length` is the whole context.
    `hash_ids` name blocks of `trace_block_size` tokens, the last perhaps partial; equal ids are the same content only
    after the same ids. Tokens beyond them and all outputs are the request's own. A line with `session_id` and `delay`
    (milliseconds) follows the session's line before it; otherwise it arrives at its `timestamp`.
    """
    if trace_block_size < 1:
        raise TraceError(f"the trace block size is {trace_block_size}; it must be at least 1 token")
    columns = _Columns(path=path, trace_block_size=trace_block_size)
    with path.open(encoding="utf-8-sig") as file:
        blank_line = 0
        try:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    blank_line = blank_line or number
                    continue
                if blank_line:
                    raise TraceError(
                        f"{path}, line {blank_line}: is empty; only the end of the file may have empty lines"
                    )
                columns.add(_Line(path, number, _parse(path, number, line)))
        except UnicodeDecodeError:
            raise TraceError(f"{path}: not a text file; traces are JSON lines in UTF-8") from None
    return columns.table()


def _parse(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        parsed = json.loads(line)
    except json.JSONDecodeError as error:
        raise TraceError(f"{path}, line {number}: not JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, thousands of brackets
        raise TraceError(f"{path}, line {number}: holds a number too large or nesting too deep") from None
    if not isinstance(parsed, dict):
        raise TraceError(f"{path}, line {number}: is {type(parsed).__name__}, not a JSON object {{…}}")
    return parsed


@dataclass(frozen=True)
class _Line:
    """One line's fields, checked as they are taken."""

    path: Path
    number: int
    fields: dict[str, Any]

    def refuse(self, found: str, allowed: str) -> TraceError:
        return TraceError(f"{self.path}, line {self.number}: {found}; {allowed}")

    def tokens(self, name: str) -> int:
        value = self._number(name)
        if value < 1 or value != int(value) or value >= OPEN_END:
            raise self.refuse(f"{name} is {value}", "it must be a whole number of tokens, at least 1")
        return int(value)

    def milliseconds(self, name: str) -> float:
        value = self._number(name)
        if value < 0:
            raise self.refuse(f"{name} is {value}", "it must be at least 0 ms")
        return value

    def hash_ids(self) -> list[int]:
        ids = self.fields.get("hash_ids") or []
        if not isinstance(ids, list) or not all(type(block) is int for block in ids):
            raise self.refuse("hash_ids is not a list of whole numbers", "give one per block, or none")
        return ids

    def _number(self, name: str) -> float:
        if name not in self.fields:
            fields = shortened(", ".join(self.fields), 200)
            raise self.refuse(f"no '{name}'", f"the line has {fields or 'no fields'}")
        value = self.fields[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LARGEST:
            raise self.refuse(f"{name} is {shortened(json.dumps(value))}", "it must be a finite number")
        return value


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """The table's columns while lines are read."""

    path: Path
    trace_block_size: int
    arrival_s: list[float] = field(default_factory=list)
    follows: list[int] = field(default_factory=list)
    think_s: list[float] = field(default_factory=list)
    prompt_tokens: list[int] = field(default_factory=list)
    output_tokens: list[int] = field(default_factory=list)
    span_count: list[int] = field(default_factory=list)
    span_content: list[int] = field(default_factory=list)
    span_end: list[int] = field(default_factory=list)
    content_of: dict[tuple[int, int], int] = field(default_factory=dict)
    """(content before, hash id) -> content id."""
    last_row_of: dict[str, int] = field(default_factory=dict)
    """session -> its last row so far."""

    def add(self, line: _Line) -> None:
        self._add_time(line)
        prompt_tokens, output_tokens = (line.tokens(name) for name in _LENGTHS)
        if prompt_tokens + output_tokens >= OPEN_END:
            raise line.refuse(f"{prompt_tokens:,} + {output_tokens:,} tokens", f"they must stay below {OPEN_END:,}")
        self.prompt_tokens.append(prompt_tokens)
        self.output_tokens.append(output_tokens)
        self._add_spans(line, prompt_tokens, len(self.prompt_tokens) - 1)

    def _add_time(self, line: _Line) -> None:
        session, row = line.fields.get("session_id"), len(self.arrival_s)
        previous = NO_PREDECESSOR
        if session is not None:
            previous = self.last_row_of.get(str(session), NO_PREDECESSOR)
            self.last_row_of[str(session)] = row
        if line.fields.get("delay") is None:
            previous = NO_PREDECESSOR
        followed = previous != NO_PREDECESSOR
        self.follows.append(previous)
        self.arrival_s.append(math.nan if followed else line.milliseconds("timestamp") / 1e3)
        self.think_s.append(line.milliseconds("delay") / 1e3 if followed else 0.0)

    def _add_spans(self, line: _Line, prompt_tokens: int, row: int) -> None:
        ids, size = line.hash_ids(), self.trace_block_size
        full, partial = divmod(prompt_tokens, size)
        if ids and len(ids) not in (full, full + bool(partial)):
            allowed = f"{full:,} or {full + 1:,}" if partial else f"{full:,}"
            raise line.refuse(
                f"{len(ids):,} hash_ids for {prompt_tokens:,} tokens",
                f"with blocks of {size:,} there must be {allowed} (set --trace-block-size to the trace's own)",
            )
        parent = -1
        for hash_id in ids:
            parent = self.content_of.setdefault((parent, hash_id), len(self.content_of))
            self.span_content.append(parent)
        self.span_end.extend(range(size, len(ids) * size, size))
        if ids:
            self.span_end.append(min(len(ids) * size, prompt_tokens))
        self.span_content.append(-1 - row)  # the request's own, numbered once all shared ids are known
        self.span_end.append(OPEN_END)
        self.span_count.append(len(ids) + 1)

    def table(self) -> RequestTable:
        if not self.arrival_s:
            raise TraceError(f"{self.path}: the file is empty; a trace needs at least one request")
        content, count = np.asarray(self.span_content, np.int64), np.asarray(self.span_count, np.int32)
        return RequestTable(
            arrival_s=np.asarray(self.arrival_s, np.float64),
            follows=np.asarray(self.follows, np.int64),
            think_s=np.asarray(self.think_s, np.float64),
            prompt_tokens=np.asarray(self.prompt_tokens, np.int32),
            output_tokens=np.asarray(self.output_tokens, np.int32),
            priority=np.zeros(len(count), np.int32),
            span_start=np.cumsum(count, dtype=np.int64) - count,
            span_count=count,
            span_content=np.where(content < 0, len(self.content_of) - 1 - content, content),
            span_end=np.asarray(self.span_end, np.int32),
        )


FORMAT: Final = TraceFormat(
    name="mooncake",
    looks_like="JSON lines with timestamp, input_length, output_length, hash_ids",
    recognises=recognises,
    read=read,
    source="kvcache-ai/Mooncake, FAST25-release/traces, Apache-2.0 (Qin et al., FAST 2025); sessions: aiperf",
)
