"""A snapshot of vLLM's `/metrics`, or two that bracket a run.

Names as in vllm/v1/metrics/loggers.py of 0.32.0 and of releases before it. One snapshot counts from the server's start
on; two give what came between them. Figures are of the server: TTFT and end to end from a request's arrival there.
Mean values are exact. `….p99.low` and `….p99.high` are the bounds of a percentile's bucket, between which the truth
lies; the percentile itself is interpolated where that bucket is narrow enough, and else left out. Rates are not in it,
since snapshots do not say when they were taken. Series of several engines are added up; each `model_name` is a run.
"""

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calibrate.measured_run import MeasuredRun
from calibrate.readers._files import Head, count, read_text

LOOKS_LIKE = "text with vllm: series"
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(\{.*\})?\s+(\S+)(?:\s+-?\d+)?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
HISTOGRAMS = {  # the first that is there is taken
    "ttft_s": ("time_to_first_token_seconds",),
    "itl_s": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
    "tpot_s": ("request_time_per_output_token_seconds",),
    "e2e_s": ("e2e_request_latency_seconds",),
    "queue_s": ("request_queue_time_seconds",),
    "prefill_s": ("request_prefill_time_seconds",),
    "decode_s": ("request_decode_time_seconds",),
    "prompt_tokens": ("request_prompt_tokens",),
    "output_tokens": ("request_generation_tokens",),
    "tokens_per_step": ("iteration_tokens_total",),
}
GAUGES = {
    "running_now": "num_requests_running",
    "waiting_now": "num_requests_waiting",
    "kv_usage_now": "kv_cache_usage_perc",
}
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_WIDEST = 2.6  # upper over lower bound of a bucket inside which a percentile is interpolated: 0.1 to 0.25 s is one
_FINISHED = ("stop", "length", "repetition")
_OPTIONS = {
    "block_size": "block_size",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "enable_prefix_caching": "enable_prefix_caching",
    "cache_dtype": "kv_cache_dtype",
}
Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class _Snapshot:
    """Values by name and labels; `info` are the labels of `vllm:cache_config_info`."""

    values: dict[tuple[str, Labels], float] = field(default_factory=dict)
    info: dict[str, str] = field(default_factory=dict)
    process_start_s: float = math.nan

    @property
    def models(self) -> list[str]:
        return sorted({value for _, labels in self.values for name, value in labels if name == "model_name"})


def recognizes(path: Path, head: Head) -> bool:
    return isinstance(head, str) and re.search(r"^vllm:\w+(\{|\s)", read_text(path), re.MULTILINE) is not None


def read(path: Path) -> list[MeasuredRun]:
    """One run per model, since the server's start."""
    return _runs(path, _snapshot(path), notes=("counted from the server's start on",))


def read_between(before: Path, after: Path) -> list[MeasuredRun]:
    """One run per model, of what came between two snapshots of one server.

    Counters that fell mean that the server was started again: the figures are then those since, and a note says so.
    """
    earlier, later = _snapshot(before), _snapshot(after)
    fallen = any(
        later.values.get(key, math.inf) < value for key, value in earlier.values.items() if _is_counter(key[0])
    )
    if fallen or earlier.process_start_s < later.process_start_s:
        note = f"the server was started again after {before.name}: counted from then on, what came before is lost"
        return _runs(after, later, notes=(note,))
    between = {
        key: value - earlier.values.get(key, 0.0) if _is_counter(key[0]) else value
        for key, value in later.values.items()
    }
    snapshot = _Snapshot(between, later.info, later.process_start_s)
    return _runs(after, snapshot, notes=(f"counted between {before.name} and {after.name}",))


def _is_counter(name: str) -> bool:
    return name.endswith(("_total", "_count", "_sum", "_bucket"))


def _snapshot(path: Path) -> _Snapshot:
    """Raises ValueError where a line is none of the format, or nothing is of vLLM."""
    values: dict[tuple[str, Labels], float] = {}
    info: dict[str, str] = {}
    start_s = math.nan
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, labels, value = _sample(path, number, line.strip())
        if name == "vllm:cache_config_info":
            info = labels
        elif name == "process_start_time_seconds":
            start_s = value
        elif name.startswith("vllm:") and not name.endswith("_created"):
            key = name.removeprefix("vllm:"), frozenset(labels.items())
            if key in values:
                raise ValueError(f"{path}, line {number}: {name} is there again; put each snapshot in its own file")
            values[key] = value
    if not values:
        raise ValueError(f"{path}: no vllm: series is in it; take it from the server's /metrics")
    return _Snapshot(values, info, start_s)


def _sample(path: Path, number: int, line: str) -> tuple[str, dict[str, str], float]:
    found = _SAMPLE.match(line)
    labels = dict(_LABEL.findall(found[2] or "")) if found else {}
    bound = labels.get("le", "" if found and found[1].endswith("_bucket") else "0")  # every bucket has one
    try:
        value = float(found[3]) if found else math.nan
        is_sound = not line.startswith("vllm:") or (math.isfinite(value) and float(bound) >= 0)
    except ValueError:
        is_sound = False
    if found is None or not is_sound:
        raise ValueError(
            f"{path}, line {number}: '{line[:60]}' is no sample of Prometheus' text format; was the snapshot cut off?"
        )
    return found[1], labels, value


