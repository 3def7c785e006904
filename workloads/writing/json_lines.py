"""Mooncake's JSON lines, and what aiperf has beside them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from workloads.requests import FloatArray, RequestTable
from workloads.traces.blocks import shares_parts_of_blocks
from workloads.writing.block_ids import block_ids
from workloads.writing.text_rows import Choice, Numbers, Piece, write_rows
from workloads.writing.trace_writer import lost_priority, lost_tenants, lost_times

_PER_MS = 10**6  # nanoseconds


def write_json_lines(
    table: RequestTable, path: Path, block_size: int, times_s: FloatArray, *, with_sessions: bool = False
) -> None:
    """Times in milliseconds from the trace's start, or, of a turn where sessions are written, from the answer before.

    All prompts have ids: without them vLLM would send empty ones.
    """
    ids = block_ids(table, block_size)
    first = table.first_turns() if with_sessions else None

    def pieces(rows: slice) -> Sequence[Piece]:
        nanoseconds = np.rint(times_s[rows] * 1e9).astype(np.int64)
        begins: Sequence[Piece] = (b'{"timestamp',)
        if first is not None:
            time = Choice((b"timestamp", b"delay"), (table.follows[rows] >= 0).astype(np.int64))
            begins = (b'{"session_id":"', Numbers(first[rows]), b'","', time)
        return (
            *begins,
            b'":',
            Numbers(nanoseconds // _PER_MS),
            b".",
            Numbers(nanoseconds % _PER_MS, width=6),
            b',"input_length":',
            Numbers(table.prompt_tokens[rows]),
            b',"output_length":',
            Numbers(table.output_tokens[rows]),
            b',"hash_ids":[',
            ids.of_rows(rows),
            b'],"context_mode":"message_array_with_responses"}\n' if with_sessions else b"]}\n",
        )

    write_rows(path, table.num_requests, pieces)


def lost_in_json_lines(table: RequestTable, block_size: int, *times_s: FloatArray) -> tuple[str, ...]:
    """What these lines do not hold: times below 1 ns, content within a block, priority, tenants."""
    return (
        *lost_times(np.concatenate(times_s), 1e9, "1 ns"),
        *lost_within_blocks(table, block_size),
        *lost_priority(table),
        *lost_tenants(table),
    )


def lost_within_blocks(table: RequestTable, block_size: int) -> tuple[str, ...]:
    """For formats that tell content by whole blocks."""
    rounded = f"content within a block: what prompts share is rounded down to whole blocks of {block_size:,} tokens"
    return (rounded,) if shares_parts_of_blocks(table, block_size) else ()
