"""Traces that tests write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from files.reading import InputError
from workloads.load import load_workload
from workloads.requests import RequestTable
from workloads.traces.trace import Trace

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
AZURE = (
    f"{HEADER}\r\n2023-11-16 10:00:00.0000001,300,40\r\n2023-11-16 10:00:02.5000001,4000,1\r\n"
    "2023-11-16 10:01:00.1000001,7,1000"
)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def write_lines(folder: Path, *lines: dict[str, Any] | str) -> Path:
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    return write(folder, "trace.jsonl", "".join(text + "\n" for text in texts))


def mooncake(timestamp: float, tokens: int, output: int, ids: list[int] | None = None, **more: Any) -> dict[str, Any]:
    line = {"timestamp": timestamp, "input_length": tokens, "output_length": output, **more}
    return line if ids is None else line | {"hash_ids": ids}


def load_trace(path: Path, trace_block_size: int | None = None) -> Trace:
    loaded = load_workload(path, trace_block_size=trace_block_size)
    assert isinstance(loaded, Trace)
    return loaded


def spans(table: RequestTable, row: int) -> list[tuple[int, int]]:
    """(content, end) of each of a row's spans."""
    at = slice(table.span_start[row], table.span_start[row] + table.span_count[row])
    return list(zip(table.span_content[at].tolist(), table.span_end[at].tolist(), strict=True))


def shared_tokens(table: RequestTable, one: int, other: int) -> int:
    """First tokens, of prompts and answers, that are the same in two rows."""
    first, second = spans(table, one), spans(table, other)
    both = min(int(table.prompt_tokens[row]) + int(table.output_tokens[row]) for row in (one, other))
    ends = sorted({min(end, both) for _, end in first + second})
    start = 0
    for end in ends:
        if _content(first, end - 1) != _content(second, end - 1):
            break
        start = end
    return start


def _content(found: list[tuple[int, int]], token: int) -> int:
    return next(content for content, end in found if token < end)


def refusal(path: Path, trace_block_size: int | None = None) -> str:
    with pytest.raises(InputError) as caught:
        load_workload(path, trace_block_size=trace_block_size)
    message = str(caught.value)
    assert "\n" not in message
    return message
