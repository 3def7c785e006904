"""A snapshot of vLLM's `/metrics`, or two that bracket a run.

One snapshot counts from the server's start on; two give what came between them. Figures are of the server: TTFT and
end to end from a request's arrival there. Mean values are exact. `….p99.low` and `….p99.high` are the bounds of a
percentile's bucket, between which the truth lies; the percentile itself is interpolated where that bucket is narrow
enough, and else left out. Rates are not in it, since snapshots do not say when they were taken. Series of several
engines are added up; each `model_name` is a run.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calibrate.measured_run import SNAPSHOT, MeasuredRun
from calibrate.readers.parsing import server_metrics as metrics
from calibrate.readers.parsing.files import Head, count, result_text
from calibrate.readers.parsing.histogram import PERCENTILES, Histogram
from calibrate.readers.parsing.metrics_text import Labels, metric_lines
from files.errors import HeadcountError

LOOKS_LIKE = "text with vllm: series"
_FINISHED = ("stop", "length", "repetition")


@dataclass(frozen=True)
class _Snapshot:
    """Values by name and labels; `info` are the labels of `vllm:cache_config_info`."""

    values: dict[tuple[str, Labels], float] = field(default_factory=dict)
    info: dict[str, str] = field(default_factory=dict)
    process_start_s: float = math.nan


def recognizes(path: Path, head: Head) -> bool:
    return isinstance(head, str) and re.search(r"^vllm:\w+(\{|\s)", result_text(path), re.MULTILINE) is not None


def read(path: Path) -> list[MeasuredRun]:
    """One run per model, since the server's start."""
    return _runs(path, _snapshot(path), notes=("counted from the server's start on",))


def read_between(before: Path, after: Path) -> list[MeasuredRun]:
    """One run per model, of what came between two snapshots of one server.

    Counters that fell mean that the server was started again: the figures are then those since, and a note says so.
    """
    earlier, later = _snapshot(before), _snapshot(after)
    fallen = any(
        later.values.get(key, math.inf) < value for key, value in earlier.values.items() if metrics.is_counter(key[0])
    )
    if fallen or earlier.process_start_s < later.process_start_s:
        note = f"the server restarted after {before.name}: figures are counted since the restart"
        return _runs(after, later, notes=(note,))
    between = {
        key: value - earlier.values.get(key, 0.0) if metrics.is_counter(key[0]) else value
        for key, value in later.values.items()
    }
    snapshot = _Snapshot(between, later.info, later.process_start_s)
    return _runs(after, snapshot, notes=(f"counted between {before.name} and {after.name}",))


def _snapshot(path: Path) -> _Snapshot:
    """Raises HeadcountError where a line is none of the format, or nothing is of vLLM."""
    values: dict[tuple[str, Labels], float] = {}
    info: dict[str, str] = {}
    start_s = math.nan
    for number, line, sample in metric_lines(result_text(path)):
        if sample is None or not metrics.is_sound(sample):
            raise HeadcountError(
                f"{path}, line {number}: '{line[:60]}' is not a sample in Prometheus' text format; "
                "was the snapshot cut off?"
            )
        if sample.name == metrics.CACHE_CONFIG:
            info = dict(sample.labels)
        elif sample.name == metrics.START_TIME:
            start_s = sample.value
        elif sample.name.startswith(metrics.PREFIX) and not sample.name.endswith("_created"):
            key = sample.name, sample.labels
            if key in values:
                raise HeadcountError(
                    f"{path}, line {number}: {sample.name} appears twice; put each snapshot in its own file"
                )
            values[key] = sample.value
    if not values:
        raise HeadcountError(f"{path}: it holds no vllm: series; take it from the server's /metrics")
    return _Snapshot(values, info, start_s)


def _runs(path: Path, snapshot: _Snapshot, *, notes: tuple[str, ...]) -> list[MeasuredRun]:
    models = sorted({value for _, labels in snapshot.values for name, value in labels if name == "model_name"}) or [""]
    return [_run(path, snapshot, model, notes, only=len(models) == 1) for model in models]


