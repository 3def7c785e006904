"""Metrics with a unit beside each value, as aiperf and genai-perf write them."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrate.readers.parsing.files import Head, at, mapping, number, numbers

_SECONDS_PER = {
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0,
    "nanoseconds": 1e-9, "microseconds": 1e-6, "milliseconds": 1e-3, "seconds": 1.0,
}  # fmt: skip
# Both tools' inter token latency is (end to end − first token) / (output tokens − 1) of a request: TPOT here.
_LATENCIES = {
    "time_to_first_token": "ttft_s",
    "inter_token_latency": "tpot_s",
    "inter_chunk_latency": "itl_s",
    "request_latency": "e2e_s",
}
_RATES = {
    "request_throughput": "requests_per_s",
    "output_token_throughput": "output_tokens_per_s",
    "benchmark_duration": "duration_s",
    "request_count": "num_finished",
    "error_request_count": "num_failed",
    "effective_concurrency": "in_flight_mean",
    "goodput": "goodput_requests_per_s",
    "request_goodput": "goodput_requests_per_s",
}
_STATISTICS = ("p50", "p90", "p95", "p99")


def metric_value(metrics: Mapping[str, Any], name: str) -> float:
    return number(mapping(metrics.get(name)).get("value"))


def metric_seconds(path: Path, metrics: Mapping[str, Any], name: str) -> float:
    return metric_value(metrics, name) * unit_s(path, mapping(metrics.get(name)).get("unit"), name)


def unit_s(path: Path, unit: Any, name: str) -> float:
    """Seconds per unit; a metric that is not there has none. Raises ValueError for a unit that is not known."""
    if unit is None:
        return math.nan
    if str(unit).lower() not in _SECONDS_PER:
        raise ValueError(f"{path}: {name} is in '{str(unit)[:20]}'; times can be in {', '.join(_SECONDS_PER)}")
    return _SECONDS_PER[str(unit).lower()]


def is_aggregated(path: Path, head: Head, *, by_aiperf: bool) -> bool:
    """Whether latencies stand as `{unit, avg, p50, …}`, written by aiperf, or by genai-perf, which does not say so."""
    if not isinstance(head, dict) or not any("avg" in mapping(head.get(name)) for name in _LATENCIES):
        return False
    says_aiperf = "aiperf_version" in head or "schema_version" in head or path.name.endswith("_aiperf.json")
    return says_aiperf == by_aiperf


def aggregates(path: Path, metrics: Mapping[str, Any]) -> dict[str, float]:
    """The tool's figures under the names here."""
    found = {}
    for metric, name in _LATENCIES.items():
        values = mapping(metrics.get(metric))
        scale = unit_s(path, values.get("unit"), metric)
        found[f"{name}.mean"] = number(values.get("avg")) * scale
        found |= {f"{name}.{statistic}": number(values.get(statistic)) * scale for statistic in _STATISTICS}
    for metric, name in _RATES.items():
        values = mapping(metrics.get(metric))
        scale = unit_s(path, values.get("unit"), metric) if name == "duration_s" else 1.0
        found[name] = number(values.get("avg")) * scale
    return numbers(**found)


def mean_lengths(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Mean tokens per request."""
    return numbers(
        input_len=at(metrics, "input_sequence_length", "avg"), output_len=at(metrics, "output_sequence_length", "avg")
    )
