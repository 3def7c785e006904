"""TraceLab's rounds of coding agents: JSON lines with tokens and timed events."""

from pathlib import Path
from typing import Final

from files.schema import Lenient
from workloads.formats.parsing.dates import Dates
from workloads.formats.parsing.json_rows import Name, Tokens, TokensOrNone, first_object, json_rows
from workloads.formats.parsing.rows import Request, Rows
from workloads.traces.trace_format import Recorded, TraceFormat

_INPUTS: Final = ("user_message", "tool_result")


class _Event(Lenient, frozen=True):
    event_type: str
    timestamp: str


class _Line(Lenient, frozen=True):
    session_id: Name
    round_index: Name
    input_tokens_total: Tokens
    output_tokens: TokensOrNone
    timing_events: list[_Event]
    prefix_tokens: TokensOrNone | None = None


def read(path: Path, _block_size: int | None, num_requests: int | None) -> Recorded:
    """A round is sent at its last user message or tool result, and ends at its last event.

    A session's first round comes at that time; each other so long after the end of the round before it.
    """
    rows = Rows(path, num_requests)
    dates = Dates(rows)
    ended_s: dict[Name, float] = {}
    for place, line in json_rows(path, _Line, rows):
        rows.check_new(place, "round_index", line.round_index, within=line.session_id)
        if not line.output_tokens:
            rows.leave_out("rounds without output tokens")
            continue
        times = [
            dates.nanoseconds(f"{place}: timing_events[{at}]", "timestamp", event.timestamp) / 1e9
            for at, event in enumerate(line.timing_events, start=1)
        ]
        if not times:
            rows.leave_out("rounds without events, so without a time")
            continue
        sent = [time for time, event in zip(times, line.timing_events, strict=True) if event.event_type in _INPUTS]
        sent_s = max(sent, default=min(times))
        request = Request(
            prompt_tokens=int(line.input_tokens_total),
            output_tokens=int(line.output_tokens),
            arrival_s=sent_s,
            session=line.session_id,
            think_s=max(sent_s - ended_s.get(line.session_id, sent_s), 0.0),
            prefix_tokens=int(line.prefix_tokens or 0),
        )
        rows.add(place, request)
        ended_s[line.session_id] = max(times)
    return rows.recorded()


FORMAT: Final = TraceFormat(
    name="tracelab",
    looks_like="JSON lines with session_id, round_index, input_tokens_total, timing_events",
    recognises=lambda head: {"round_index", "input_tokens_total", "timing_events"} <= first_object(head).keys(),
    read=read,
    is_by_time=False,
    source="TraceLab, rounds of coding agents' sessions",
)
