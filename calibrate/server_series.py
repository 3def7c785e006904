"""A server's counters over time, from snapshots of its /metrics."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calibrate.metrics_text import Labels, Sample

# Our name of a gauge or counter, with vLLM's names of it, newest first.
GAUGES = {
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
    "kv_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
}
COUNTERS = {
    "preemptions": ("vllm:num_preemptions_total",),
    "prefix_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "prefix_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "prompt_tokens": ("vllm:prompt_tokens_total",),
    "output_tokens": ("vllm:generation_tokens_total",),
    "requests": ("vllm:request_success_total",),
}
HISTOGRAMS = {
    "ttft_s": ("vllm:time_to_first_token_seconds",),
    "itl_s": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    "e2e_s": ("vllm:e2e_request_latency_seconds",),
    "queue_s": ("vllm:request_queue_time_seconds",),
}
CACHE_CONFIG = "vllm:cache_config_info"
START_TIME = "process_start_time_seconds"
WIDEST_BUCKET = 2.6  # upper edge to lower: vLLM's are 1, 2.5, 5, 7.5, 10 and so on
PERCENTILES = (50, 90, 95, 99)
SERIES_COLUMNS = (
    "unix_s",
    "restarts",
    *GAUGES,
    *COUNTERS,
    *(f"{name}_{part}" for name in HISTOGRAMS for part in ("sum", "count")),
)
_MEANS = {"kv_usage"}  # over engines; the rest are sums over them
_OPTIONS = {
    "block_size": "block_size", "cache_dtype": "kv_cache_dtype", "gpu_memory_utilization": "gpu_memory_utilization",
    "enable_prefix_caching": "enable_prefix_caching", "num_gpu_blocks": "num_gpu_blocks_override",
}  # fmt: skip


@dataclass(kw_only=True)
class ServerSeries:
    """Snapshots taken in, one after the other; what a restarted server counted anew is added to what it had."""

    rows: list[dict[str, float]] = field(default_factory=list)
    restarts: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    _last: dict[tuple[str, Labels], float] = field(default_factory=dict)
    _increase: dict[tuple[str, Labels], float] = field(default_factory=dict)
    _started: float | None = None

    def add(self, unix_s: float, samples: Iterable[Sample]) -> dict[str, float]:
        """Take in a snapshot; its row of the main series. Raises ValueError where it has none of vLLM's metrics."""
        now = {(sample.name, sample.labels): sample.value for sample in samples}
        if not any(name.startswith("vllm:") for name, _ in now):
            raise ValueError("its metrics hold none of vLLM's; is it a vLLM server, and started with its statistics?")
        started = next((value for (name, _), value in now.items() if name == START_TIME), None)
        counters = {key: value for key, value in now.items() if _is_counter(key[0])}
        self._count(counters, has_restarted=None not in (started, self._started) and started != self._started)
        self._started = started if started is not None else self._started
        self._take_options(now)
        row = {"unix_s": unix_s, "restarts": self.restarts, **_main_values(now)}
        self.rows.append(row)
        return row

    def _count(self, counters: Mapping[tuple[str, Labels], float], *, has_restarted: bool) -> None:
        fell = any(value < self._last.get(key, 0.0) for key, value in counters.items())
        self.restarts += has_restarted or fell
        for key, value in counters.items():
            before = 0.0 if has_restarted or fell else self._last.get(key, 0.0 if self._last else value)
            self._increase[key] = self._increase.get(key, 0.0) + value - before
        self._last = dict(counters) if has_restarted or fell else self._last | dict(counters)

    def _take_options(self, now: Mapping[tuple[str, Labels], float]) -> None:
        for name, labels in now:
            given = dict(labels)
            if name == CACHE_CONFIG:
                found = {option: _plain(given[label]) for label, option in _OPTIONS.items() if label in given}
                self.options |= {option: value for option, value in found.items() if value is not None}
            if name.startswith("vllm:") and given.get("model_name"):
                self.options.setdefault("model", given["model_name"])

    def increase(self, names: Sequence[str]) -> float | None:
        """How much a counter grew from the first snapshot to the last; None where the server does not have it."""
        for name in names:
            found = [value for (key, _), value in self._increase.items() if key == name]
            if found:
                return sum(found)
        return None

    def percentile(self, names: Sequence[str], percent: float) -> float | None:
        """Of a histogram's increase, linear within its bucket as in Prometheus' `histogram_quantile`.

        None in the first and the last bucket, which have no lower or upper edge, and in wide ones.
        """
        for name in names:
            counts: dict[float, float] = {}
            for (key, labels), value in self._increase.items():
                if key == f"{name}_bucket":
                    edge = float(dict(labels)["le"])
                    counts[edge] = counts.get(edge, 0.0) + value
            if counts and max(counts.values()) > 0:
                return _quantile(counts, percent / 100)
        return None

    def aggregates(self) -> dict[str, float]:
        """Under the names of `headcount simulate --json`, in seconds or per second."""
        found: dict[str, float | None] = {}
        lasted_s = self.rows[-1]["unix_s"] - self.rows[0]["unix_s"] if self.rows else 0.0
        for name, names in HISTOGRAMS.items():
            total, count = (self.increase([f"{each}_{part}" for each in names]) for part in ("sum", "count"))
            if count:
                found[f"{name}.mean"] = (total or 0.0) / count
                found |= {f"{name}.p{percent}": self.percentile(names, percent) for percent in PERCENTILES}
        growth = {name: self.increase(names) for name, names in COUNTERS.items()}
        found["num_finished"], found["num_preemptions"] = growth["requests"], growth["preemptions"]
        if lasted_s > 0:
            for name in ("requests", "prompt_tokens", "output_tokens"):
                grown = growth[name]
                found[f"{name}_per_s"] = None if grown is None else grown / lasted_s
        if growth["prefix_queries"]:
            found["prefix_hit_rate"] = (growth["prefix_hits"] or 0.0) / growth["prefix_queries"]
        for name in GAUGES:
            values = [row[name] for row in self.rows if np.isfinite(row[name])]
            found[f"{name}_mean"] = float(np.mean(values)) if values else None
        usage = [row["kv_usage"] for row in self.rows if np.isfinite(row["kv_usage"])]
        found["kv_usage_max"] = max(usage) if usage else None
        return {name: value for name, value in found.items() if value is not None}


