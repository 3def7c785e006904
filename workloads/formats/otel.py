"""OpenTelemetry spans of generative AI: JSON with gen_ai attributes."""

from pathlib import Path
from typing import Final

import msgspec

from files.documents import Json, read_json
from files.schema import Lenient, typed
from workloads.formats.parsing.columns import GROWS
from workloads.formats.parsing.dates import Dates
from workloads.formats.parsing.json_rows import TokensOrNone
from workloads.formats.parsing.rows import Request, Rows
from workloads.traces.trace_format import Recorded, TraceFormat

_NO_USAGE: Final = (
    "no span has gen_ai.usage.input_tokens and gen_ai.usage.output_tokens; record them, or count tokens with the "
    "model's tokenizer and give a CSV with --columns"
)


class _Span(Lenient, frozen=True):
    start_time: str
    trace_id: str | None = None
    attributes: Json = msgspec.field(default_factory=dict)


class _Trace(Lenient, frozen=True):
    spans: list[_Span]


def read(path: Path, _block_size: int | None, num_requests: int | None) -> Recorded:
    """Spans with token counts, in the order of their start; those of one conversation or trace are a session.

    Each arrives at its start. InputError where no span has token counts.
    """
    rows = Rows(path, num_requests)
    dates = Dates(rows)
    rows.note(GROWS)
    spans = typed(read_json(path, "result_bytes"), _Trace, path).spans
    timed = []
    for number, span in enumerate(spans, start=1):
        timed.append((dates.nanoseconds(f"spans[{number}]", "start_time", span.start_time), number, span))
    for nanoseconds, number, span in sorted(timed, key=lambda item: item[:2]):
        tokens = [_tokens(path, number, span, name) for name in ("input_tokens", "output_tokens")]
        if not all(tokens):
            rows.leave_out("spans without token counts")
            continue
        session = span.attributes.get("gen_ai.conversation.id") or span.trace_id
        request = Request(
            prompt_tokens=tokens[0],
            output_tokens=tokens[1],
            arrival_s=(nanoseconds - timed[0][0]) / 1e9,
            session=session,
        )
        if rows.num_wanted > 0:
            rows.add(f"spans[{number}]", request)
    if spans and not len(rows):
        raise rows.refuse("", _NO_USAGE)
    return rows.recorded()


def _tokens(path: Path, number: int, span: _Span, name: str) -> int:
    """0 where the span does not say."""
    key = f"gen_ai.usage.{name}"
    found = span.attributes.get(key) or 0
    return int(typed(found, TokensOrNone, path, f"spans[{number}]", name=key))


FORMAT: Final = TraceFormat(
    name="otel",
    looks_like="JSON with spans that have gen_ai attributes",
    recognises=lambda head: head.lstrip().startswith("{") and '"spans"' in head and '"gen_ai.' in head,
    read=read,
    is_by_time=False,
    source="OpenTelemetry semantic conventions for generative AI; inference-perf, otel_trace_replay",
)
