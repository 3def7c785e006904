"""inference-perf's requests, per_request_lifecycle_metrics.json.

Fields as in inference_perf/apis/base.py and reportgen/base.py; the report is written where `request_lifecycle.
per_request` asks for it. Output tokens are the server's where it counted, else the client's tokenizer's; every token of
a chunk has the chunk's time, so that gaps within chunks are 0. The figures of stage_N_lifecycle_metrics.json, or of the
summary where requests do not say their stage, are added where that file lies beside it.
"""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

from calibrate.measured_run import MeasuredRun
from calibrate.readers import inference_perf_summary
from calibrate.readers.parsing.files import Figure, Head, first_number, number, typed_objects
from calibrate.readers.parsing.leaves import Leaves, leaves
from calibrate.readers.parsing.rows import RequestRows, figures_beside
from files.schema import Count

LOOKS_LIKE = "a JSON list with start_time, end_time, info"


_TIMES = {"output_token_times": list[Figure]}
_COUNTS = (
    "server_usage.prompt_tokens", "server_usage.completion_tokens", "server_usage.output_tokens",
    "server_usage.prompt_tokens_details.cached_tokens", "output_tokens",
)  # fmt: skip
_INFO = leaves(  # older files have no level between it and what is of the response
    {
        **_TIMES,
        "response_metrics": leaves(_TIMES, *_COUNTS),
        "chunk_times": list[Figure],
        "labels.session_id": str | int,
    },
    *_COUNTS,
    "request_metrics.text.input_tokens",
    "input_tokens",
)
_REQUEST = leaves({"stage_id": Count, "error": Any, "info": _INFO}, "start_time", "end_time")


def recognizes(path: Path, head: Head) -> bool:
    return isinstance(head, dict) and {"start_time", "end_time", "info"} <= head.keys()


def read(path: Path) -> list[MeasuredRun]:
    """One run per stage of the load; one where requests do not say their stage."""
    stages: dict[int | None, list[Leaves]] = {}
    for _, request in typed_objects(path, _REQUEST):
        stages.setdefault(request["stage_id"], []).append(request)
    return [_run(path, stage, requests) for stage, requests in stages.items()]


def _run(path: Path, stage: int | None, requests: list[Leaves]) -> MeasuredRun:
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


def _add(rows: RequestRows, request: Leaves) -> None:
    start_s, info = request.number("start_time"), request["info"] or _INFO()
    if request["error"]:
        rows.exclude("failed", arrival_s=start_s)
        return
    response = info["response_metrics"] or info
    times_s = [number(time) for time in response["output_token_times"] or info["chunk_times"] or ()]
    prompt_tokens = response.number("server_usage.prompt_tokens")
    rows.add(
        arrival_s=start_s,
        prompt_tokens=first_number(prompt_tokens, info["request_metrics.text.input_tokens"], info["input_tokens"]),
        output_tokens=response.number("server_usage.completion_tokens", "server_usage.output_tokens", "output_tokens"),
        cached_tokens=response.number("server_usage.prompt_tokens_details.cached_tokens"),
        ttft_s=times_s[0] - start_s if times_s else math.nan,
        e2e_s=request.number("end_time") - start_s,
        session=info["labels.session_id"],
        itl_s=[later - before for before, later in pairwise(times_s)] if times_s else None,
    )
