"""Which histograms vLLM has, and the steps of each engine as they are decided."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from headcount.endpoint.figures import Figures

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


def bounds(max_model_len: int) -> dict[str, tuple[float, ...]]:
    """Of each histogram's buckets."""
    steps = (digit * 10.0**power for power in range(20) for digit in (1, 2, 5))
    tokens = tuple(step for step in steps if step <= max_model_len)
    return {name: found or tokens for name, (_, found) in HISTOGRAMS.items()}


class Steps:
    """The steps of each engine, as they are decided."""

    def __init__(self, figures: Figures, num_engines: int) -> None:
        self._figures = figures
        self._steps, self._tokens = np.zeros(num_engines), np.zeros(num_engines)

    def note(self, _: float, totals: NDArray[np.void]) -> None:
        """An instant is over."""
        steps, tokens = totals["steps"].copy(), totals["tokens"].copy()
        for engine in np.flatnonzero(steps > self._steps).tolist():
            count = int(steps[engine] - self._steps[engine])
            mean = (tokens[engine] - self._tokens[engine]) / count
            self._figures.histograms[engine]["iteration_tokens_total"].add(mean, times=count)
        self._steps, self._tokens = steps, tokens
