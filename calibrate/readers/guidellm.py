"""The report of guidellm, benchmarks.json or .yaml, with one run per load.

Fields as in src/guidellm/schemas/request_stats.py, info.py and src/guidellm/benchmark/benchmark.py. Requests of report
version 1 are flat (`start_time`, `first_token_time`, `end_time`) up to guidellm 0.3 and nested (`info.timings`) after
it; version 2 nests them. Its "inter token latency" is a request's mean gap, weighted by tokens in the figures: their
mean is that of all gaps, their percentiles are of requests. Its "time per output token" counts the first token in, and
is left out here. A report may hold a sample of the requests; the rest is counted as not written down.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.files import (
    Head,
    at,
    count,
    first_number,
    json_objects,
    listing,
    mapping,
    number,
    numbers,
    read_text,
)
from calibrate.readers.parsing.rows import RequestRows

LOOKS_LIKE = "JSON or YAML with benchmarks[].requests"
_VERSIONS = (1, 2)
_YAML_KEYS = ("args:", "metadata:", "config:", "benchmarks:")


def recognizes(path: Path, head: Head) -> bool:
    if isinstance(head, str):
        lines = head.splitlines()
        return "benchmarks:" in lines and any(line.startswith(_YAML_KEYS) for line in lines[:1])
    first = next(iter(listing(head.get("benchmarks"))), None)
    return isinstance(first, dict) and ("requests" in first or "metrics" in first)


def read(path: Path) -> list[MeasuredRun]:
    """One run per load of the report. Raises ValueError for a report version that is not known."""
    report = _report(path)
    version = at(report, "metadata", "version")
    if version not in (None, *_VERSIONS):
        raise ValueError(
            f"{path}: is a guidellm report of version {version}; versions 1 and 2 can be read: write it with "
            "another release of guidellm, or add the version to calibrate/readers/guidellm.py"
        )
    return [
        _run(path, mapping(report.get("args")) or mapping(report.get("config")), mapping(benchmark))
        for benchmark in listing(report.get("benchmarks"))
    ]


def _report(path: Path) -> dict[str, Any]:
    text = read_text(path)
    if text.lstrip().startswith("{"):
        return json_objects(path)[0]
    try:
        return mapping(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        place = getattr(error, "problem_mark", None)
        where = f", line {place.line + 1}" if place else ""
        raise ValueError(f"{path}{where}: the YAML is cut off or broken; copy the report again") from None


def _run(path: Path, args: Mapping[str, Any], benchmark: Mapping[str, Any]) -> MeasuredRun:
    requests = mapping(benchmark.get("requests"))
    rows = RequestRows()
    for request in listing(requests.get("successful")):
        _add(rows, mapping(request))
    for status, reason in (("incomplete", "unfinished when the run ended"), ("errored", "failed")):
        for request in listing(requests.get(status)):
            rows.exclude(reason, arrival_s=_start_s(mapping(request)))
    totals = mapping(benchmark.get("request_totals")) or mapping(at(benchmark, "metrics", "request_totals"))
    unwritten = count(totals.get("total")) - sum(len(listing(part)) for part in requests.values())
    if unwritten > 0:
        rows.exclude("not written down: the report holds a sample", unwritten)
    return MeasuredRun(
        source=path,
        tool="guidellm",
        options=_options(args, benchmark),
        load=_load(benchmark) | numbers(num_requests=totals.get("total")),
        aggregates=_aggregates(benchmark) | numbers(num_finished=totals.get("successful")),
        **(rows.parts() if any(listing(part) for part in requests.values()) else {}),
    )


def _start_s(request: Mapping[str, Any]) -> float:
    """When the request was sent, by either shape."""
    return first_number(at(request, "info", "timings", "request_start"), request.get("start_time"))


def _add(rows: RequestRows, request: Mapping[str, Any]) -> None:
    timings = mapping(at(request, "info", "timings"))
    times_s = (timings.get("first_token_iteration"), timings.get("first_iteration"))  # the latter up to guidellm 0.4
    first_s = first_number(*times_s) if timings else number(request.get("first_token_time"))
    end_s = number(timings.get("request_end") if timings else request.get("end_time"))
    start_s = _start_s(request)
    rows.add(
        arrival_s=start_s,
        prompt_tokens=first_number(
            request.get("prompt_tokens"),
            at(request, "input_metrics", "total_tokens"),
            at(request, "input_metrics", "text_tokens"),
        ),
        output_tokens=first_number(
            request.get("output_tokens"),
            at(request, "output_metrics", "total_tokens"),
            at(request, "output_metrics", "text_tokens"),
        ),
        ttft_s=first_s - start_s,
        e2e_s=end_s - start_s,
        cached_tokens=number(at(request, "input_metrics", "cached_tokens")),
        session=at(request, "info", "conversation_id"),
    )


def _aggregates(benchmark: Mapping[str, Any]) -> dict[str, float]:
    metrics = mapping(benchmark.get("metrics"))
    found = {"duration_s": number(benchmark.get("duration"))}
    for metric, name, unit in (
        ("time_to_first_token_ms", "ttft_s", 1e3),
        ("request_latency", "e2e_s", 1.0),
    ):
        found |= {f"{name}.{statistic}": value / unit for statistic, value in _statistics(metrics.get(metric))}
    found["itl_s.mean"] = number(at(metrics, "inter_token_latency_ms", "successful", "mean")) / 1e3
    for metric, name in (
        ("requests_per_second", "requests_per_s"),
        ("output_tokens_per_second", "output_tokens_per_s"),
        ("request_concurrency", "in_flight_mean"),
    ):
        found[name] = number(at(metrics, metric, "successful", "mean"))
    return numbers(**found)


def _statistics(metric: Any) -> Iterator[tuple[str, float]]:
    successful = mapping(at(metric, "successful"))
    if number(successful.get("count")) != 0:
        yield "mean", number(successful.get("mean"))
        for percentile, value in mapping(successful.get("percentiles")).items():
            if percentile in {"p50", "p90", "p95", "p99"}:
                yield percentile, number(value)


def _options(args: Mapping[str, Any], benchmark: Mapping[str, Any]) -> dict[str, Any]:
    """The model by any place that releases have written it to."""
    places = (
        args.get("model"),
        at(args, "backend_kwargs", "model"),
        at(args, "backend", "model"),
        at(benchmark, "config", "backend", "model"),
        at(benchmark, "worker", "backend_model"),
    )
    return next(({"model": model} for model in places if isinstance(model, str)), {})


def _load(benchmark: Mapping[str, Any]) -> dict[str, float]:
    """From the strategy: `type_`, in newer reports `kind`, with the number of streams or the rate."""
    strategy = mapping(at(benchmark, "config", "strategy")) or mapping(at(benchmark, "args", "strategy"))
    kind = strategy.get("type_") or strategy.get("kind")
    if kind == "synchronous":
        return {"concurrency": 1.0}
    if kind == "concurrent":
        return numbers(concurrency=strategy.get("streams"))
    if kind == "throughput":
        return {"rate": math.inf} | numbers(concurrency=strategy.get("max_concurrency"))
    burstiness = {"constant": math.inf, "poisson": 1.0}.get(str(kind))
    return numbers(rate=strategy.get("rate")) | ({} if burstiness is None else {"burstiness": burstiness})
