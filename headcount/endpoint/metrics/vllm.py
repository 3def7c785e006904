"""`/metrics` in Prometheus' format, under vLLM's names.

Names and buckets are those of vLLM 0.33 (`vllm/v1/metrics/loggers.py`, `buckets.py`).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headcount.endpoint.figures import Figures
from headcount.endpoint.metrics.own import own_metrics
from simulator.deployment import Deployment

if TYPE_CHECKING:
    from headcount.endpoint.clock import Clock

_LABELS = ("model_name", "engine")
_FINISHED = ("stop", "length", "abort", "error", "repetition")
_Family = GaugeMetricFamily | CounterMetricFamily
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


class VLLMMetrics(Collector):
    """Reads a running emulation whenever it is scraped."""

    def __init__(self, clock: "Clock", plan: Deployment, model: str) -> None:
        self._clock, self._plan, self._model = clock, plan, model

    def collect(self) -> Iterator[Metric]:
        yield from self._gauges()
        yield from self._counters()
        yield from self._histograms()
        yield self._cache_config()
        yield from own_metrics(self._clock)

    def _gauges(self) -> Iterator[Metric]:
        engines = self._clock.emulation.live.simulation.arrays.replicas
        usable = engines["num_usable_blocks"]
        values = {
            "num_requests_running": ("Requests that steps compute.", engines["num_running"]),
            "num_requests_waiting": ("Requests that wait to be scheduled.", engines["num_waiting"]),
            "kv_cache_usage_perc": ("Share of KV blocks that are held.", 1 - engines["num_free_blocks"] / usable),
        }
        for name, (what, column) in values.items():
            yield self._each(GaugeMetricFamily(f"vllm:{name}", what, labels=_LABELS), column.tolist())
        yield self._labelled(
            GaugeMetricFamily(
                "vllm:num_requests_waiting_by_reason", "Waiting requests by reason.", labels=(*_LABELS, "reason")
            ),
            [{"capacity": count, "deferred": 0} for count in engines["num_waiting"].tolist()],
        )
        states = {"awake": 1, "weights_offloaded": 0, "discard_all": 0}
        yield self._labelled(
            GaugeMetricFamily(
                "vllm:engine_sleep_state", "An engine never sleeps here.", labels=(*_LABELS, "sleep_state")
            ),
            [states] * len(engines),
        )

    def _counters(self) -> Iterator[Metric]:
        totals, figures = self._clock.emulation.live.simulation.totals, self._clock.emulation.figures
        values = {
            "prefix_cache_queries": ("Tokens looked up in the prefix cache.", totals["queried_tokens"].tolist()),
            "prefix_cache_hits": ("Tokens found there.", totals["hit_tokens"].tolist()),
            "num_preemptions": ("Preemptions.", totals["preemptions"].tolist()),
            "prompt_tokens": ("Prompt tokens processed.", figures.prompt_tokens),
            "prompt_tokens_cached": ("Prompt tokens that were cached.", figures.cached_tokens),
            "generation_tokens": ("Generated tokens.", figures.tokens),
        }
        for name, (what, column) in values.items():
            yield self._each(CounterMetricFamily(f"vllm:{name}", what, labels=_LABELS), column)
        sources = [
            {"local_compute": prompt - cached, "local_cache_hit": cached, "external_kv_transfer": 0}
            for prompt, cached in zip(figures.prompt_tokens, figures.cached_tokens, strict=True)
        ]
        yield self._labelled(
            CounterMetricFamily(
                "vllm:prompt_tokens_by_source", "Prompt tokens by source.", labels=(*_LABELS, "source")
            ),
            sources,
        )
        yield self._labelled(
            CounterMetricFamily(
                "vllm:request_success", "Requests that were answered.", labels=(*_LABELS, "finished_reason")
            ),
            [{reason: found[reason] for reason in _FINISHED} for found in figures.successes],
        )

    def _histograms(self) -> Iterator[Metric]:
        for name, (what, _) in HISTOGRAMS.items():
            family = HistogramMetricFamily(f"vllm:{name}", what, labels=_LABELS)
            for engine, found in enumerate(self._clock.emulation.figures.histograms):
                samples = found[name].samples()
                family.add_metric((self._model, str(engine)), buckets=samples, sum_value=found[name].sum)
            yield family

    def _cache_config(self) -> Metric:
        plan = self._plan
        settings = {
            "block_size": plan.vllm_engine.block_size,
            "num_gpu_blocks": plan.num_gpu_blocks,
            "enable_prefix_caching": plan.vllm_engine.enable_prefix_caching,
            "gpu_memory_utilization": plan.budget.gpu_memory_utilization,
            "cache_dtype": plan.budget.kv_cache_dtype,
        }
        family = GaugeMetricFamily("vllm:cache_config_info", "Of the KV cache.", labels=(*settings, "engine"))
        for engine in range(len(self._clock.emulation.figures.tokens)):
            family.add_metric((*map(str, settings.values()), str(engine)), 1)
        return family

    def _labelled(self, family: _Family, values: Iterable[Mapping[str, float]]) -> _Family:
        """One value for each engine and each value of the last label."""
        for engine, found in enumerate(values):
            for label, value in found.items():
                family.add_metric((self._model, str(engine), label), value)
        return family

    def _each(self, family: _Family, values: Iterable[float]) -> _Family:
        for engine, value in enumerate(values):
            family.add_metric((self._model, str(engine)), value)
        return family
