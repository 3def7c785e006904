"""genai-perf's figures of a run, profile_export_genai_perf.json.

Written by genai_perf/export_data/json_exporter.py: one `{unit, avg, p50, …}` per metric and `input_config`, the command
line. It has no requests: read profile_export.json for those.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.files import Head, at, json_objects, mapping, numbers
from calibrate.readers.parsing.metric_values import aggregates, looks_aggregated, mean_lengths

LOOKS_LIKE = "JSON with input_config, time_to_first_token.avg"


def recognizes(path: Path, head: Head) -> bool:
    if not isinstance(head, dict) or not looks_aggregated(head):
        return False
    return not ("aiperf_version" in head or "schema_version" in head or path.name.endswith("_aiperf.json"))


def read(path: Path) -> list[MeasuredRun]:
    """One run, without requests."""
    metrics = json_objects(path)[0]
    config = mapping(metrics.get("input_config"))
    return [
        MeasuredRun(
            source=path,
            tool="genai-perf",
            options=_options(config),
            load=_load(config) | mean_lengths(metrics),
            aggregates=aggregates(path, metrics),
            notes=("figures without requests: profile_export.json has those",),
        )
    ]


def _options(config: Mapping[str, Any]) -> dict[str, Any]:
    model = config.get("model") or config.get("model_names")
    first = model[0] if isinstance(model, list) and model else model
    return {"model": first} if isinstance(first, str) else {}


def _load(config: Mapping[str, Any]) -> dict[str, float]:
    """From the command line's `concurrency` or `request_rate`, in newer releases below `perf_analyzer.stimulus`."""
    stimulus = mapping(at(config, "perf_analyzer", "stimulus"))
    return numbers(
        concurrency=config.get("concurrency") or stimulus.get("concurrency"),
        rate=config.get("request_rate") or stimulus.get("request_rate"),
        num_requests=config.get("request_count"),
    )
