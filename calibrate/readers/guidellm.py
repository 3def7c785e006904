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

from msgspec import field

from boundary.documents import read_yaml
from boundary.files import InputError, shown
from boundary.schema import Lenient, typed
from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.engine_options import engine_option
from calibrate.readers.parsing.files import (
    Figure,
    Head,
    count,
    first_number,
    json_objects,
    number,
    numbers,
    result_text,
)
from calibrate.readers.parsing.rows import RequestRows

LOOKS_LIKE = "JSON or YAML with benchmarks[].requests"
_VERSIONS = (1, 2)
_YAML_KEYS = ("args:", "metadata:", "config:", "benchmarks:")
_PERCENTILES = {"p50", "p90", "p95", "p99"}


class _Timings(Lenient, frozen=True):
    request_start: Figure = None
    first_token_iteration: Figure = None
    first_iteration: Figure = None  # up to guidellm 0.4
    request_end: Figure = None


class _Info(Lenient, frozen=True):
    timings: _Timings | None = None
    conversation_id: str | int | None = None


class _Tokens(Lenient, frozen=True):
    total_tokens: Figure = None
    text_tokens: Figure = None
    cached_tokens: Figure = None


class _Request(Lenient, frozen=True):
    info: _Info | None = None
    start_time: Figure = None
    first_token_time: Figure = None
    end_time: Figure = None
    prompt_tokens: Figure = None
    output_tokens: Figure = None
    input_metrics: _Tokens | None = None
    output_metrics: _Tokens | None = None

    @property
    def timings(self) -> _Timings | None:
        return self.info.timings if self.info else None

    @property
    def start_s(self) -> float:
        """When it was sent, by either shape."""
        return first_number(self.timings and self.timings.request_start, self.start_time)


class _Requests(Lenient, frozen=True):
    successful: list[_Request] | None = None
    incomplete: list[_Request] | None = None
    errored: list[_Request] | None = None

    def __len__(self) -> int:
        return sum(len(part or ()) for part in (self.successful, self.incomplete, self.errored))


class _Totals(Lenient, frozen=True):
    total: Figure = None
    successful: Figure = None


class _Summary(Lenient, frozen=True):
    mean: Figure = None
    count: Figure = None
    percentiles: dict[str, Figure] | None = None


class _Metric(Lenient, frozen=True):
    successful: _Summary | None = None


class _Metrics(Lenient, frozen=True):
    request_totals: _Totals | None = None
    time_to_first_token_ms: _Metric | None = None
    request_latency: _Metric | None = None
    inter_token_latency_ms: _Metric | None = None
    requests_per_second: _Metric | None = None
    output_tokens_per_second: _Metric | None = None
    request_concurrency: _Metric | None = None

    def successful(self, name: str) -> _Summary:
        metric: _Metric | None = getattr(self, name)
        return (metric and metric.successful) or _Summary()


class _Strategy(Lenient, frozen=True):
    """Of the kind `type_`, in newer reports `kind`, with the number of streams or the rate."""

    type_: str | None = None
    kind: str | None = None
    streams: Figure = None
    max_concurrency: Figure = None
    rate: Any = None


class _Load(Lenient, frozen=True):
    strategy: _Strategy | None = None


class _Benchmark(Lenient, frozen=True):
    requests: _Requests | None = None
    request_totals: _Totals | None = None
    metrics: _Metrics | None = None
    duration: Figure = None
    config: _Load | None = None
    args: _Load | None = None


class _Metadata(Lenient, frozen=True):
    version: Any = None


class _Report(Lenient, frozen=True):
    metadata: _Metadata | None = None
    benchmarks: list[_Benchmark] = field(default_factory=list)


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
    report = typed(found, _Report, path)
    version = report.metadata.version if report.metadata else None
    if version not in (None, *_VERSIONS):
        raise InputError(
            f"{shown(path)}: is a guidellm report of version {version!r:.40}; versions 1 and 2 can be read: write it "
            "with another release of guidellm, or add the version to calibrate/readers/guidellm.py"
        )
    models = [_model(found, benchmark) for benchmark in found.get("benchmarks", ())]
    return [_run(path, benchmark, model) for benchmark, model in zip(report.benchmarks, models, strict=True)]


