"""OpenTelemetry spans of generative AI: JSON with gen_ai attributes, flat or as OTLP, one object or one per line."""

import re
from pathlib import Path
from typing import Final

import msgspec

from files.documents import Json, json_values
from files.reading import read_text, shown
from files.schema import Lenient, typed
from workloads.formats.parsing.columns import GROWS
from workloads.formats.parsing.dates import Dates
from workloads.formats.parsing.json_rows import TokensOrNone
from workloads.formats.parsing.otlp import OTLP, exports, has_no_spans, is_otlp, otlp_spans
from workloads.formats.parsing.rows import Request, Rows
from workloads.traces.trace_format import Recorded, TraceFormat

# The newer name first; the older one is in OpenTelemetry's conventions up to 1.26, and in vLLM's own spans.
_NAMES: Final = {
    "input_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
    "output_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
}
_NO_USAGE: Final = (
    "no span has gen_ai.usage.input_tokens and gen_ai.usage.output_tokens, or the older names prompt_tokens and "
    "completion_tokens; record them, or count tokens with the "
    "model's tokenizer and give a CSV with --columns"
)
_NO_LLM: Final = (
    "has {}, and none of an LLM: none has gen_ai attributes; give an export that holds the spans of the LLM's server "
    "or client"
)
_NO_SPANS: Final = "holds metrics or logs, and no spans; give an export of traces"
_SPANS: Final = re.compile(r'"spans"\s*:')


class _Span(Lenient, frozen=True):
    start_time: str | int
    """A date, or nanoseconds since 1970."""
    trace_id: str | None = None
    attributes: Json = msgspec.field(default_factory=dict)


class _Trace(Lenient, frozen=True):
    spans: list[_Span]


def recognises(head: str) -> bool:
    """Whether it begins as an export of OTLP, whatever it holds, or as flat spans of an LLM."""
    is_flat = '"gen_ai.' in head and _SPANS.search(head) is not None
    return head.lstrip().startswith(("{", "[")) and (is_flat or OTLP.search(head) is not None)


def read(path: Path, _block_size: int | None, num_requests: int | None) -> Recorded:
    """Spans with token counts, in the order of their start; those of one conversation or trace are a session.

    Each arrives at its start. InputError where no span has token counts.
    """
    rows = Rows(path, num_requests)
    dates = Dates(rows)
    rows.note(GROWS)
    spans = _spans(path, rows)
    timed = []
    for number, span in enumerate(spans, start=1):
        start = span.start_time
        nanoseconds = start if isinstance(start, int) else dates.nanoseconds(f"spans[{number}]", "start_time", start)
        timed.append((nanoseconds, number, span))
    for nanoseconds, number, span in sorted(timed, key=lambda item: item[:2]):
        tokens = [_tokens(path, number, span, names) for names in _NAMES.values()]
        if not all(tokens):
            rows.leave_out("spans without token counts")
            continue
        session = span.attributes.get("gen_ai.conversation.id") or span.attributes.get("session.id") or span.trace_id
        request = Request(
            prompt_tokens=tokens[0],
            output_tokens=tokens[1],
            arrival_s=(nanoseconds - timed[0][0]) / 1e9,
            session=session,
        )
        if rows.num_wanted > 0:
            rows.add(f"spans[{number}]", request)
    if spans and not len(rows):
        is_llm = any(name.startswith("gen_ai.") for span in spans for name in span.attributes)
        count = f"{len(spans):,} span{'s' * (len(spans) > 1)}"
        raise rows.refuse("", _NO_USAGE if is_llm else _NO_LLM.format(count))
    return rows.recorded()


def _spans(path: Path, rows: Rows) -> list[_Span]:
    """Of all documents of the file. Raises InputError."""
    found: list[_Span] = []
    num_others = 0
    for line, value in json_values(read_text(path, "result_bytes"), shown(path)):
        for document in exports(value):
            if has_no_spans(document):
                num_others += 1
                continue
            whole = document
            if is_otlp(document):
                whole = {"spans": list(otlp_spans(path, f"line {line}", typed(document, Json, path)))}
            found += typed(whole, _Trace, path).spans
    if num_others and not found:
        raise rows.refuse("", _NO_SPANS)
    rows.leave_out("exports of metrics or logs", num_others)
    return found


def _tokens(path: Path, number: int, span: _Span, names: tuple[str, ...]) -> int:
    """0 where the span does not say."""
    key = next((name for name in names if span.attributes.get(name) is not None), names[0])
    found = span.attributes.get(key) or 0
    return int(typed(found, TokensOrNone, path, f"spans[{number}]", name=key))


FORMAT: Final = TraceFormat(
    name="otel",
    looks_like="JSON with spans that have gen_ai attributes",
    recognises=recognises,
    read=read,
    is_by_time=False,
    source="OpenTelemetry semantic conventions for generative AI; inference-perf, otel_trace_replay",
)
