"""The report of guidellm, benchmarks.json or .yaml, with one run per load.

Fields as in src/guidellm/schemas/request_stats.py, info.py and src/guidellm/benchmark/benchmark.py. Requests of report
version 1 are flat (`start_time`, `first_token_time`, `end_time`) up to guidellm 0.3 and nested (`info.timings`) after
it; version 2 nests them. Its "inter token latency" is a request's mean gap, weighted by tokens in the figures: their
mean is that of all gaps, their percentiles are of requests. Its "time per output token" counts the first token in, and
is left out here. A report may hold a sample of the requests; the rest is counted as not written down.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.engine_options import engine_option
from calibrate.readers.parsing.files import Figure, Head, count, json_objects, number, numbers, result_text
from calibrate.readers.parsing.leaves import Leaves, each, leaves
from calibrate.readers.parsing.rows import RequestRows
from files.documents import read_yaml
from files.reading import InputError, shown
from files.schema import typed

LOOKS_LIKE = "JSON or YAML with benchmarks[].requests"
_VERSIONS = (1, 2)
_YAML_KEYS = ("args:", "metadata:", "config:", "benchmarks:")
_PERCENTILES = {"p50", "p90", "p95", "p99"}


_LATENCIES = {"time_to_first_token_ms": ("ttft_s", 1e3), "request_latency": ("e2e_s", 1.0)}
_MEANS = {
    "inter_token_latency_ms": ("itl_s.mean", 1e3),
    "requests_per_second": ("requests_per_s", 1.0),
    "output_tokens_per_second": ("output_tokens_per_s", 1.0),
    "request_concurrency": ("in_flight_mean", 1.0),
}
_REQUEST = leaves(
    {"info.conversation_id": str | int},
    "info.timings.request_start", "info.timings.first_token_iteration", "info.timings.request_end",
    "info.timings.first_iteration",  # up to guidellm 0.4
    "start_time", "first_token_time", "end_time", "prompt_tokens", "output_tokens",
    "input_metrics.total_tokens", "input_metrics.text_tokens", "input_metrics.cached_tokens",
    "output_metrics.total_tokens", "output_metrics.text_tokens",
)  # fmt: skip
_SUMMARY = leaves({"percentiles": dict[str, Figure]}, "mean", "count")
# Of the kind `type_`, in newer reports `kind`, with the number of streams or the rate.
_STRATEGY = leaves({"type_": str, "kind": str, "rate": Any}, "streams", "max_concurrency")
_PARTS = ("successful", "incomplete", "errored")
_BENCHMARK = leaves(
    {
        **{f"requests.{part}": each(_REQUEST) for part in _PARTS},
        **{f"metrics.{name}.successful": _SUMMARY for name in (*_LATENCIES, *_MEANS)},
        "config.strategy": _STRATEGY,
        "args.strategy": _STRATEGY,
        "config.backend": Any,
        "worker": Any,
    },
    "request_totals.total", "request_totals.successful",
    "metrics.request_totals.total", "metrics.request_totals.successful", "duration",
)  # fmt: skip
_REPORT = leaves({"metadata.version": Any, "args": Any, "config": Any, "benchmarks": each(_BENCHMARK)})


def recognizes(path: Path, head: Head) -> bool:
    if isinstance(head, str):
        lines = head.splitlines()
        return "benchmarks:" in lines and any(line.startswith(_YAML_KEYS) for line in lines[:1])
    benchmarks = head.get("benchmarks")
    first = benchmarks[0] if isinstance(benchmarks, list) and benchmarks else None
    return isinstance(first, dict) and ("requests" in first or "metrics" in first)


def read(path: Path) -> list[MeasuredRun]:
    """One run per load of the report. Raises InputError for a report version that is not known."""
    is_json = result_text(path).lstrip().startswith("{")
    found = json_objects(path)[0][1] if is_json else read_yaml(path, "result_bytes")
    report = typed(found, _REPORT, path)
    version = report["metadata.version"]
    if version not in (None, *_VERSIONS):
        raise InputError(
            f"{shown(path)}: is a guidellm report of version {version!r:.40}; versions 1 and 2 can be read: write it "
            "with another release of guidellm, or add the version to calibrate/readers/guidellm.py"
        )
    return [_run(path, benchmark, _model(report, benchmark)) for benchmark in report["benchmarks"] or ()]


def _run(path: Path, benchmark: Leaves, model: str | None) -> MeasuredRun:
    successful, incomplete, errored = (benchmark[f"requests.{part}"] or () for part in _PARTS)
    rows = RequestRows()
    for request in successful:
        _add(rows, request)
    for part, reason in ((incomplete, "unfinished when the run ended"), (errored, "failed")):
        for request in part:
            rows.exclude(reason, arrival_s=_start_s(request))
    total = benchmark.number("request_totals.total", "metrics.request_totals.total")
    written = len(successful) + len(incomplete) + len(errored)
    if count(total) > written:
        rows.exclude("not written down: the report holds a sample", count(total) - written)
    finished = benchmark.number("request_totals.successful", "metrics.request_totals.successful")
    return MeasuredRun(
        source=path,
        tool="guidellm",
        options={} if model is None else {"model": engine_option("model", model, path, "model")},
        load=_load(benchmark) | numbers(num_requests=total),
        aggregates=_aggregates(benchmark) | numbers(num_finished=finished),
        **(rows.parts() if written else {}),
    )


def _start_s(request: Leaves) -> float:
    """When it was sent, by either shape."""
    return request.number("info.timings.request_start", "start_time")


def _add(rows: RequestRows, request: Leaves) -> None:
    start_s = _start_s(request)
    first_s = request.number("info.timings.first_token_iteration", "info.timings.first_iteration", "first_token_time")
    rows.add(
        arrival_s=start_s,
        prompt_tokens=request.number("prompt_tokens", "input_metrics.total_tokens", "input_metrics.text_tokens"),
        output_tokens=request.number("output_tokens", "output_metrics.total_tokens", "output_metrics.text_tokens"),
        ttft_s=first_s - start_s,
        e2e_s=request.number("info.timings.request_end", "end_time") - start_s,
        cached_tokens=request.number("input_metrics.cached_tokens"),
        session=request["info.conversation_id"],
    )


def _aggregates(benchmark: Leaves) -> dict[str, float]:
    found = {"duration_s": benchmark.number("duration")}
    for metric, (name, unit) in _LATENCIES.items():
        statistics = _statistics(benchmark[f"metrics.{metric}.successful"] or _SUMMARY())
        found |= {f"{name}.{statistic}": value / unit for statistic, value in statistics}
    for metric, (name, unit) in _MEANS.items():
        found[name] = benchmark.number(f"metrics.{metric}.successful.mean") / unit
    return numbers(**found)


def _statistics(successful: Leaves) -> Iterator[tuple[str, float]]:
    if successful.number("count") != 0:
        yield "mean", successful.number("mean")
        for percentile, value in (successful["percentiles"] or {}).items():
            if percentile in _PERCENTILES:
                yield percentile, number(value)


def _model(report: Leaves, benchmark: Leaves) -> str | None:
    """By any place that releases have written it to."""
    settings = "args" if report["args"] else "config"
    places = [report[f"{settings}.{place}"] for place in ("model", "backend_kwargs.model", "backend.model")]
    places += [benchmark["config.backend.model"], benchmark["worker.backend_model"]]
    return next((model for model in places if isinstance(model, str)), None)


def _load(benchmark: Leaves) -> dict[str, float]:
    strategy = benchmark["config.strategy"] or benchmark["args.strategy"] or _STRATEGY()
    kind = strategy["type_"] or strategy["kind"]
    if kind == "synchronous":
        return {"concurrency": 1.0}
    if kind == "concurrent":
        return numbers(concurrency=strategy["streams"])
    if kind == "throughput":
        return {"rate": math.inf} | numbers(concurrency=strategy["max_concurrency"])
    burstiness = {"constant": math.inf, "poisson": 1.0}.get(str(kind))
    return numbers(rate=strategy["rate"]) | ({} if burstiness is None else {"burstiness": burstiness})
