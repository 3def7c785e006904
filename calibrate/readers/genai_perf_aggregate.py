"""genai-perf's figures of a run, profile_export_genai_perf.json.

Written by genai_perf/export_data/json_exporter.py: one `{unit, avg, p50, …}` per metric and `input_config`, the command
line. It has no requests: read profile_export.json for those.
"""

from pathlib import Path
from typing import Any

from msgspec import field

from boundary.schema import Lenient, typed
from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.engine_options import engine_option
from calibrate.readers.parsing.files import Head, json_objects, numbers
from calibrate.readers.parsing.metric_values import Metrics, is_aggregated

LOOKS_LIKE = "JSON with input_config, time_to_first_token.avg"


class _PerfAnalyzer(Lenient, frozen=True):
    stimulus: dict[str, Any] | None = None


class _Config(Lenient, frozen=True):
    """The command line; in newer releases the load is below `perf_analyzer.stimulus`."""

    model: str | list[str] | None = None
    model_names: str | list[str] | None = None
    concurrency: Any = None
    request_rate: Any = None
    request_count: Any = None
    perf_analyzer: _PerfAnalyzer | None = None


class _Report(Lenient, frozen=True):
    input_config: _Config | None = field(default_factory=_Config)


def recognizes(path: Path, head: Head) -> bool:
    return is_aggregated(path, head, by_aiperf=False)


def read(path: Path) -> list[MeasuredRun]:
    """One run, without requests."""
    place, found = json_objects(path)[0]
    config = typed(found, _Report, path, place).input_config or _Config()
    named = config.model or config.model_names
    model = next(iter(named), None) if isinstance(named, list) else named
    stimulus = (config.perf_analyzer and config.perf_analyzer.stimulus) or {}
    metrics = Metrics(path, found)
    return [
        MeasuredRun(
            source=path,
            tool="genai-perf",
            options={"model": engine_option("model", model, path, "input_config: model")} if model else {},
            load=numbers(
                concurrency=config.concurrency or stimulus.get("concurrency"),
                rate=config.request_rate or stimulus.get("request_rate"),
                num_requests=config.request_count,
            )
            | metrics.mean_lengths(),
            aggregates=metrics.aggregates(),
            notes=("figures without requests: profile_export.json has those",),
        )
    ]
