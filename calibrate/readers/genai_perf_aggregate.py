"""genai-perf's figures of a run, profile_export_genai_perf.json.

Written by genai_perf/export_data/json_exporter.py: one `{unit, avg, p50, …}` per metric and `input_config`, the command
line. It has no requests: read profile_export.json for those.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.files import Head, at, json_objects, mapping, numbers
from calibrate.readers.parsing.metric_values import aggregates, is_aggregated, mean_lengths

LOOKS_LIKE = "JSON with input_config, time_to_first_token.avg"


def recognizes(path: Path, head: Head) -> bool:
    return is_aggregated(path, head, by_aiperf=False)


def read(path: Path) -> list[MeasuredRun]:
    """One run, without requests."""
    metrics = json_objects(path)[0]
    config = mapping(metrics.get("input_config"))
    named = config.get("model") or config.get("model_names")
    model = next(iter(named), None) if isinstance(named, list) else named
    return [
        MeasuredRun(
            source=path,
            tool="genai-perf",
            options={"model": model} if isinstance(model, str) else {},
            load=_load(config) | mean_lengths(metrics),
            aggregates=aggregates(path, metrics),
            notes=("figures without requests: profile_export.json has those",),
        )
    ]


def _load(config: Mapping[str, Any]) -> dict[str, float]:
    """From the command line's `concurrency` or `request_rate`, in newer releases below `perf_analyzer.stimulus`."""
    stimulus = mapping(at(config, "perf_analyzer", "stimulus"))
    return numbers(
        concurrency=config.get("concurrency") or stimulus.get("concurrency"),
        rate=config.get("request_rate") or stimulus.get("request_rate"),
        num_requests=config.get("request_count"),
    )
