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

from boundary.schema import Count, Lenient
from calibrate.measured_run import MeasuredRun
from calibrate.readers import inference_perf_summary
from calibrate.readers.parsing.files import Figure, Head, first_number, number, typed_objects
from calibrate.readers.parsing.rows import RequestRows, figures_beside

LOOKS_LIKE = "a JSON list with start_time, end_time, info"


class _PromptDetails(Lenient, frozen=True):
    cached_tokens: Figure = None


class _Usage(Lenient, frozen=True):
    prompt_tokens: Figure = None
    completion_tokens: Figure = None
    output_tokens: Figure = None
    prompt_tokens_details: _PromptDetails | None = None


class _Response(Lenient, frozen=True):
    server_usage: _Usage | None = None
    output_token_times: list[Figure] | None = None
    output_tokens: Figure = None


class _Text(Lenient, frozen=True):
    input_tokens: Figure = None


class _RequestMetrics(Lenient, frozen=True):
    text: _Text | None = None


class _Labels(Lenient, frozen=True):
    session_id: str | int | None = None


class _Info(_Response, frozen=True):
    """Older files have no level between it and what is of the response."""

    response_metrics: _Response | None = None
    request_metrics: _RequestMetrics | None = None
    chunk_times: list[Figure] | None = None
    input_tokens: Figure = None
    labels: _Labels | None = None


class _Request(Lenient, frozen=True):
    start_time: Figure = None
    end_time: Figure = None
    stage_id: Count | None = None
    error: Any = None
    info: _Info | None = None


def recognizes(path: Path, head: Head) -> bool:
    return isinstance(head, dict) and {"start_time", "end_time", "info"} <= head.keys()


def read(path: Path) -> list[MeasuredRun]:
    """One run per stage of the load; one where requests do not say their stage."""
    stages: dict[int | None, list[_Request]] = {}
    for _, request in typed_objects(path, _Request):
        stages.setdefault(request.stage_id, []).append(request)
    return [_run(path, stage, requests) for stage, requests in stages.items()]


def _run(path: Path, stage: int | None, requests: list[_Request]) -> MeasuredRun:
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


def _add(rows: RequestRows, request: _Request) -> None:
    start_s, info = number(request.start_time), request.info or _Info()
    if request.error:
        rows.exclude("failed", arrival_s=start_s)
        return
    response = info.response_metrics or info
    usage = response.server_usage or _Usage()
    times_s = [number(time) for time in response.output_token_times or info.chunk_times or ()]
    text = (info.request_metrics and info.request_metrics.text) or _Text()
    rows.add(
        arrival_s=start_s,
        prompt_tokens=first_number(usage.prompt_tokens, text.input_tokens, info.input_tokens),
        output_tokens=first_number(usage.completion_tokens, usage.output_tokens, response.output_tokens),
        cached_tokens=number((usage.prompt_tokens_details or _PromptDetails()).cached_tokens),
        ttft_s=times_s[0] - start_s if times_s else math.nan,
        e2e_s=number(request.end_time) - start_s,
        session=(info.labels or _Labels()).session_id,
        itl_s=[later - before for before, later in pairwise(times_s)] if times_s else None,
    )
