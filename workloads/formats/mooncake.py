"""Mooncake traces: JSON lines with block hashes."""

import json
import math
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import msgspec
import numpy as np
from msgspec import Meta

from boundary.documents import parse_json
from boundary.files import InputError, shown, text_lines
from boundary.schema import Lenient, typed
from workloads.requests import NO_PREDECESSOR, OPEN_END, RequestTable
from workloads.trace_format import TraceFormat, check_rows, empty

_LENGTHS: Final = ("input_length", "output_length")
_Tokens = Annotated[float, Meta(ge=1, lt=OPEN_END, multiple_of=1, description="a whole number of tokens, at least 1")]
_Milliseconds = Annotated[float, Meta(ge=0, le=1e15, description="a number of milliseconds, at least 0")]


class _Line(Lenient, frozen=True):
    input_length: _Tokens
    output_length: _Tokens
    timestamp: _Milliseconds | None = None
    hash_ids: list[int] | None = None
    session_id: str | int | float | None = None
    delay: _Milliseconds | None = None


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


def read(path: Path, trace_block_size: int, num_requests: int | None) -> RequestTable:
    """Rows are the file's lines, so that a request's id is its 0-based line number, whatever the order of times.

    `timestamp` is in milliseconds from the trace's own start, and kept so. `input_length` is the whole context.
    `hash_ids` name blocks of `trace_block_size` tokens, the last perhaps partial; equal ids are the same content only
    after the same ids. Tokens beyond them and all outputs are the request's own. A line with `session_id` and `delay`
    (milliseconds) follows the session's line before it; otherwise it arrives at its `timestamp`.
    """
    columns = _Columns(path=path, trace_block_size=trace_block_size)
    decoder, blank_line = msgspec.json.Decoder(_Line), 0
    with text_lines(path) as file:
        for number, text in enumerate(file, start=1):
            check_rows(path, number)
            if not text.strip():
                blank_line = blank_line or number
                continue
            if blank_line:
                raise columns.refuse(blank_line, "is empty; only the end of the file may have empty lines")
            try:
                line = decoder.decode(text)
            except (msgspec.DecodeError, RecursionError):
                line = typed(parse_json(text, columns.place(number)), _Line, columns.place(number))
            columns.add(line, number)
            if number == num_requests:
                break
    return columns.table()


def _floats() -> "array[float]":
    return array("d")


def _ints() -> "array[int]":
    return array("q")


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """The table's columns while lines are read."""

    path: Path
    trace_block_size: int
    arrival_s: "array[float]" = field(default_factory=_floats)
    follows: "array[int]" = field(default_factory=_ints)
    think_s: "array[float]" = field(default_factory=_floats)
    prompt_tokens: "array[int]" = field(default_factory=_ints)
    output_tokens: "array[int]" = field(default_factory=_ints)
    span_count: "array[int]" = field(default_factory=_ints)
    span_content: "array[int]" = field(default_factory=_ints)
    content_of: dict[tuple[int, int], int] = field(default_factory=dict)
    """(content before, hash id) -> content id."""
    last_row_of: dict[str, int] = field(default_factory=dict)
    """session -> its last row so far."""

    def place(self, number: int) -> str:
        return f"{shown(self.path)}, line {number}"

    def refuse(self, number: int, reason: str) -> InputError:
        return InputError(f"{self.place(number)}: {reason}")

    def add(self, line: _Line, number: int) -> None:
        self._add_time(line, number)
        prompt_tokens, output_tokens = int(line.input_length), int(line.output_length)
        if prompt_tokens + output_tokens >= OPEN_END:
            found = f"{prompt_tokens:,} + {output_tokens:,} tokens"
            raise self.refuse(number, f"{found}; they must stay below {OPEN_END:,}")
        self.prompt_tokens.append(prompt_tokens)
        self.output_tokens.append(output_tokens)
        self._add_spans(line.hash_ids or [], prompt_tokens, number)

    def _add_time(self, line: _Line, number: int) -> None:
        previous = NO_PREDECESSOR
        if line.session_id is not None:
            session = str(line.session_id)
            if line.delay is not None:
                previous = self.last_row_of.get(session, NO_PREDECESSOR)
            self.last_row_of[session] = len(self.arrival_s)
        self.follows.append(previous)
        if previous != NO_PREDECESSOR and line.delay is not None:
            self.arrival_s.append(math.nan)
            self.think_s.append(line.delay / 1e3)
        elif line.timestamp is None:
            raise self.refuse(number, "'timestamp' is missing; give it")
        else:
            self.arrival_s.append(line.timestamp / 1e3)
            self.think_s.append(0.0)

    def _add_spans(self, ids: list[int], prompt_tokens: int, number: int) -> None:
        size = self.trace_block_size
        full, partial = divmod(prompt_tokens, size)
        if ids and len(ids) not in (full, full + bool(partial)):
            allowed = f"{full:,} or {full + 1:,}" if partial else f"{full:,}"
            found = f"{len(ids):,} hash_ids for {prompt_tokens:,} tokens; with blocks of {size:,} there must be"
            raise self.refuse(number, f"{found} {allowed} (set --trace-block-size to the trace's own)")
        parent, content_of, append = -1, self.content_of, self.span_content.append
        for hash_id in ids:
            parent = content_of.setdefault((parent, hash_id), len(content_of))
            append(parent)
        append(parent)  # in the place of the request's own content, which is numbered once all shared ids are known
        self.span_count.append(len(ids) + 1)

    def table(self) -> RequestTable:
        if not self.arrival_s:
            raise empty(self.path)
        count, prompt_tokens = np.asarray(self.span_count, np.int64), np.asarray(self.prompt_tokens, np.int64)
        content, last = np.array(self.span_content, np.int64), np.cumsum(count) - 1
        content[last] = len(self.content_of) + np.arange(len(count))
        blocks = np.arange(len(content)) - np.repeat(last - count, count)  # those that end with the span
        end = np.minimum(blocks * self.trace_block_size, np.repeat(prompt_tokens, count))
        end[last] = OPEN_END
        return RequestTable(
            arrival_s=np.asarray(self.arrival_s, np.float64),
            follows=np.asarray(self.follows, np.int64),
            think_s=np.asarray(self.think_s, np.float64),
            prompt_tokens=prompt_tokens.astype(np.int32),
            output_tokens=np.asarray(self.output_tokens, np.int32),
            priority=np.zeros(len(count), np.int32),
            span_start=last - count + 1,
            span_count=count.astype(np.int32),
            span_content=content,
            span_end=end.astype(np.int32),
        )


FORMAT: Final = TraceFormat(
    name="mooncake",
    looks_like="JSON lines with timestamp, input_length, output_length, hash_ids",
    recognises=recognises,
    read=read,
    source="kvcache-ai/Mooncake, FAST25-release/traces, Apache-2.0 (Qin et al., FAST 2025); sessions: aiperf",
)
