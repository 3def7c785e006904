"""aiperf's figures of a run, profile_export_aiperf.json.

Written by src/aiperf/exporters/metrics_json_exporter.py: `schema_version`, `aiperf_version`, `input_config` and one
`{unit, avg, p50, …}` per metric. It has no requests: read profile_export.jsonl for those.
"""

from pathlib import Path
from typing import Any

from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.files import Head, json_objects
from calibrate.readers.parsing.leaves import leaves
from calibrate.readers.parsing.metric_values import aggregated_run, is_aggregated
from files.documents import Json
from files.schema import typed

LOOKS_LIKE = "JSON with aiperf_version, time_to_first_token.avg"


_REPORT = leaves(
    {
        "input_config.phases": list[Json],
        "input_config.loadgen": Json,  # of older releases, which have no phases
        "input_config.models.items": list[Any],
        "input_config.endpoint.model_names": list[Any],
    }
)


def recognizes(path: Path, head: Head) -> bool:
    return is_aggregated(path, head, by_aiperf=True)


def read(path: Path) -> list[MeasuredRun]:
    """One run, without requests."""
    place, found = json_objects(path)[0]
    report = typed(found, _REPORT, path, place)
    counting = [phase for phase in report["input_config.phases"] or () if not phase.get("exclude_from_results")]
    asked = counting[-1] if counting else report["input_config.loadgen"] or {}
    named = report["input_config.models.items"] or report["input_config.endpoint.model_names"] or [None]
    model = (named[0].get("name") if isinstance(named[0], dict) else None) or named[0]
    load = {
        "concurrency": asked.get("concurrency"),
        "rate": asked.get("request_rate") or asked.get("rate"),
        "num_requests": asked.get("request_count") or asked.get("requests"),
    }
    known = model if isinstance(model, str) else None
    return [aggregated_run(path, "aiperf", found, model=known, load=load, requests_in="profile_export.jsonl")]
