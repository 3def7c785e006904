"""Dynamo's request trace, dynamo.request.trace.v1: JSON lines of events, with block hashes."""

from pathlib import Path
from typing import Final

from files.schema import Lenient
from workloads.formats.parsing.json_rows import Milliseconds, Name, Tokens, TokensOrNone, first_object, json_rows
from workloads.formats.parsing.rows import Request, Rows
from workloads.traces.trace_format import Recorded, TraceFormat

_SCHEMA: Final = "dynamo.request.trace."


class _Replay(Lenient, frozen=True):
    trace_block_size: Tokens
    input_sequence_hashes: list[int]


class _Request(Lenient, frozen=True):
    request_received_ms: Milliseconds
    input_tokens: TokensOrNone | None = None
    output_tokens: TokensOrNone | None = None
    error: object = None
    replay: _Replay | None = None


class _Agent(Lenient, frozen=True):
    session_id: Name | None = None


class _Event(Lenient, frozen=True):
    event_type: str
    request: _Request | None = None
    agent_context: _Agent | None = None


class _Line(Lenient, frozen=True):
    event: _Event


def recognises(head: str) -> bool:
    """Whether the first line is an event of this schema."""
    event = first_object(head).get("event")
    return isinstance(event, dict) and str(event.get("schema")).startswith(_SCHEMA)


def read(path: Path, block_size: int | None, num_requests: int | None) -> Recorded:
    """Requests that ended, in the order of their ends; each arrives when it was received.

    Events of tools are none. Requests that failed, or have no tokens, are left out.
    """
    rows = Rows(path, num_requests)
    for place, line in json_rows(path, _Line, rows):
        request = line.event.request
        if line.event.event_type != "request_end" or request is None:
            continue
        if request.error or not request.input_tokens or not request.output_tokens:
            rows.leave_out("requests that failed" if request.error else "requests without tokens")
            continue
        agent, replay = line.event.agent_context, request.replay
        found = Request(
            prompt_tokens=int(request.input_tokens),
            output_tokens=int(request.output_tokens),
            arrival_s=request.request_received_ms / 1e3,
            session=None if agent is None else agent.session_id,
        )
        if replay is not None:
            size = block_size or int(replay.trace_block_size)
            found.ids, found.block_size, found.few_ids = replay.input_sequence_hashes, size, True
        rows.add(place, found)
    return rows.recorded()


FORMAT: Final = TraceFormat(
    name="dynamo",
    looks_like="JSON lines with event.schema dynamo.request.trace.v1",
    recognises=recognises,
    read=read,
    source="ai-dynamo/dynamo, request traces, dynamo.request.trace.v1, Apache-2.0",
)
