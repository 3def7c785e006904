"""genai-perf's figures of a run, profile_export_genai_perf.json.

Written by genai_perf/export_data/json_exporter.py: one `{unit, avg, p50, …}` per metric and `input_config`, the command
line. It has no requests: read profile_export.json for those.
"""

from pathlib import Path
from typing import Any

from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.files import Head, json_objects
from calibrate.readers.parsing.leaves import leaves
from calibrate.readers.parsing.metric_values import aggregated_run, is_aggregated
from files.documents import Json
from files.schema import typed

LOOKS_LIKE = "JSON with input_config, time_to_first_token.avg"


_CONFIG = leaves(  # the command line; in newer releases the load is below `perf_analyzer.stimulus`
    {
        "model": str | list[str],
        "model_names": str | list[str],
        "concurrency": Any,
        "request_rate": Any,
        "request_count": Any,
        "perf_analyzer.stimulus": Json,
    }
)
_REPORT = leaves({"input_config": _CONFIG})


def recognizes(path: Path, head: Head) -> bool:
    return is_aggregated(path, head, by_aiperf=False)


def read(path: Path) -> list[MeasuredRun]:
    """One run, without requests."""
    place, found = json_objects(path)[0]
    config = typed(found, _REPORT, path, place)["input_config"] or _CONFIG()
    named = config["model"] or config["model_names"]
    model = next(iter(named), None) if isinstance(named, list) else named
    load = {
        "concurrency": config["concurrency"] or config["perf_analyzer.stimulus.concurrency"],
        "rate": config["request_rate"] or config["perf_analyzer.stimulus.request_rate"],
        "num_requests": config["request_count"],
    }
    return [aggregated_run(path, "genai-perf", found, model=model, load=load, requests_in="profile_export.json")]
