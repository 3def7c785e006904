"""aiperf's Mooncake lines: with sessions, whose turns wait for the answer before them."""

from pathlib import Path
from typing import Final

import numpy as np

from workloads.requests import RequestTable
from workloads.writing.json_lines import lost_in_json_lines, write_json_lines
from workloads.writing.trace_writer import TraceWriter, times_of


def write(table: RequestTable, path: Path, block_size: int) -> None:
    """Each line holds the whole context, and says so in `context_mode`: by default aiperf adds what was said before.

    Source: ai-dynamo/aiperf, docs/reference/conversation-context-mode.md and dataset/loader/mooncake_trace.py.
    """
    times_s = np.where(table.follows >= 0, table.think_s, times_of(table))
    write_json_lines(table, path, block_size, times_s, with_sessions=True)


def lost(table: RequestTable, block_size: int) -> tuple[str, ...]:
    """What no such lines hold."""
    begins = table.follows < 0
    return lost_in_json_lines(table, block_size, times_of(table)[begins], table.think_s[~begins])


WRITER: Final = TraceWriter(
    name="aiperf",
    suffixes=(),
    write=write,
    lost=lost,
    clients={"aiperf": "aiperf profile --input-file {path} --custom-dataset-type mooncake_trace --fixed-schedule"},
)
