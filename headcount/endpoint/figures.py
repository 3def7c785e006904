"""What vLLM counts of its requests, engine by engine: histograms and counters, in simulated seconds.

Names and buckets are those of vLLM 0.33 (`vllm/v1/metrics/loggers.py`, `buckets.py`).
"""

import math
from collections import Counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_TTFT: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
)  # fmt: skip
_ITL: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
)  # fmt: skip
_LATENCY: Final = (
    0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
)  # fmt: skip
_STEP_TOKENS: Final = tuple(2.0**power for power in (0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14))
_PREEMPTIONS: Final = (1, 2, 3, 4, 5, 10, 20)
_COUNTS: Final = (1, 2, 5, 10, 20)
_TOKENS: Final = ()  # 1, 2, 5, 10, … up to max_model_len
HISTOGRAMS: Final[dict[str, tuple[str, tuple[float, ...]]]] = {
    "time_to_first_token_seconds": ("Time to first token.", _TTFT),
    "inter_token_latency_seconds": ("Time between two outputs of a request.", _ITL),
    "request_time_per_output_token_seconds": ("Mean time per output token of a request.", _ITL),
    "e2e_request_latency_seconds": ("Time from arrival to the last token.", _LATENCY),
    "request_queue_time_seconds": ("Time from arrival until scheduled.", _LATENCY),
    "request_inference_time_seconds": ("Time from scheduled to the last token.", _LATENCY),
    "request_prefill_time_seconds": ("Time from scheduled to the first token.", _LATENCY),
    "request_decode_time_seconds": ("Time from the first token to the last.", _LATENCY),
    "request_prompt_tokens": ("Prompt tokens of a request.", _TOKENS),
    "request_generation_tokens": ("Generated tokens of a request.", _TOKENS),
    "request_max_num_generation_tokens": ("Generated tokens of a request's longest answer.", _TOKENS),
    "request_params_n": ("Answers that a request asks for.", _COUNTS),
    "request_params_max_tokens": ("Most tokens that a request may generate.", _TOKENS),
    "request_prefill_kv_computed_tokens": ("Prompt tokens that no prefix hit covered.", _TOKENS),
    "request_num_preemptions": ("Preemptions of a request.", _PREEMPTIONS),
    "iteration_tokens_total": ("Tokens of a step.", _STEP_TOKENS),
}


class Histogram:
    """Counts by upper bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = np.array(bounds, float)
        self.counts = np.zeros(len(bounds) + 1, np.int64)
        self.sum = 0.0

    def add(self, *values: float, times: int = 1) -> None:
        np.add.at(self.counts, np.searchsorted(self.bounds, values), times)
        self.sum += sum(values) * times

    def samples(self) -> list[tuple[str, float]]:
        """Upper bounds with how many values lie at or below them, as Prometheus has them."""
        labels = [*map(str, self.bounds.tolist()), "+Inf"]
        return list(zip(labels, np.cumsum(self.counts).astype(float).tolist(), strict=True))


class Figures:
    """Of every engine."""

    def __init__(self, num_engines: int, max_model_len: int) -> None:
        steps = (digit * 10.0**power for power in range(20) for digit in (1, 2, 5))
        tokens = tuple(step for step in steps if step <= max_model_len)
        self.histograms = [
            {name: Histogram(bounds or tokens) for name, (_, bounds) in HISTOGRAMS.items()} for _ in range(num_engines)
        ]
        self.tokens: list[int] = [0] * num_engines
        self.prompt_tokens: list[int] = [0] * num_engines
        self.cached_tokens: list[int] = [0] * num_engines
        self.successes: list[Counter[str]] = [Counter() for _ in range(num_engines)]
        self._gaps: list[list[float]] = [[] for _ in range(num_engines)]
        self._steps = np.zeros(num_engines)
        self._step_tokens = np.zeros(num_engines)

    def began(self, engine: int, arrival_s: float, now_s: float, record: Any) -> None:
        """A request's first token."""
        self.histograms[engine]["time_to_first_token_seconds"].add(now_s - arrival_s)
        self.prompt_tokens[engine] += int(record["prompt"])
        self.cached_tokens[engine] += int(record["cached_tokens"])

    def went_on(self, engine: int, gap_s: float) -> None:
        """A later output."""
        self._gaps[engine].append(gap_s)

    def finished(self, engine: int, record: Any, reason: str, max_tokens: int) -> None:
        """A request's last token, which `finish_s` is the time of."""
        self.successes[engine][reason] += 1
        arrival_s, scheduled_s = float(record["arrival_s"]), float(record["scheduled_s"])
        first_s, last_s, output = float(record["first_token_s"]), float(record["finish_s"]), int(record["output"])
        values = {
            "e2e_request_latency_seconds": last_s - arrival_s,
            "request_queue_time_seconds": scheduled_s - arrival_s,
            "request_inference_time_seconds": last_s - scheduled_s,
            "request_prefill_time_seconds": first_s - scheduled_s,
            "request_decode_time_seconds": last_s - first_s,
            "request_time_per_output_token_seconds": (last_s - first_s) / (output - 1) if output > 1 else 0.0,
            "request_prompt_tokens": int(record["prompt"]),
            "request_generation_tokens": output,
            "request_max_num_generation_tokens": output,
            "request_params_n": 1,
            "request_params_max_tokens": max_tokens,
            "request_prefill_kv_computed_tokens": int(record["prompt"]) - int(record["cached_tokens"]),
            "request_num_preemptions": int(record["preemptions"]),
        }
        for name, value in values.items():
            self.histograms[engine][name].add(value)

    def end_instant(self, totals: NDArray[np.void]) -> None:
        """Enter the gaps before an instant's tokens, and the steps that were decided in it."""
        for engine, gaps in enumerate(self._gaps):
            if gaps:
                self.histograms[engine]["inter_token_latency_seconds"].add(*gaps)
                gaps.clear()
        steps, tokens = totals["steps"].copy(), totals["tokens"].copy()
        for engine in np.flatnonzero(steps > self._steps).tolist():
            count = int(steps[engine] - self._steps[engine])
            mean = (tokens[engine] - self._step_tokens[engine]) / count
            self.histograms[engine]["iteration_tokens_total"].add(mean, times=count)
        self._steps, self._step_tokens = steps, tokens


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
