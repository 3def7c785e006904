"""Dynamo's request trace, dynamo.request.trace.v1 as JSON lines, often gzip.

Times are the server's own, in milliseconds: from the receipt of a request, without the network. The load is what came,
and settings of the deployment are not in it; one run per model. Events of tools and other kinds are no requests.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.files import Head, at, json_objects, mapping, number
from calibrate.readers.parsing.rows import RequestRows

LOOKS_LIKE = "JSON lines with event.schema"
_SCHEMA = "dynamo.request.trace.v1"


def recognizes(path: Path, head: Head) -> bool:
    return isinstance(head, dict) and str(at(head, "event", "schema")).startswith("dynamo.request.trace.")


def read(path: Path) -> list[MeasuredRun]:
    """One run per model. Raises ValueError for another version of the schema."""
    rows: dict[str, RequestRows] = {}
    for line, record in enumerate(json_objects(path), start=1):
        event = mapping(record.get("event"))
        if event.get("schema") != _SCHEMA:
            raise ValueError(f"{path}, line {line}: schema is {str(event.get('schema'))[:40]!r}; it must be {_SCHEMA}")
        if event.get("event_type") == "request_end":
            request = mapping(event.get("request"))
            _add(rows.setdefault(str(request.get("model")), RequestRows()), event, request)
    return [
        MeasuredRun(
            source=path,
            tool="dynamo request trace",
            options={} if model == "None" else {"model": model},
            notes=("times are the server's, from the receipt of a request; a client also sees the network",),
            **of_model.parts(),
        )
        for model, of_model in rows.items()
    ]


def _add(rows: RequestRows, event: Mapping[str, Any], request: Mapping[str, Any]) -> None:
    received_s = number(request.get("request_received_ms")) / 1e3
    if request.get("error"):
        rows.exclude("failed", arrival_s=received_s)
        return
    rows.add(
        arrival_s=received_s,
        prompt_tokens=number(request.get("input_tokens")),
        output_tokens=number(request.get("output_tokens")),
        cached_tokens=number(request.get("cached_tokens")),
        ttft_s=number(request.get("ttft_ms")) / 1e3,
        e2e_s=number(request.get("total_time_ms")) / 1e3,
        session=at(event, "agent_context", "session_id"),
    )
