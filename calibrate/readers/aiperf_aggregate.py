"""aiperf's figures of a run, profile_export_aiperf.json.

Written by src/aiperf/exporters/metrics_json_exporter.py: `schema_version`, `aiperf_version`, `input_config` and one
`{unit, avg, p50, …}` per metric. It has no requests: read profile_export.jsonl for those.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from calibrate.measured_run import MeasuredRun
from calibrate.readers._files import Head, json_objects, mapping, numbers
from calibrate.readers._metric_values import aggregates, looks_aggregated, mean_lengths

LOOKS_LIKE = "JSON with aiperf_version, time_to_first_token.avg"


def recognizes(path: Path, head: Head) -> bool:
    if not isinstance(head, dict) or not looks_aggregated(head):
        return False
    return "aiperf_version" in head or "schema_version" in head or path.name.endswith("_aiperf.json")


def read(path: Path) -> list[MeasuredRun]:
    """One run, without requests."""
    metrics = json_objects(path)[0]
    asked = dict(_leaves(metrics.get("input_config")))
    model = next((asked[name] for name in ("model_names", "model", "models") if name in asked), None)
    return [
        MeasuredRun(
            source=path,
            tool="aiperf",
            options={"model": model} if isinstance(model, str) else {},
            load=numbers(
                concurrency=asked.get("concurrency"),
                rate=asked.get("request_rate"),
                num_requests=asked.get("request_count"),
            )
            | mean_lengths(metrics),
            aggregates=aggregates(path, metrics),
            notes=("figures without requests: profile_export.jsonl has those",),
        )
    ]


def _leaves(config: Any) -> Iterator[tuple[str, Any]]:
    """Settings by their last name: releases nest them differently."""
    for name, value in mapping(config).items():
        if isinstance(value, dict):
            yield from _leaves(value)
        else:
            yield str(name), value[0] if isinstance(value, list) and value else value
