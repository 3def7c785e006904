"""A server's counters over time, from snapshots of its /metrics."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from calibrate.readers.parsing import server_metrics as metrics
from calibrate.readers.parsing.histogram import PERCENTILES
from calibrate.readers.parsing.metrics_text import Labels, Sample
from files.errors import HeadcountError

_LATENCIES = ("ttft_s", "itl_s", "e2e_s", "queue_s")
SERIES_COLUMNS = (
    "unix_s",
    "restarts",
    *metrics.GAUGES,
    *metrics.COUNTERS,
    *(f"{name}_{part}" for name in _LATENCIES for part in ("sum", "count")),
)


@dataclass(kw_only=True)
class ServerSeries:
    """Snapshots taken in, one after the other; what a restarted server counted anew is added to what it had."""

    rows: list[dict[str, float]] = field(default_factory=list)
    restarts: int = 0
    unsound: int = 0  # samples whose value no server has
    options: dict[str, object] = field(default_factory=dict)
    increase: dict[tuple[str, Labels], float] = field(default_factory=dict)  # of counters, from the first snapshot on
    _last: dict[tuple[str, Labels], float] = field(default_factory=dict)
    _started: float | None = None

    def add(self, unix_s: float, samples: Iterable[Sample]) -> dict[str, float]:
        """Take in a snapshot; its row of the main series. Raises HeadcountError where it has none of vLLM's metrics."""
        now = {}
        for sample in samples:
            if metrics.is_sound(sample):
                now[sample.name, sample.labels] = sample.value
            else:
                self.unsound += 1
        if not any(name.startswith(metrics.PREFIX) for name, _ in now):
            raise HeadcountError(
                "its metrics hold none of vLLM's; is it a vLLM server, and started with its statistics?"
            )
        started = metrics.total(now, (metrics.START_TIME,))
        counters = {key: value for key, value in now.items() if metrics.is_counter(key[0])}
        self._count(counters, has_restarted=None not in (started, self._started) and started != self._started)
        self._started = started if started is not None else self._started
        self._take_options(now)
        row = {"unix_s": unix_s, "restarts": self.restarts, **_main_values(now)}
        self.rows.append(row)
        return row

    def _count(self, counters: metrics.Values, *, has_restarted: bool) -> None:
        fell = any(value < self._last.get(key, 0.0) for key, value in counters.items())
        self.restarts += has_restarted or fell
        for key, value in counters.items():
            before = 0.0 if has_restarted or fell else self._last.get(key, 0.0 if self._last else value)
            self.increase[key] = self.increase.get(key, 0.0) + value - before
        self._last = dict(counters) if has_restarted or fell else self._last | dict(counters)

    def _take_options(self, now: metrics.Values) -> None:
        for name, labels in now:
            given = dict(labels)
            if name == metrics.CACHE_CONFIG:
                self.options |= metrics.cache_options(given, "/metrics")
            if name.startswith(metrics.PREFIX) and given.get("model_name"):
                self.options.setdefault("model", given["model_name"])

    def aggregates(self) -> dict[str, float]:
        """Under the names of `headcount simulate --json`, in seconds or per second."""
        found: dict[str, float | None] = {}
        lasted_s = self.rows[-1]["unix_s"] - self.rows[0]["unix_s"] if self.rows else 0.0
        for name in _LATENCIES:
            if (counted := metrics.histogram(self.increase, name)) is not None:
                found[f"{name}.mean"] = counted.mean
                found |= {f"{name}.p{percent}": counted.percentile(percent) for percent in PERCENTILES}
        growth = {name: metrics.total(self.increase, names) for name, names in metrics.COUNTERS.items()}
        found["num_finished"], found["num_preemptions"] = growth["requests"], growth["preemptions"]
        if lasted_s > 0:
            for name in ("requests", "prompt_tokens", "output_tokens"):
                grown = growth[name]
                found[f"{name}_per_s"] = None if grown is None else grown / lasted_s
        found["prefix_hit_rate"] = metrics.prefix_hit_rate(self.increase)
        known = {name: [row[name] for row in self.rows if np.isfinite(row[name])] for name in metrics.GAUGES}
        found |= {f"{name}_mean": float(np.mean(values)) if values else None for name, values in known.items()}
        found["kv_usage_max"] = max(known["kv_usage"], default=None)
        return {name: value for name, value in found.items() if value is not None}


def _main_values(now: metrics.Values) -> dict[str, float]:
    found = {name: metrics.gauge(now, name) for name in metrics.GAUGES}
    found |= {name: metrics.total(now, names) for name, names in metrics.COUNTERS.items()}
    for name in _LATENCIES:
        for part in ("sum", "count"):
            found[f"{name}_{part}"] = metrics.total(now, [f"{metric}_{part}" for metric in metrics.HISTOGRAMS[name]])
    return {name: math.nan if value is None else value for name, value in found.items()}