def _run(path: Path, snapshot: _Snapshot, model: str, notes: tuple[str, ...], *, only: bool) -> MeasuredRun:
    series = {
        (name, labels): value
        for (name, labels), value in snapshot.values.items()
        if not model or ("model_name", model) in labels
    }
    aggregates, above = _figures(series)
    by_reason = metrics.finished_by_reason(series)
    lengths, told = _lengths(series, aggregates, sum(by_reason.values()))
    options: dict[str, Any] = {"model": model} if model else {}
    if only:  # cache_config_info does not say whose it is
        options |= metrics.cache_options(snapshot.info, path)
        blocks = options.pop("num_gpu_blocks_override", None)
        aggregates |= {} if blocks is None else {"num_gpu_blocks": float(blocks)}
    return MeasuredRun(
        source=path,
        tool=SNAPSHOT,
        options=options,
        load=lengths | ({"num_requests": sum(by_reason.values())} if by_reason else {}),
        aggregates=aggregates
        | ({"num_finished": sum(by_reason.get(reason, 0.0) for reason in _FINISHED)} if by_reason else {}),
        excluded={
            f"ended by {reason}": count(ended)
            for reason, ended in by_reason.items()
            if reason not in _FINISHED and count(ended)
        },
        notes=(*notes, *told, *(f"{name} lies above the last bucket, {bound:g}" for name, bound in above.items())),
    )


def _lengths(
    series: metrics.Values, aggregates: Mapping[str, float], requests: float
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Mean tokens of prompts and of answers, and what tells of those that come from counters.

    Without its histogram a length is the counter of tokens over the requests that ended; tokens of requests that were
    still running are in it.
    """
    found, told = {}, []
    for name, column in (("input_len", "prompt_tokens"), ("output_len", "output_tokens")):
        tokens = metrics.total(series, metrics.COUNTERS[column])
        if f"{column}.mean" in aggregates:
            found[name] = aggregates[f"{column}.mean"]
        elif tokens and requests:
            found[name] = tokens / requests
            counter = metrics.COUNTERS[column][0].removeprefix(metrics.PREFIX)
            told.append(f"{name} is {counter} over the {requests:,.0f} requests that ended")
    return found, tuple(told)


def _figures(series: metrics.Values) -> tuple[dict[str, float], dict[str, float]]:
    """Figures under the names here; percentiles that lie above the last bound, with it."""
    found: dict[str, float | None] = {}
    above: dict[str, float] = {}
    for name in metrics.HISTOGRAMS:
        if (counted := metrics.histogram(series, name)) is not None:
            statistics, beyond = _statistics(counted)
            found |= {f"{name}.{statistic}": value for statistic, value in statistics.items()}
            above |= {f"{name}.{statistic}": value for statistic, value in beyond.items()}
    found |= {f"{name}_now": metrics.gauge(series, name) for name in metrics.GAUGES}
    found |= {
        "num_steps": found.get("tokens_per_step.count"),
        "num_preemptions": metrics.total(series, metrics.COUNTERS["preemptions"]),
        "prefix_hit_rate": metrics.prefix_hit_rate(series),
    }
    return {name: value for name, value in found.items() if value is not None}, above


def _statistics(counted: Histogram) -> tuple[dict[str, float | None], dict[str, float]]:
    """Count, mean and percentiles of a histogram; percentiles beyond the last finite bound, with that bound."""
    found = {"count": counted.count, "mean": counted.mean}
    above = {}
    for percent in PERCENTILES if counted.buckets else ():
        bucket = counted.bucket(percent)
        if bucket is None:
            above[f"p{percent}"] = counted.buckets[-1][0]
        else:
            found |= {f"p{percent}.low": bucket.low, f"p{percent}.high": bucket.high, f"p{percent}": bucket.quantile}
    return found, above
