"""inference-perf's requests, per_request_lifecycle_metrics.json.

Fields as in inference_perf/apis/base.py and reportgen/base.py; the report is written where `request_lifecycle.
per_request` asks for it. Output tokens are the server's where it counted, else the client's tokenizer's; every token of
a chunk has the chunk's time, so that gaps within chunks are 0. The figures of stage_N_lifecycle_metrics.json, or of the
summary where requests do not say their stage, are added where that file lies beside it.
"""

import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from calibrate.measured_run import MeasuredRun
from calibrate.readers import inference_perf_summary
from calibrate.readers.parsing.files import Head, at, first_number, json_objects, listing, mapping, number
from calibrate.readers.parsing.rows import RequestRows, figures_beside

LOOKS_LIKE = "a JSON list with start_time, end_time, info"


def recognizes(path: Path, head: Head) -> bool:
    return isinstance(head, dict) and {"start_time", "end_time", "info"} <= head.keys()


def read(path: Path) -> list[MeasuredRun]:
    """One run per stage of the load; one where requests do not say their stage."""
    stages: dict[int | None, list[dict[str, Any]]] = {}
    for request in json_objects(path):
        stage = request.get("stage_id")
        stages.setdefault(stage if isinstance(stage, int) else None, []).append(request)
    return [_run(path, stage, requests) for stage, requests in stages.items()]


def _run(path: Path, stage: int | None, requests: list[dict[str, Any]]) -> MeasuredRun:
    rows = RequestRows()
    for request in requests:
        _add(rows, request)
    beside = path.with_name(f"{'summary' if stage is None else f'stage_{stage}'}_lifecycle_metrics.json")
    return MeasuredRun(
        source=path,
        tool="inference-perf",
        **figures_beside(beside, inference_perf_summary.read, num_requests=float(len(requests))),
        **rows.parts(),
    )


def _add(rows: RequestRows, request: Mapping[str, Any]) -> None:
    start_s, info = number(request.get("start_time")), mapping(request.get("info"))
    if request.get("error"):
        rows.exclude("failed", arrival_s=start_s)
        return
    response = mapping(info.get("response_metrics")) or info  # older files have no level between
    usage = mapping(response.get("server_usage"))
    times_s = [number(time) for time in listing(response.get("output_token_times")) or listing(info.get("chunk_times"))]
    rows.add(
        arrival_s=start_s,
        prompt_tokens=first_number(
            usage.get("prompt_tokens"),
            at(info, "request_metrics", "text", "input_tokens"),
            info.get("input_tokens"),
        ),
        output_tokens=first_number(
            usage.get("completion_tokens"), usage.get("output_tokens"), response.get("output_tokens")
        ),
        cached_tokens=number(at(usage, "prompt_tokens_details", "cached_tokens")),
        ttft_s=times_s[0] - start_s if times_s else math.nan,
        e2e_s=number(request.get("end_time")) - start_s,
        session=at(info, "labels", "session_id"),
        itl_s=[later - before for before, later in pairwise(times_s)] if times_s else None,
    )
