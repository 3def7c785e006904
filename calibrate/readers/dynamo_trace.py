"""Dynamo's request trace, dynamo.request.trace.v1 as JSON lines, often gzip.

Times are the server's own, in milliseconds: from the receipt of a request, without the network. The load is what came,
and settings of the deployment are not in it; one run per model. Events of tools and other kinds are no requests.
"""

from pathlib import Path
from typing import Any

from boundary.files import InputError, shown
from boundary.names import shortened
from boundary.schema import Lenient
from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.engine_options import engine_option
from calibrate.readers.parsing.files import Figure, Head, number, typed_objects
from calibrate.readers.parsing.rows import RequestRows

LOOKS_LIKE = "JSON lines with event.schema"
_SCHEMA = "dynamo.request.trace.v1"


class _Request(Lenient, frozen=True):
    model: str | None = None
    error: Any = None
    request_received_ms: Figure = None
    input_tokens: Figure = None
    output_tokens: Figure = None
    cached_tokens: Figure = None
    ttft_ms: Figure = None
    total_time_ms: Figure = None


class _AgentContext(Lenient, frozen=True):
    session_id: str | int | None = None


class _Event(Lenient, frozen=True):
    schema: str | None = None
    event_type: str | None = None
    request: _Request | None = None
    agent_context: _AgentContext | None = None


class _Line(Lenient, frozen=True):
    event: _Event | None = None


def recognizes(path: Path, head: Head) -> bool:
    event = head.get("event") if isinstance(head, dict) else None
    return isinstance(event, dict) and str(event.get("schema")).startswith("dynamo.request.trace.")


def read(path: Path) -> list[MeasuredRun]:
    """One run per model. Raises InputError for another version of the schema."""
    rows: dict[str | None, RequestRows] = {}
    for place, line in typed_objects(path, _Line):
        event = line.event or _Event()
        if event.schema != _SCHEMA:
            given = f"{f', {place}' * bool(place)}: schema is {shortened(str(event.schema), 40)!r}"
            raise InputError(f"{shown(path)}{given}; it must be {_SCHEMA}")
        if event.event_type == "request_end":
            request = event.request or _Request()
            _add(rows.setdefault(request.model, RequestRows()), request, event.agent_context or _AgentContext())
    return [
        MeasuredRun(
            source=path,
            tool="dynamo request trace",
            options={} if model is None else {"model": engine_option("model", model, path, "event.request.model")},
            notes=("times are the server's, from the receipt of a request; a client also sees the network",),
            **of_model.parts(),
        )
        for model, of_model in rows.items()
    ]


def _add(rows: RequestRows, request: _Request, agent: _AgentContext) -> None:
    received_s = number(request.request_received_ms) / 1e3
    if request.error:
        rows.exclude("failed", arrival_s=received_s)
        return
    rows.add(
        arrival_s=received_s,
        prompt_tokens=number(request.input_tokens),
        output_tokens=number(request.output_tokens),
        cached_tokens=number(request.cached_tokens),
        ttft_s=number(request.ttft_ms) / 1e3,
        e2e_s=number(request.total_time_ms) / 1e3,
        session=agent.session_id,
    )
