"""inference-perf's figures, summary_lifecycle_metrics.json or stage_N_lifecycle_metrics.json.

Fields as in docs/reports.md and reportgen/base.py of inference-perf, in seconds. It has no requests: read
per_request_lifecycle_metrics.json for those.
"""

from pathlib import Path

from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.files import Head, count, numbers, typed_objects
from calibrate.readers.parsing.leaves import leaves

LOOKS_LIKE = "JSON with successes, failures"
_LATENCIES = {
    "time_to_first_token": "ttft_s",
    "time_per_output_token": "tpot_s",
    "inter_token_latency": "itl_s",
    "request_latency": "e2e_s",
}
_STATISTICS = {"mean": "mean", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
_AGGREGATES = {
    "num_finished": "successes.count",
    "requests_per_s": "successes.throughput.requests_per_sec",
    "output_tokens_per_s": "successes.throughput.output_tokens_per_sec",
    "total_tokens_per_s": "successes.throughput.total_tokens_per_sec",
} | {
    f"{name}.{here}": f"successes.latency.{metric}.{there}"
    for metric, name in _LATENCIES.items()
    for there, here in _STATISTICS.items()
}
_LOAD = {
    "rate": "load_summary.requested_rate",
    "concurrency": "load_summary.concurrency",
    "num_requests": "load_summary.count",
    "input_len": "successes.prompt_len.mean",
    "output_len": "successes.output_len.mean",
}
_REPORT = leaves({}, *_AGGREGATES.values(), *_LOAD.values(), "failures.count")


def recognizes(path: Path, head: Head) -> bool:
    return isinstance(head, dict) and "successes" in head and "failures" in head


def read(path: Path) -> list[MeasuredRun]:
    """One run, without requests."""
    report = typed_objects(path, _REPORT)[0][1]
    failed = count(report["failures.count"])
    return [
        MeasuredRun(
            source=path,
            tool="inference-perf",
            load=numbers(**{name: report[place] for name, place in _LOAD.items()}),
            aggregates=numbers(**{name: report[place] for name, place in _AGGREGATES.items()}, num_failed=failed),
            excluded={"failed": failed} if failed else {},
            notes=("figures without requests: per_request_lifecycle_metrics.json has those",),
        )
    ]
