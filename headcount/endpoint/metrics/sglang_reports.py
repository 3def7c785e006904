"""What SGLang counts: buckets of its histograms, and what its schedulers report now and then."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

DECODE_LOG_INTERVAL: Final = 40  # decode batches between two looks at the throughput: --decode-log-interval
STALE_S: Final = 30.0  # after which no throughput is shown: GEN_THROUGHPUT_STALENESS_SECONDS
_E2E: Final = (
    0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400, 600, 1200, 1800, 2400,
)  # fmt: skip
_TTFT: Final = _E2E[:18]
_ITL: Final = (
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2,
    4, 6, 8,
)  # fmt: skip
_QUEUE: Final = (
    0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100, 200, 300,
    400, 500, 600, 700, 800, 900, 1000, 1200, 1400, 1600, 1800, 2000, 2500, 3000,
)  # fmt: skip
_TOKENS: Final = (
    100, 300, 500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000, 12500, 15000, 17500, 20000,
    22500, 25000, 27500, 30000, 35000, 40000, 60000, 80000, 100000, 200000, 300000, 400000, 600000, 800000, 1000000,
    1100000,
)  # fmt: skip
TTFTS, TPOTS, E2ES = "time_to_first_token_seconds", "time_per_later_token_seconds", "e2e_request_latency_seconds"
PROMPTS, ANSWERS, CACHED = "request_prompt_tokens", "request_generation_tokens", "request_prefill_kv_computed_tokens"
ITLS, QUEUES = "inter_token_latency_seconds", "request_queue_time_seconds"
BOUNDS: Final[dict[str, tuple[float, ...]]] = {  # by what `Figures` counts
    TTFTS: _TTFT, TPOTS: _ITL, E2ES: _E2E, PROMPTS: _TOKENS, ANSWERS: _TOKENS, CACHED: _TOKENS, ITLS: _ITL,
    QUEUES: _QUEUE,
}  # fmt: skip


class Reports:
    """What each engine last reported: a throughput, and the hit rate of its latest prefills."""

    def __init__(self, num_engines: int) -> None:
        self.hit_rate = np.zeros(num_engines)
        self._throughput, self._since_s = np.zeros(num_engines), np.zeros(num_engines)
        self._batches, self._generated = np.zeros(num_engines), np.zeros(num_engines)
        self._queried, self._hit = np.zeros(num_engines), np.zeros(num_engines)

    def throughput(self, now_s: float) -> NDArray[np.float64]:
        """Tokens per second; nothing where the last report is old."""
        return np.where(now_s - self._since_s > STALE_S, 0.0, self._throughput)

    def note(self, now_s: float, totals: NDArray[np.void]) -> None:
        """An instant is over."""
        batches = totals["steps"] - totals["prefill_steps"]
        for engine in np.flatnonzero(batches >= self._batches + DECODE_LOG_INTERVAL).tolist():
            generated = float(totals["decode_sequences"][engine])
            self._throughput[engine] = (generated - self._generated[engine]) / (now_s - self._since_s[engine])
            self._batches[engine], self._generated[engine] = batches[engine], generated
            self._since_s[engine] = now_s
        for engine in np.flatnonzero(totals["queried_tokens"] > self._queried).tolist():
            queried, hit = float(totals["queried_tokens"][engine]), float(totals["hit_tokens"][engine])
            self.hit_rate[engine] = (hit - self._hit[engine]) / (queried - self._queried[engine])
            self._queried[engine], self._hit[engine] = queried, hit
