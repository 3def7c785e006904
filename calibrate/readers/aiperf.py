"""aiperf's records, profile_export.jsonl, one request per line.

Fields as in aiperf's docs/tutorials/working-with-profile-exports.md and metrics reference. `x_correlation_id` is the
session. Token counts are the client's tokenizer's unless it was told to trust the server. The figures of
profile_export_aiperf.json are added where that file lies beside it.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrate.measured_run import MeasuredRun
from calibrate.readers import aiperf_aggregate
from calibrate.readers.parsing.files import Head, at, json_objects, listing, mapping, nanoseconds, number
from calibrate.readers.parsing.metric_values import metric_seconds, metric_value, unit_s
from calibrate.readers.parsing.rows import RequestRows, figures_beside

LOOKS_LIKE = "JSON lines with metadata.request_start_ns"


def recognizes(path: Path, head: Head) -> bool:
    return isinstance(head, dict) and "request_start_ns" in mapping(head.get("metadata"))


def read(path: Path) -> list[MeasuredRun]:
    """One run. Raises ValueError for a unit of time that is not known."""
    records = json_objects(path)
    starts_ns = [nanoseconds(at(record, "metadata", "request_start_ns")) for record in records]
    first_ns = min((ns for ns in starts_ns if ns is not None), default=0)
    rows = RequestRows()
    for record in records:
        _add(path, rows, record, first_ns)
    beside = path.with_name(path.name.removesuffix(".gz").removesuffix(".jsonl") + "_aiperf.json")
    figures = figures_beside(beside, aiperf_aggregate.read)
    return [MeasuredRun(source=path, tool="aiperf", **figures, **rows.parts())]


def _add(path: Path, rows: RequestRows, record: Mapping[str, Any], first_ns: int) -> None:
    metadata, metrics = mapping(record.get("metadata")), mapping(record.get("metrics"))
    start_ns = nanoseconds(metadata.get("request_start_ns"))
    arrival_s = math.nan if start_ns is None else (start_ns - first_ns) / 1e9
    if metadata.get("benchmark_phase") not in (None, "profiling"):
        rows.exclude(f"of the phase {str(metadata['benchmark_phase'])[:20]}")
        return
    if metadata.get("was_cancelled") or record.get("error"):
        rows.exclude("cancelled" if metadata.get("was_cancelled") else "failed", arrival_s=arrival_s)
        return
    output_tokens = metric_value(metrics, "output_sequence_length")
    rows.add(
        arrival_s=arrival_s,
        prompt_tokens=metric_value(metrics, "input_sequence_length"),
        output_tokens=metric_value(metrics, "output_token_count") if math.isnan(output_tokens) else output_tokens,
        ttft_s=metric_seconds(path, metrics, "time_to_first_token"),
        e2e_s=metric_seconds(path, metrics, "request_latency"),
        session=metadata.get("x_correlation_id") or metadata.get("conversation_id"),
        itl_s=_gaps(path, metrics),
    )


def _gaps(path: Path, metrics: Mapping[str, Any]) -> tuple[float, ...] | None:
    gaps = mapping(metrics.get("inter_chunk_latency"))
    if not isinstance(gaps.get("value"), list):
        return None
    scale = unit_s(path, gaps.get("unit"), "inter_chunk_latency")
    return tuple(number(gap) * scale for gap in listing(gaps["value"]))
