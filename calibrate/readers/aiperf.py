"""aiperf's records, profile_export.jsonl, one request per line.

Fields as in aiperf's docs/tutorials/working-with-profile-exports.md and metrics reference. `x_correlation_id` is the
session. Token counts are the client's tokenizer's unless it was told to trust the server. The figures of
profile_export_aiperf.json are added where that file lies beside it.
"""

import math
from pathlib import Path
from typing import Any

from calibrate.measured_run import MeasuredRun
from calibrate.readers import aiperf_aggregate
from calibrate.readers.parsing.files import Head, Nanoseconds, number, typed_objects
from calibrate.readers.parsing.leaves import Leaves, leaves
from calibrate.readers.parsing.metric_values import Metrics
from calibrate.readers.parsing.rows import RequestRows, figures_beside
from files.documents import Json
from files.names import shortened

LOOKS_LIKE = "JSON lines with metadata.request_start_ns"


_RECORD = leaves(
    {
        "metadata.request_start_ns": Nanoseconds,
        "metadata.benchmark_phase": str,
        "metadata.was_cancelled": bool,
        "metadata.x_correlation_id": str,
        "metadata.conversation_id": str,
        "metrics": Json,
        "error": Any,
    }
)


def recognizes(path: Path, head: Head) -> bool:
    metadata = head.get("metadata") if isinstance(head, dict) else None
    return isinstance(metadata, dict) and "request_start_ns" in metadata


def read(path: Path) -> list[MeasuredRun]:
    """One run. Raises InputError for a unit of time that is not known."""
    records = typed_objects(path, _RECORD)
    starts_ns = [record["metadata.request_start_ns"] for _, record in records]
    first_ns = min((ns for ns in starts_ns if ns is not None), default=0)
    rows = RequestRows()
    for place, record in records:
        at = f"{place}: metrics." if place else "metrics."
        _add(rows, record, Metrics(path, record["metrics"] or {}, at), first_ns)
    beside = path.with_name(path.name.removesuffix(".gz").removesuffix(".jsonl") + "_aiperf.json")
    figures = figures_beside(beside, aiperf_aggregate.read)
    return [MeasuredRun(source=path, tool="aiperf", **figures, **rows.parts())]


def _add(rows: RequestRows, record: Leaves, metrics: Metrics, first_ns: int) -> None:
    start_ns, phase = record["metadata.request_start_ns"], record["metadata.benchmark_phase"]
    arrival_s = math.nan if start_ns is None else (start_ns - first_ns) / 1e9
    if phase not in (None, "profiling"):
        rows.exclude(f"of the phase {shortened(phase, 20)}")
        return
    if record["metadata.was_cancelled"] or record["error"]:
        rows.exclude("cancelled" if record["metadata.was_cancelled"] else "failed", arrival_s=arrival_s)
        return
    output_tokens = metrics.value("output_sequence_length")
    rows.add(
        arrival_s=arrival_s,
        prompt_tokens=metrics.value("input_sequence_length"),
        output_tokens=metrics.value("output_token_count") if math.isnan(output_tokens) else output_tokens,
        ttft_s=metrics.seconds("time_to_first_token"),
        e2e_s=metrics.seconds("request_latency"),
        session=record["metadata.x_correlation_id"] or record["metadata.conversation_id"],
        itl_s=_gaps(metrics),
    )


def _gaps(metrics: Metrics) -> tuple[float, ...] | None:
    gaps = metrics.metric("inter_chunk_latency")["value"]
    if not isinstance(gaps, list):
        return None
    scale = metrics.unit_s("inter_chunk_latency")
    return tuple(number(gap) * scale for gap in gaps)
