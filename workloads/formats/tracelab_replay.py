"""TraceLab's replays of agent sessions: CSV of rounds, with the tools' time after each.

A session's first round comes at `arrival_time` (seconds), each other when the tools before it are done. The prompt is
`prefix_len`, which the session's round before has too, and `input_len`.
"""

from typing import Final

from workloads.formats.parsing.columns import Columns, csv_format

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
FORMAT: Final = csv_format(
    name="tracelab_replay",
    columns=_COLUMNS,
    marks=("tool_wait_after_ms",),
    looks_like="CSV with session_id,arrival_time,prefix_len,input_len,output_len,tool_wait_after_ms",
    is_by_time=False,
    source="TraceLab, replay CSV of coding agents' sessions",
)
