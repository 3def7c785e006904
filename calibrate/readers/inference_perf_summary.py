"""inference-perf's figures, summary_lifecycle_metrics.json or stage_N_lifecycle_metrics.json.

Fields as in docs/reports.md and reportgen/base.py of inference-perf, in seconds. It has no requests: read
per_request_lifecycle_metrics.json for those.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.files import Head, at, count, json_objects, mapping, number, numbers

LOOKS_LIKE = "JSON with successes, failures"
_LATENCIES = {
    "time_to_first_token": "ttft_s",
    "time_per_output_token": "tpot_s",
    "inter_token_latency": "itl_s",
    "request_latency": "e2e_s",
}
_STATISTICS = {"mean": "mean", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}


def recognizes(path: Path, head: Head) -> bool:
    return isinstance(head, dict) and "successes" in head and "failures" in head


def read(path: Path) -> list[MeasuredRun]:
    """One run, without requests."""
    report = json_objects(path)[0]
    failed = count(at(report, "failures", "count"))
    return [
        MeasuredRun(
            source=path,
            tool="inference-perf",
            load=numbers(
                rate=at(report, "load_summary", "requested_rate"),
                concurrency=at(report, "load_summary", "concurrency"),
                num_requests=at(report, "load_summary", "count"),
                input_len=at(report, "successes", "prompt_len", "mean"),
                output_len=at(report, "successes", "output_len", "mean"),
            ),
            aggregates=_aggregates(mapping(report.get("successes"))) | numbers(num_failed=failed),
            excluded={"failed": failed} if failed else {},
            notes=("figures without requests: per_request_lifecycle_metrics.json has those",),
        )
    ]


def _aggregates(successes: Mapping[str, Any]) -> dict[str, float]:
    found = {
        "num_finished": number(successes.get("count")),
        "requests_per_s": number(at(successes, "throughput", "requests_per_sec")),
        "output_tokens_per_s": number(at(successes, "throughput", "output_tokens_per_sec")),
        "total_tokens_per_s": number(at(successes, "throughput", "total_tokens_per_sec")),
    }
    for metric, name in _LATENCIES.items():
        values = mapping(at(successes, "latency", metric))
        found |= {f"{name}.{here}": number(values.get(there)) for there, here in _STATISTICS.items()}
    return numbers(**found)
