"""What servers count of their requests, in simulated seconds: histograms and counters, under vLLM's names."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class Histogram:
    """Counts by upper bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = np.array(bounds, float)
        self.counts = np.zeros(len(bounds) + 1, np.int64)
        self.sum = 0.0

    @staticmethod
    def sum_of(several: "Sequence[Histogram]") -> "Histogram":
        """Histograms with the same buckets as one."""
        whole = Histogram(tuple(several[0].bounds.tolist()))
        whole.counts += sum(each.counts for each in several)
        whole.sum = sum(each.sum for each in several)
        return whole

    def add(self, *values: float, times: int = 1) -> None:
        np.add.at(self.counts, np.searchsorted(self.bounds, values), times)
        self.sum += sum(values) * times

    def samples(self) -> list[tuple[str, float]]:
        """Upper bounds with how many values lie at or below them, as Prometheus has them."""
        labels = [*map(str, self.bounds.tolist()), "+Inf"]
        return list(zip(labels, np.cumsum(self.counts).astype(float).tolist(), strict=True))


class Figures:
    """Of every series: an engine, or what its metrics set apart. `bounds` are those of each histogram's buckets."""

    def __init__(self, num_series: int, bounds: Mapping[str, tuple[float, ...]]) -> None:
        self.histograms = [{name: Histogram(each) for name, each in bounds.items()} for _ in range(num_series)]
        self.tokens: list[int] = [0] * num_series
        self.prompt_tokens: list[int] = [0] * num_series
        self.cached_tokens: list[int] = [0] * num_series
        self.successes: list[Counter[str]] = [Counter() for _ in range(num_series)]
        self.num_aborted = 0
        self._gaps: list[list[float]] = [[] for _ in range(num_series)]

    def began(self, series: int, arrival_s: float, now_s: float, record: Any) -> None:
        """A request's first token."""
        self.histograms[series]["time_to_first_token_seconds"].add(now_s - arrival_s)
        self.prompt_tokens[series] += int(record["prompt"])
        self.cached_tokens[series] += int(record["cached_tokens"])

    def went_on(self, series: int, gap_s: float) -> None:
        """A later output."""
        self._gaps[series].append(gap_s)

    def finished(self, series: int, record: Any, reason: str, max_tokens: int) -> None:
        """A request's last token, which `finish_s` is the time of."""
        self.successes[series][reason] += 1
        arrival_s, scheduled_s = float(record["arrival_s"]), float(record["scheduled_s"])
        first_s, last_s, output = float(record["first_token_s"]), float(record["finish_s"]), int(record["output"])
        tpot_s = (last_s - first_s) / (output - 1) if output > 1 else 0.0
        values = {
            "e2e_request_latency_seconds": last_s - arrival_s,
            "request_queue_time_seconds": scheduled_s - arrival_s,
            "request_inference_time_seconds": last_s - scheduled_s,
            "request_prefill_time_seconds": first_s - scheduled_s,
            "request_decode_time_seconds": last_s - first_s,
            "request_time_per_output_token_seconds": tpot_s,
            "request_prompt_tokens": int(record["prompt"]),
            "request_generation_tokens": output,
            "request_max_num_generation_tokens": output,
            "request_params_n": 1,
            "request_params_max_tokens": max_tokens,
            "request_prefill_kv_computed_tokens": int(record["prompt"]) - int(record["cached_tokens"]),
            "request_num_preemptions": int(record["preemptions"]),
        }
        if output > 1:
            values["time_per_later_token_seconds"] = tpot_s
        for name, histogram in self.histograms[series].items():
            if name in values:
                histogram.add(values[name])

    def end_instant(self) -> None:
        """Enter the gaps before an instant's tokens."""
        for series, gaps in enumerate(self._gaps):
            if gaps:
                self.histograms[series]["inter_token_latency_seconds"].add(*gaps)
                gaps.clear()


class Delays:
    """How much later than simulated tokens left, in seconds; percentiles are good to 1 %."""

    LEAST_S, GROWTH, BINS = 1e-6, 1.02, 1200

    def __init__(self) -> None:
        self.counts = np.zeros(self.BINS, np.int64)

    def add(self, delay_s: float) -> None:
        place = int(math.log(max(delay_s, self.LEAST_S) / self.LEAST_S) / math.log(self.GROWTH))
        self.counts[min(place, self.BINS - 1)] += 1

    @property
    def num(self) -> int:
        return int(self.counts.sum())

    def percentile(self, percent: float) -> float:
        """NaN where nothing has left."""
        if not self.num:
            return math.nan
        place = int(np.searchsorted(np.cumsum(self.counts), percent / 100 * self.num))
        return float(self.LEAST_S * self.GROWTH ** (place + 0.5))
