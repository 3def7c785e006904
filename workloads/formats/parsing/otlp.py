"""OpenTelemetry's own JSON of spans, as collectors and exporters write it, in the flat form that traces are read in.

Field names as in opentelemetry-proto's JSON mapping, https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding:
64-bit integers may be text, and before 1.0 a scope was an instrumentation library.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from files.documents import Json
from files.reading import InputError, shown

_GROUPS = ("scopeSpans", "instrumentationLibrarySpans")


def is_otlp(document: object) -> bool:
    """Whether it is what an exporter sends at once."""
    return isinstance(document, dict) and "resourceSpans" in document


def otlp_spans(path: Path, place: str, document: Json) -> Iterator[Json]:
    """Its spans with `start_time`, in nanoseconds, `trace_id` and `attributes` by name. Raises InputError."""
    try:
        for resource in document["resourceSpans"] or ():
            groups = next((resource[name] for name in _GROUPS if name in resource), None)
            for group in groups or ():
                for span in group.get("spans") or ():
                    yield {
                        "start_time": int(span["startTimeUnixNano"]),
                        "trace_id": span.get("traceId"),
                        "attributes": {
                            str(each["key"]): _value(each.get("value") or {}) for each in span.get("attributes") or ()
                        },
                    }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{shown(path)}: {place}: a span is not as OTLP has it ({type(error).__name__}: {error}); give the export "
            "unchanged"
        ) from None


def _value(value: dict[str, Any]) -> object:
    """One of stringValue, intValue, doubleValue, boolValue; lists and tables are of no use here."""
    if "intValue" in value:
        return int(value["intValue"])
    return next((value[name] for name in ("stringValue", "doubleValue", "boolValue") if name in value), None)
