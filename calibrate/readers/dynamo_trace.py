"""Dynamo's request trace, dynamo.request.trace.v1 as JSON lines, often gzip.

Times are the server's own, in milliseconds: from the receipt of a request, without the network. The load is what came,
and settings of the deployment are not in it; one run per model. Events of tools and other kinds are no requests.
"""

from pathlib import Path
from typing import Any

from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.engine_options import engine_option
from calibrate.readers.parsing.files import Head, typed_objects
from calibrate.readers.parsing.leaves import Leaves, leaves
from calibrate.readers.parsing.rows import RequestRows
from files.names import shortened
from files.reading import InputError, shown

LOOKS_LIKE = "JSON lines with event.schema"
_SCHEMA = "dynamo.request.trace.v1"


_REQUEST = leaves(
    {"model": str, "error": Any},
    "request_received_ms", "input_tokens", "output_tokens", "cached_tokens", "ttft_ms", "total_time_ms",
)  # fmt: skip
_LINE = leaves(
    {
        "event.schema": str,
        "event.event_type": str,
        "event.request": _REQUEST,
        "event.agent_context.session_id": str | int,
    }
)


def recognizes(path: Path, head: Head) -> bool:
    event = head.get("event") if isinstance(head, dict) else None
    return isinstance(event, dict) and str(event.get("schema")).startswith("dynamo.request.trace.")


def read(path: Path) -> list[MeasuredRun]:
    """One run per model. Raises InputError for another version of the schema."""
    rows: dict[str | None, RequestRows] = {}
    for place, line in typed_objects(path, _LINE):
        if line["event.schema"] != _SCHEMA:
            given = f"{f', {place}' * bool(place)}: schema is {shortened(str(line['event.schema']), 40)!r}"
            raise InputError(f"{shown(path)}{given}; it must be {_SCHEMA}")
        if line["event.event_type"] == "request_end":
            request = line["event.request"] or _REQUEST()
            _add(rows.setdefault(request["model"], RequestRows()), request, line["event.agent_context.session_id"])
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


def _add(rows: RequestRows, request: Leaves, session: str | int | None) -> None:
    received_s = request.number("request_received_ms") / 1e3
    if request["error"]:
        rows.exclude("failed", arrival_s=received_s)
        return
    rows.add(
        arrival_s=received_s,
        prompt_tokens=request.number("input_tokens"),
        output_tokens=request.number("output_tokens"),
        cached_tokens=request.number("cached_tokens"),
        ttft_s=request.number("ttft_ms") / 1e3,
        e2e_s=request.number("total_time_ms") / 1e3,
        session=session,
    )
