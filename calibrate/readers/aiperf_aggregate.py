"""aiperf's figures of a run, profile_export_aiperf.json.

Written by src/aiperf/exporters/metrics_json_exporter.py: `schema_version`, `aiperf_version`, `input_config` and one
`{unit, avg, p50, …}` per metric. It has no requests: read profile_export.jsonl for those.
"""

from pathlib import Path
from typing import Any

from msgspec import field

from boundary.schema import Lenient, typed
from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.engine_options import engine_option
from calibrate.readers.parsing.files import Head, json_objects, numbers
from calibrate.readers.parsing.metric_values import Metrics, is_aggregated

LOOKS_LIKE = "JSON with aiperf_version, time_to_first_token.avg"


class _Models(Lenient, frozen=True):
    items: list[Any] | None = None


class _Endpoint(Lenient, frozen=True):
    model_names: list[Any] | None = None


class _Config(Lenient, frozen=True):
    """Load settings of the phase that counts; older releases have one `loadgen` instead of phases."""

    phases: list[dict[str, Any]] | None = None
    loadgen: dict[str, Any] | None = None
    models: _Models | None = None
    endpoint: _Endpoint | None = None


class _Report(Lenient, frozen=True):
    input_config: _Config | None = field(default_factory=_Config)


def recognizes(path: Path, head: Head) -> bool:
    return is_aggregated(path, head, by_aiperf=True)


def read(path: Path) -> list[MeasuredRun]:
    """One run, without requests."""
    place, found = json_objects(path)[0]
    config = typed(found, _Report, path, place).input_config or _Config()
    counting = [phase for phase in config.phases or () if not phase.get("exclude_from_results")]
    asked = counting[-1] if counting else config.loadgen or {}
    metrics = Metrics(path, found)
    return [
        MeasuredRun(
            source=path,
            tool="aiperf",
            options=_model(path, config),
            load=numbers(
                concurrency=asked.get("concurrency"),
                rate=asked.get("request_rate") or asked.get("rate"),
                num_requests=asked.get("request_count") or asked.get("requests"),
            )
            | metrics.mean_lengths(),
            aggregates=metrics.aggregates(),
            notes=("figures without requests: profile_export.jsonl has those",),
        )
    ]


def _model(path: Path, config: _Config) -> dict[str, Any]:
    items = (config.models and config.models.items) or (config.endpoint and config.endpoint.model_names) or [None]
    name = (items[0].get("name") if isinstance(items[0], dict) else None) or items[0]
    return {"model": engine_option("model", name, path, "input_config: model")} if isinstance(name, str) else {}
