"""Mooncake's JSON lines, with ids of the blocks that prompts share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from workloads.blocks import shares_parts_of_blocks
from workloads.requests import RequestTable
from workloads.writing.block_ids import block_ids
from workloads.writing.text_rows import Numbers, Piece, write_rows
from workloads.writing.trace_writer import TraceWriter, lost_priority, lost_sessions, times_of


def write(table: RequestTable, path: Path, block_size: int) -> None:
    """Times in milliseconds from the trace's start; without ids vLLM would send empty prompts, so all have ids."""
    nanoseconds = np.rint(times_of(table) * 1e9).astype(np.int64)
    ids = block_ids(table, block_size)

    def pieces(rows: slice) -> Sequence[Piece]:
        return (
            b'{"timestamp": ',
            Numbers(nanoseconds[rows] // 10**6),
            b".",
            Numbers(nanoseconds[rows] % 10**6, width=6),
            b', "input_length": ',
            Numbers(table.prompt_tokens[rows]),
            b', "output_length": ',
            Numbers(table.output_tokens[rows]),
            b', "hash_ids": [',
            ids.of_rows(rows),
            b"]}\n",
        )

    write_rows(path, table.num_requests, pieces)


def lost(table: RequestTable, block_size: int) -> tuple[str, ...]:
    """Content is told by whole blocks."""
    within = f"content within a block: what prompts share is rounded down to whole blocks of {block_size:,} tokens"
    rounded = (within,) if shares_parts_of_blocks(table, block_size) else ()
    return (*lost_sessions(table), *rounded, *lost_priority(table))


WRITER: Final = TraceWriter(
    name="mooncake",
    suffixes=(".jsonl",),
    write=write,
    lost=lost,
    clients={
        "vllm": "vllm bench serve --dataset-name timed_trace --dataset-path {path} "
        "--timed-trace-chunk-hash-size {block_size} --timed-trace-sec-multiplier 0.001",
        "guidellm": "",
        "sglang": "",
        "dynamo": "",
    },
)
