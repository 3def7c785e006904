"""`/metrics` in Prometheus' format, under vLLM's names.

Names and buckets are those of vLLM 0.33 (`vllm/v1/metrics/loggers.py`, `buckets.py`).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headcount.endpoint.metrics.own import own_metrics
from headcount.endpoint.metrics.vllm_steps import HISTOGRAMS
from simulator.deployment import Deployment

if TYPE_CHECKING:
    from headcount.endpoint.clock import Clock

_LABELS = ("model_name", "engine")
_FINISHED = ("stop", "length", "abort", "error", "repetition")
_Family = GaugeMetricFamily | CounterMetricFamily


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
