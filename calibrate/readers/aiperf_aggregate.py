"""aiperf's figures of a run, profile_export_aiperf.json.

Written by src/aiperf/exporters/metrics_json_exporter.py: `schema_version`, `aiperf_version`, `input_config` and one
`{unit, avg, p50, …}` per metric. It has no requests: read profile_export.jsonl for those.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.files import Head, at, json_objects, listing, mapping, numbers
from calibrate.readers.parsing.metric_values import aggregates, is_aggregated, mean_lengths

LOOKS_LIKE = "JSON with aiperf_version, time_to_first_token.avg"


def recognizes(path: Path, head: Head) -> bool:
    return is_aggregated(path, head, by_aiperf=True)


def read(path: Path) -> list[MeasuredRun]:
    """One run, without requests."""
    metrics = json_objects(path)[0]
    config = mapping(metrics.get("input_config"))
    # Load settings of the phase that counts; older releases have one `loadgen` instead of phases.
    phases = [mapping(phase) for phase in listing(config.get("phases"))]
    counting = [phase for phase in phases if not phase.get("exclude_from_results")]
    asked = counting[-1] if counting else mapping(config.get("loadgen"))
    return [
        MeasuredRun(
            source=path,
            tool="aiperf",
            options=_model(config),
            load=numbers(
                concurrency=asked.get("concurrency"),
                rate=asked.get("request_rate") or asked.get("rate"),
                num_requests=asked.get("request_count") or asked.get("requests"),
            )
            | mean_lengths(metrics),
            aggregates=aggregates(path, metrics),
            notes=("figures without requests: profile_export.jsonl has those",),
        )
    ]


def _model(config: Mapping[str, Any]) -> dict[str, Any]:
    items = listing(at(config, "models", "items")) or listing(at(config, "endpoint", "model_names"))
    first = next(iter(items), None)
    name = mapping(first).get("name") or first
    return {"model": name} if isinstance(name, str) else {}
