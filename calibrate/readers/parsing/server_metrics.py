"""vLLM's metrics under the names of server_metrics.toml."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from calibrate.readers.parsing.engine_options import engine_option
from calibrate.readers.parsing.figures import most_of
from calibrate.readers.parsing.histogram import Histogram
from calibrate.readers.parsing.metrics_text import Labels, Sample
from files.documents import Json, read_toml

Values = Mapping[tuple[str, Labels], float]

PREFIX = "vllm:"
_NAMES: dict[str, Json] = read_toml(Path(__file__).with_suffix(".toml"))
GAUGES: Mapping[str, Sequence[str]] = _NAMES["gauges"]
COUNTERS: Mapping[str, Sequence[str]] = _NAMES["counters"]
HISTOGRAMS: Mapping[str, Sequence[str]] = _NAMES["histograms"]
CACHE_CONFIG = "vllm:cache_config_info"
START_TIME = "process_start_time_seconds"
_MEANS = {"kv_usage"}  # over engines; the rest are sums over them


def is_counter(name: str) -> bool:
    """Whether it only grows while a server lives; parts of histograms do."""
    return name.startswith(PREFIX) and name.endswith(("_total", "_count", "_sum", "_bucket"))


def is_sound(sample: Sample) -> bool:
    """Whether vLLM may have written it: a value that a server can have, a bucket with its bound."""
    if not sample.name.startswith(PREFIX):
        return True
    is_share = sample.name in GAUGES["kv_usage"]
    most = most_of("kv_usage" if is_share else sample.name.removeprefix(PREFIX))
    return 0 <= sample.value <= most and (not sample.name.endswith("_bucket") or bucket_bound(sample.labels) >= 0)


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


def cache_options(labels: Mapping[str, str], where: Path | str) -> dict[str, object]:
    """The settings among the labels of `CACHE_CONFIG`, under the command line's names. Raises InputError."""
    found = {
        option: engine_option(option, labels[label], where, f"{CACHE_CONFIG}: {label}")
        for label, option in _NAMES["labels"].items()
        if label in labels
    }
    return {option: value for option, value in found.items() if value is not None}


def _first(values: Values, names: Sequence[str]) -> dict[Labels, float]:
    for name in names:
        if found := {labels: value for (given, labels), value in values.items() if given == name}:
            return found
    return {}
