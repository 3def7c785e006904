"""inference-perf's figures, summary_lifecycle_metrics.json or stage_N_lifecycle_metrics.json.

Fields as in docs/reports.md and reportgen/base.py of inference-perf, in seconds. It has no requests: read
per_request_lifecycle_metrics.json for those.
"""

from pathlib import Path

from boundary.schema import Lenient
from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.files import Figure, Head, count, number, numbers, typed_objects

LOOKS_LIKE = "JSON with successes, failures"
_LATENCIES = {
    "time_to_first_token": "ttft_s",
    "time_per_output_token": "tpot_s",
    "inter_token_latency": "itl_s",
    "request_latency": "e2e_s",
}
_STATISTICS = {"mean": "mean", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}


class _Statistics(Lenient, frozen=True):
    mean: Figure = None
    median: Figure = None
    p90: Figure = None
    p95: Figure = None
    p99: Figure = None


class _Throughput(Lenient, frozen=True):
    requests_per_sec: Figure = None
    output_tokens_per_sec: Figure = None
    total_tokens_per_sec: Figure = None


class _Latencies(Lenient, frozen=True):
    time_to_first_token: _Statistics | None = None
    time_per_output_token: _Statistics | None = None
    inter_token_latency: _Statistics | None = None
    request_latency: _Statistics | None = None


class _Failures(Lenient, frozen=True):
    count: Figure = None


class _Successes(Lenient, frozen=True):
    count: Figure = None
    throughput: _Throughput | None = None
    latency: _Latencies | None = None
    prompt_len: _Statistics | None = None
    output_len: _Statistics | None = None


class _Load(Lenient, frozen=True):
    requested_rate: Figure = None
    concurrency: Figure = None
    count: Figure = None


class _Report(Lenient, frozen=True):
    successes: _Successes | None = None
    failures: _Failures | None = None
    load_summary: _Load | None = None


def recognizes(path: Path, head: Head) -> bool:
    return isinstance(head, dict) and "successes" in head and "failures" in head


def read(path: Path) -> list[MeasuredRun]:
    """One run, without requests."""
    report = typed_objects(path, _Report)[0][1]
    finished, load = report.successes or _Successes(), report.load_summary or _Load()
    failed = count((report.failures or _Failures()).count)
    return [
        MeasuredRun(
            source=path,
            tool="inference-perf",
            load=numbers(
                rate=load.requested_rate,
                concurrency=load.concurrency,
                num_requests=load.count,
                input_len=(finished.prompt_len or _Statistics()).mean,
                output_len=(finished.output_len or _Statistics()).mean,
            ),
            aggregates=_aggregates(finished) | numbers(num_failed=failed),
            excluded={"failed": failed} if failed else {},
            notes=("figures without requests: per_request_lifecycle_metrics.json has those",),
        )
    ]


def _aggregates(finished: _Successes) -> dict[str, float]:
    rates = finished.throughput or _Throughput()
    found = {
        "num_finished": number(finished.count),
        "requests_per_s": number(rates.requests_per_sec),
        "output_tokens_per_s": number(rates.output_tokens_per_sec),
        "total_tokens_per_s": number(rates.total_tokens_per_sec),
    }
    for metric, name in _LATENCIES.items():
        values = getattr(finished.latency, metric, None) or _Statistics()
        found |= {f"{name}.{here}": number(getattr(values, there)) for there, here in _STATISTICS.items()}
    return numbers(**found)
