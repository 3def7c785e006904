"""TraceLab's replays of agent sessions: CSV of rounds, with the tools' time after each."""

from pathlib import Path
from typing import Final

from workloads.formats.parsing.columns import Columns, read_csv
from workloads.formats.parsing.csv_rows import first_names
from workloads.traces.trace_format import Recorded, TraceFormat

_COLUMNS: Final = Columns(
    time="arrival_time",
    time_unit_s=1.0,
    session="session_id",
    number="round_idx",
    prompt=("prefix_len", "input_len"),
    prefix="prefix_len",
    output="output_len",
    think="tool_wait_after_ms",
    think_unit_s=1e-3,
    think_is_after=True,
)


def recognises(head: str) -> bool:
    """Whether the first line names the columns that only this format has."""
    return {"prefix_len", "tool_wait_after_ms"} <= set(first_names(head))


def read(path: Path, _block_size: int | None, num_requests: int | None) -> Recorded:
    """A session's first round comes at `arrival_time` (seconds), each other when the tools before it are done.

    The prompt is `prefix_len`, which the session's round before has too, and `input_len`.
    """
    return read_csv(path, _COLUMNS, num_requests)


FORMAT: Final = TraceFormat(
    name="tracelab_replay",
    looks_like="CSV with session_id,arrival_time,prefix_len,input_len,output_len,tool_wait_after_ms",
    recognises=recognises,
    read=read,
    is_by_time=False,
    source="TraceLab, replay CSV of coding agents' sessions",
)