def _is_counter(name: str) -> bool:
    return name.startswith("vllm:") and name.endswith(("_total", "_sum", "_count", "_bucket"))


def _main_values(now: Mapping[tuple[str, Labels], float]) -> dict[str, float]:
    found = {}
    for name, names in {**GAUGES, **COUNTERS}.items():
        found[name] = _value(now, names, is_mean=name in _MEANS)
    for name, names in HISTOGRAMS.items():
        for part in ("sum", "count"):
            found[f"{name}_{part}"] = _value(now, [f"{each}_{part}" for each in names])
    return found


def _value(now: Mapping[tuple[str, Labels], float], names: Sequence[str], *, is_mean: bool = False) -> float:
    for name in names:
        values = [value for (key, _), value in now.items() if key == name]
        if values:
            return sum(values) / len(values) if is_mean else sum(values)
    return float("nan")


def _quantile(counts: Mapping[float, float], share: float) -> float | None:
    """`counts` are cumulative by upper edge; None where the bucket says too little to interpolate in it."""
    edges = sorted(counts)
    wanted = share * counts[edges[-1]]
    below_edge, below = 0.0, 0.0
    for edge in edges:
        if counts[edge] >= wanted:
            if not np.isfinite(edge) or edge > WIDEST_BUCKET * below_edge:
                return None
            inside = counts[edge] - below
            return below_edge + (edge - below_edge) * ((wanted - below) / inside if inside > 0 else 0.0)
        below_edge, below = edge, counts[edge]
    return None


def _plain(text: str) -> Any:
    """A label's value as vLLM's Python had it."""
    known = {"True": True, "False": False, "None": None}
    if text in known:
        return known[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
