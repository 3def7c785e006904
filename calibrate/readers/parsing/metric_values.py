"""Metrics with a unit beside each value, as aiperf and genai-perf write them."""

import math
from collections.abc import Mapping
from pathlib import Path

from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.engine_options import engine_option
from calibrate.readers.parsing.files import Figure, Head, numbers
from calibrate.readers.parsing.leaves import Leaves, leaves
from files.names import shortened
from files.reading import InputError, shown
from files.schema import typed

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
_LENGTHS = {"input_sequence_length": "input_len", "output_sequence_length": "output_len"}
_STATISTICS = ("p50", "p90", "p95", "p99")


_METRIC = leaves({"unit": str, "value": float | list[Figure]}, "avg", *_STATISTICS)  # of a request its value


class Metrics:
    """Metrics by name; one that is not there has no values. A metric is checked where it is asked for."""

    def __init__(self, path: Path, found: Mapping[str, object], place: str = "") -> None:
        self._path, self._found, self._place = path, found, place

    def metric(self, name: str) -> Leaves:
        """Raises InputError where something else stands in its place."""
        if self._found.get(name) is None:
            return _METRIC()
        return typed(self._found[name], _METRIC, self._path, f"{self._place}{name}")

    def value(self, name: str) -> float:
        return self.metric(name).number("value")

    def seconds(self, name: str) -> float:
        return self.value(name) * self.unit_s(name)

    def unit_s(self, name: str) -> float:
        """Seconds per unit; a metric that is not there has none. Raises InputError for a unit that is not known."""
        unit = self.metric(name)["unit"]
        if unit is None:
            return math.nan
        if unit.lower() not in _SECONDS_PER:
            known = ", ".join(_SECONDS_PER)
            given = f"{self._place}{name} is in '{shortened(unit, 20)}'"
            raise InputError(f"{shown(self._path)}: {given}; times can be in {known}")
        return _SECONDS_PER[unit.lower()]

    def aggregates(self) -> dict[str, float]:
        """The tool's figures under the names here."""
        found = {}
        for metric, name in _LATENCIES.items():
            values, scale = self.metric(metric), self.unit_s(metric)
            found[f"{name}.mean"] = values.number("avg") * scale
            found |= {f"{name}.{statistic}": values.number(statistic) * scale for statistic in _STATISTICS}
        for metric, name in _RATES.items():
            scale = self.unit_s(metric) if name == "duration_s" else 1.0
            found[name] = self.metric(metric).number("avg") * scale
        return numbers(**found)

    def mean_lengths(self) -> dict[str, float]:
        """Mean tokens per request."""
        return numbers(**{name: self.metric(metric)["avg"] for metric, name in _LENGTHS.items()})


def aggregated_run(
    path: Path,
    tool: str,
    found: Mapping[str, object],
    *,
    model: str | None,
    load: Mapping[str, object],
    requests_in: str,
) -> MeasuredRun:
    """A run without requests; `found` is the file, `requests_in` names the one that has them."""
    metrics = Metrics(path, found)
    return MeasuredRun(
        source=path,
        tool=tool,
        options={"model": engine_option("model", model, path, "input_config: model")} if model else {},
        load=numbers(**load) | metrics.mean_lengths(),
        aggregates=metrics.aggregates(),
        notes=(f"figures without requests: {requests_in} has those",),
    )


def is_aggregated(path: Path, head: Head, *, by_aiperf: bool) -> bool:
    """Whether latencies stand as `{unit, avg, p50, …}`, written by aiperf, or by genai-perf, which does not say so."""
    if not isinstance(head, dict):
        return False
    metrics = [head.get(name) for name in _LATENCIES]
    says_aiperf = "aiperf_version" in head or "schema_version" in head or path.name.endswith("_aiperf.json")
    return says_aiperf == by_aiperf and any(isinstance(metric, dict) and "avg" in metric for metric in metrics)
