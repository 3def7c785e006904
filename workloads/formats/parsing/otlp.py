"""OpenTelemetry's own JSON of spans, as collectors and exporters write it, in the flat form that traces are read in.

Field names as in opentelemetry-proto's JSON mapping, https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding:
64-bit integers may be text, and before 1.0 a scope was an instrumentation library.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from files.documents import Json
from files.reading import InputError, shown

OTLP = re.compile(r'"(?:resourceSpans|resourceMetrics|resourceLogs|scopeSpans|instrumentationLibrarySpans)"\s*:')
"""A key that no other JSON of traces has."""
_GROUPS = ("scopeSpans", "instrumentationLibrarySpans")
_SPANS = ("resourceSpans", "batches")  # Tempo's API calls them batches
_OTHER_SIGNALS = ("resourceMetrics", "resourceLogs")


def exports(document: object) -> Iterator[object]:
    """What exporters sent at once: of an array each, of Tempo's answer what stands under `trace`."""
    for each in document if isinstance(document, list) else [document]:
        yield each["trace"] if isinstance(each, dict) and is_otlp(each.get("trace")) else each


def is_otlp(document: object) -> bool:
    """Whether it is what an exporter sends at once."""
    return isinstance(document, dict) and not document.keys().isdisjoint(_SPANS)


def has_no_spans(document: object) -> bool:
    """Whether it is metrics or logs, which a collector may write to the same file."""
    return isinstance(document, dict) and not document.keys().isdisjoint(_OTHER_SIGNALS) and not is_otlp(document)


def otlp_spans(path: Path, place: str, document: Json) -> Iterator[Json]:
    """Its spans with `start_time`, in nanoseconds, `trace_id` and `attributes` by name. Raises InputError."""
    try:
        for resource in next(document[name] for name in _SPANS if name in document) or ():
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
