"""vLLM's metrics under the names here.

Names as in vllm/v1/metrics/loggers.py of 0.32.0, then those of releases before it: the first that is there is taken.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calibrate.readers.parsing.engine_options import engine_option
from calibrate.readers.parsing.histogram import Histogram
from calibrate.readers.parsing.metrics_text import Labels

Values = Mapping[tuple[str, Labels], float]

PREFIX = "vllm:"
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
    "tpot_s": ("vllm:request_time_per_output_token_seconds",),
    "e2e_s": ("vllm:e2e_request_latency_seconds",),
    "queue_s": ("vllm:request_queue_time_seconds",),
    "prefill_s": ("vllm:request_prefill_time_seconds",),
    "decode_s": ("vllm:request_decode_time_seconds",),
    "prompt_tokens": ("vllm:request_prompt_tokens",),
    "output_tokens": ("vllm:request_generation_tokens",),
    "tokens_per_step": ("vllm:iteration_tokens_total",),
}
CACHE_CONFIG = "vllm:cache_config_info"
START_TIME = "process_start_time_seconds"
_MEANS = {"kv_usage"}  # over engines; the rest are sums over them
_OPTIONS = {
    "block_size": "block_size",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "enable_prefix_caching": "enable_prefix_caching",
    "cache_dtype": "kv_cache_dtype",
    "num_gpu_blocks": "num_gpu_blocks_override",
}


def is_counter(name: str) -> bool:
    """Whether it only grows while a server lives; parts of histograms do."""
    return name.startswith(PREFIX) and name.endswith(("_total", "_count", "_sum", "_bucket"))


def total(values: Values, names: Sequence[str]) -> float | None:
    """Over engines and labels; None where the server does not have it."""
    found = _first(values, names)
    return sum(found.values()) if found else None


def gauge(values: Values, name: str) -> float | None:
    """Over engines; None where the server does not have it."""
    found = _first(values, GAUGES[name])
    return sum(found.values()) / (len(found) if name in _MEANS else 1) if found else None


def prefix_hit_rate(values: Values) -> float | None:
    """None where no token was looked up."""
    queries = total(values, COUNTERS["prefix_queries"])
    return (total(values, COUNTERS["prefix_hits"]) or 0.0) / queries if queries else None


def histogram(values: Values, name: str) -> Histogram | None:
    """Over engines; None where nothing was counted in it."""
    for metric in HISTOGRAMS[name]:
        count = total(values, (f"{metric}_count",))
        if count is not None and count > 0:
            buckets: dict[float, float] = defaultdict(float)
            for labels, value in _first(values, (f"{metric}_bucket",)).items():
                buckets[bucket_bound(labels)] += value
            finite = sorted((bound, number) for bound, number in buckets.items() if math.isfinite(bound))
            return Histogram(count, total(values, (f"{metric}_sum",)), tuple(finite))
    return None


def bucket_bound(labels: Labels) -> float:
    """NaN where a bucket has none."""
    try:
        return float(dict(labels).get("le", "nan"))
    except ValueError:
        return math.nan


def finished_by_reason(values: Values) -> dict[str, float]:
    """How many requests ended, by vLLM's reason."""
    found: dict[str, float] = defaultdict(float)
    for labels, value in _first(values, COUNTERS["requests"]).items():
        found[dict(labels).get("finished_reason", "")] += value
    return dict(found)


def cache_options(labels: Mapping[str, str], where: Path | str) -> dict[str, Any]:
    """The settings among the labels of `CACHE_CONFIG`, under the command line's names. Raises InputError."""
    found = {
        option: engine_option(option, labels[label], where, f"{CACHE_CONFIG}: {label}")
        for label, option in _OPTIONS.items()
        if label in labels
    }
    return {option: value for option, value in found.items() if value is not None}


def _first(values: Values, names: Sequence[str]) -> dict[Labels, float]:
    for name in names:
        if found := {labels: value for (given, labels), value in values.items() if given == name}:
            return found
    return {}