def _run(path: Path, benchmark: _Benchmark, model: str | None) -> MeasuredRun:
    requests, metrics = benchmark.requests or _Requests(), benchmark.metrics or _Metrics()
    rows = RequestRows()
    for request in requests.successful or ():
        _add(rows, request)
    for part, reason in ((requests.incomplete, "unfinished when the run ended"), (requests.errored, "failed")):
        for request in part or ():
            rows.exclude(reason, arrival_s=request.start_s)
    totals = benchmark.request_totals or metrics.request_totals or _Totals()
    unwritten = count(totals.total) - len(requests)
    if unwritten > 0:
        rows.exclude("not written down: the report holds a sample", unwritten)
    return MeasuredRun(
        source=path,
        tool="guidellm",
        options={} if model is None else {"model": engine_option("model", model, path, "model")},
        load=_load(benchmark) | numbers(num_requests=totals.total),
        aggregates=_aggregates(benchmark, metrics) | numbers(num_finished=totals.successful),
        **(rows.parts() if len(requests) else {}),
    )


def _add(rows: RequestRows, request: _Request) -> None:
    timings, given, made = request.timings, request.input_metrics or _Tokens(), request.output_metrics or _Tokens()
    if timings is None:
        first_s, end_s = number(request.first_token_time), number(request.end_time)
    else:
        first_s = first_number(timings.first_token_iteration, timings.first_iteration)
        end_s = number(timings.request_end)
    rows.add(
        arrival_s=request.start_s,
        prompt_tokens=first_number(request.prompt_tokens, given.total_tokens, given.text_tokens),
        output_tokens=first_number(request.output_tokens, made.total_tokens, made.text_tokens),
        ttft_s=first_s - request.start_s,
        e2e_s=end_s - request.start_s,
        cached_tokens=number(given.cached_tokens),
        session=request.info.conversation_id if request.info else None,
    )


def _aggregates(benchmark: _Benchmark, metrics: _Metrics) -> dict[str, float]:
    found = {"duration_s": number(benchmark.duration)}
    for metric, name, unit in (
        ("time_to_first_token_ms", "ttft_s", 1e3),
        ("request_latency", "e2e_s", 1.0),
    ):
        statistics = _statistics(metrics.successful(metric))
        found |= {f"{name}.{statistic}": value / unit for statistic, value in statistics}
    found["itl_s.mean"] = number(metrics.successful("inter_token_latency_ms").mean) / 1e3
    for metric, name in (
        ("requests_per_second", "requests_per_s"),
        ("output_tokens_per_second", "output_tokens_per_s"),
        ("request_concurrency", "in_flight_mean"),
    ):
        found[name] = number(metrics.successful(metric).mean)
    return numbers(**found)


def _statistics(successful: _Summary) -> Iterator[tuple[str, float]]:
    if number(successful.count) != 0:
        yield "mean", number(successful.mean)
        for percentile, value in (successful.percentiles or {}).items():
            if percentile in _PERCENTILES:
                yield percentile, number(value)


def _model(report: Any, benchmark: Any) -> str | None:
    """By any place that releases have written it to."""
    args = report.get("args") or report.get("config")
    places = (
        _at(args, "model"),
        _at(args, "backend_kwargs", "model"),
        _at(args, "backend", "model"),
        _at(benchmark, "config", "backend", "model"),
        _at(benchmark, "worker", "backend_model"),
    )
    return next((model for model in places if isinstance(model, str)), None)


def _at(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _load(benchmark: _Benchmark) -> dict[str, float]:
    known = [part.strategy for part in (benchmark.config, benchmark.args) if part and part.strategy]
    strategy = known[0] if known else _Strategy()
    kind = strategy.type_ or strategy.kind
    if kind == "synchronous":
        return {"concurrency": 1.0}
    if kind == "concurrent":
        return numbers(concurrency=strategy.streams)
    if kind == "throughput":
        return {"rate": math.inf} | numbers(concurrency=strategy.max_concurrency)
    burstiness = {"constant": math.inf, "poisson": 1.0}.get(str(kind))
    return numbers(rate=strategy.rate) | ({} if burstiness is None else {"burstiness": burstiness})