def _runs(path: Path, snapshot: _Snapshot, *, notes: tuple[str, ...]) -> list[MeasuredRun]:
    models = snapshot.models or [""]
    return [_run(path, snapshot, model, notes, only=len(models) == 1) for model in models]


def _run(path: Path, snapshot: _Snapshot, model: str, notes: tuple[str, ...], *, only: bool) -> MeasuredRun:
    series = {
        (name, labels): value
        for (name, labels), value in snapshot.values.items()
        if not model or ("model_name", model) in labels
    }
    aggregates, above = _figures(series)
    by_reason = _by_label(series, "request_success_total", "finished_reason")
    options: dict[str, Any] = {"model": model} if model else {}
    if only:  # cache_config_info does not say whose it is
        options |= {here: _literal(snapshot.info[name]) for name, here in _OPTIONS.items() if name in snapshot.info}
        blocks = snapshot.info.get("num_gpu_blocks", "")
        aggregates |= {"num_gpu_blocks": float(blocks)} if blocks.isdigit() else {}
    return MeasuredRun(
        source=path,
        tool="vLLM /metrics",
        options=options,
        load={
            name: aggregates[f"{column}.mean"]
            for name, column in (("input_len", "prompt_tokens"), ("output_len", "output_tokens"))
            if f"{column}.mean" in aggregates
        }
        | ({"num_requests": sum(by_reason.values())} if by_reason else {}),
        aggregates=aggregates
        | ({"num_finished": sum(by_reason.get(reason, 0.0) for reason in _FINISHED)} if by_reason else {}),
        excluded={
            f"ended by {reason}": count(ended)
            for reason, ended in by_reason.items()
            if reason not in _FINISHED and count(ended)
        },
        notes=notes + tuple(f"{name} lies above the last bucket, {bound:g}" for name, bound in above.items()),
    )


def _figures(series: Mapping[tuple[str, Labels], float]) -> tuple[dict[str, float], dict[str, float]]:
    """Figures under the names here; percentiles that lie above the last bound, with it."""
    found: dict[str, float] = {}
    above: dict[str, float] = {}
    for name, metrics in HISTOGRAMS.items():
        for metric in metrics:
            if _total(series, f"{metric}_count") > 0 and f"{name}.mean" not in found:
                statistics, beyond = _statistics(series, metric)
                found |= {f"{name}.{statistic}": value for statistic, value in statistics.items()}
                above |= {f"{name}.{statistic}": value for statistic, value in beyond.items()}
    for name, metric in GAUGES.items():
        if values := [value for (given, _), value in series.items() if given == metric]:
            found[name] = sum(values) / len(values) if name == "kv_usage_now" else sum(values)
    if steps := _total(series, "iteration_tokens_total_count"):
        found["num_steps"] = steps
    if any(name == "num_preemptions_total" for name, _ in series):
        found["num_preemptions"] = _total(series, "num_preemptions_total")
    if queried := _total(series, "prefix_cache_queries_total"):
        found["prefix_hit_rate"] = _total(series, "prefix_cache_hits_total") / queried
    return found, above


def _total(series: Mapping[tuple[str, Labels], float], name: str) -> float:
    return sum(value for (given, _), value in series.items() if given == name)


def _by_label(series: Mapping[tuple[str, Labels], float], name: str, label: str) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for (given, labels), value in series.items():
        if given == name:
            found[dict(labels).get(label, "")] += value
    return dict(found)


def _statistics(series: Mapping[tuple[str, Labels], float], metric: str) -> tuple[dict[str, float], dict[str, float]]:
    """Count, mean and percentiles of a histogram; percentiles beyond the last finite bound, with that bound."""
    num_samples = _total(series, f"{metric}_count")
    found = {"count": num_samples, "mean": _total(series, f"{metric}_sum") / num_samples}
    above = {}
    cumulative = sorted((float(bound), value) for bound, value in _by_label(series, f"{metric}_bucket", "le").items())
    finite = [(bound, value) for bound, value in cumulative if math.isfinite(bound)]
    for name, share in _QUANTILES.items() if finite else ():
        bucket = _bucket(finite, share * num_samples)
        if bucket is None:
            above[name] = finite[-1][0]
        else:
            low, high, inside = bucket
            found |= {f"{name}.low": low, f"{name}.high": high}
            if high <= _WIDEST * low:
                found[name] = low + (high - low) * inside
    return found, above


def _bucket(finite: list[tuple[float, float]], rank: float) -> tuple[float, float, float] | None:
    """Bounds of the bucket that holds the rank, and how far inside it lies."""
    below_bound, below = 0.0, 0.0
    for bound, value in finite:
        if value >= rank and value > below:
            return below_bound, bound, (rank - below) / (value - below)
        below_bound, below = bound, value
    return None


def _literal(text: str) -> Any:
    if text in {"True", "False"}:
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
