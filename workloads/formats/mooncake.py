"""Mooncake traces: JSON lines with block hashes; also aiperf's, with sessions."""

from pathlib import Path
from typing import Final

import numpy as np

from files.schema import Lenient
from workloads.formats.parsing.json_rows import Milliseconds, Name, Tokens, first_object, json_blocks, json_rows
from workloads.formats.parsing.rows import Request, Rows
from workloads.traces.trace_format import Recorded, TraceFormat

_BLOCK_SIZE: Final = 512
_NAMES: Final = {"input_length", "output_length", "hash_ids"}
_OTHERS: Final = ("chat_id", "parent_chat_id", "block_tokens")  # Bailian's and RAGPulse's, whose times are seconds


class _Line(Lenient, frozen=True):
    input_length: Tokens
    output_length: Tokens
    timestamp: Milliseconds | None = None
    hash_ids: list[int] | None = None
    session_id: Name | None = None
    delay: Milliseconds | None = None


def recognises(head: str) -> bool:
    """Whether the first line has Mooncake's names, and not what formats of the same names have beside them."""
    first = first_object(head)
    is_other = any(name in first for name in _OTHERS) or isinstance(first.get("hash_ids"), dict)
    has_time = not {"timestamp", "hash_ids"}.isdisjoint(first) or "session_id" not in first
    return not _NAMES.isdisjoint(first) and has_time and not is_other


def read(path: Path, block_size: int | None, num_requests: int | None) -> Recorded:
    """Rows are the file's lines, so that a request's id is its 0-based line number, whatever the order of times.

    `timestamp` is in milliseconds from the trace's own start, and kept so. `input_length` is the whole context.
    `hash_ids` name blocks of 512 tokens, the last perhaps partial; equal ids are the same content only after the same
    ids. A line with `session_id` and `delay` (milliseconds) follows the session's line before it; otherwise it arrives
    at its `timestamp`. A line that goes on where another ended finds that one's answer.
    """
    rows, size = Rows(path, num_requests), block_size or _BLOCK_SIZE
    if _read_in_blocks(path, rows, size):
        return rows.recorded(from_first=False)
    for place, line in json_rows(path, _Line, rows, skip=len(rows)):
        request = Request(
            prompt_tokens=int(line.input_length),
            output_tokens=int(line.output_length),
            arrival_s=None if line.timestamp is None else line.timestamp / 1e3,
            session=None if line.session_id is None else str(line.session_id),
            think_s=None if line.delay is None else line.delay / 1e3,
            ids=line.hash_ids or (),
            block_size=size,
        )
        rows.add(place, request)
    return rows.recorded(from_first=False)


def _read_in_blocks(path: Path, rows: Rows, block_size: int) -> bool:
    """Add rows, many at once, up to a block with sessions or with something to say; whether these were all."""
    for lines in json_blocks(path, _Line):
        wanted = lines and lines[: int(min(rows.num_wanted, len(lines)))]
        if not wanted or any(line.session_id is not None or line.delay is not None for line in wanted):
            return False
        prompt, output, times, ids = zip(
            *((line.input_length, line.output_length, line.timestamp, line.hash_ids) for line in wanted), strict=True
        )
        if not rows.add_alone(prompt, output, np.array(times, np.float64) / 1e3, ids, block_size):
            return False
        if rows.num_wanted <= 0:
            break
    return True


FORMAT: Final = TraceFormat(
    name="mooncake",
    looks_like="JSON lines with timestamp, input_length, output_length, hash_ids",
    recognises=recognises,
    read=read,
    source="kvcache-ai/Mooncake, FAST25-release/traces, Apache-2.0 (Qin et al., FAST 2025); sessions: aiperf",
)
