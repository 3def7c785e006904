"""Mooncake's JSON lines, with ids of the blocks that prompts share."""

from pathlib import Path
from typing import Final

from workloads.requests import RequestTable
from workloads.writing.json_lines import lost_in_json_lines, write_json_lines
from workloads.writing.trace_writer import TraceWriter, lost_sessions, times_of


def write(table: RequestTable, path: Path, block_size: int) -> None:
    """Each request at a time of its own."""
    write_json_lines(table, path, block_size, times_of(table))


def lost(table: RequestTable, block_size: int) -> tuple[str, ...]:
    """Sessions, and what no such lines hold."""
    return (*lost_sessions(table), *lost_in_json_lines(table, block_size, times_of(table)))


WRITER: Final = TraceWriter(
    name="mooncake",
    suffixes=(".jsonl",),
    write=write,
    lost=lost,
    clients={
        "vllm": "vllm bench serve --dataset-name timed_trace --dataset-path {path} --num-prompts {num_requests} "
        "--timed-trace-chunk-hash-size {block_size} --timed-trace-sec-multiplier 0.001 --ignore-eos",
        "guidellm": "",
        "sglang": "",
        "dynamo": "",
    },
)
