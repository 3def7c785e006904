"""`/metrics` in Prometheus' format, under vLLM's names.

Names and buckets are those of vLLM 0.33 (`vllm/v1/metrics/loggers.py`, `buckets.py`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headcount.endpoint.clock import Clock
from headcount.endpoint.figures import Histogram
from headcount.endpoint.metrics.own import Samples, Table, families, own_metrics
from headcount.endpoint.metrics.vllm_steps import HISTOGRAMS
from simulator.deployment import Deployment

_FINISHED = ("stop", "length", "abort", "error", "repetition")
_SLEEP = {"awake": 1, "weights_offloaded": 0, "discard_all": 0}


@dataclass(frozen=True, eq=False)
class VLLMMetrics(Collector):
    """Reads a running emulation whenever it is scraped."""

    clock: Clock
    plan: Deployment
    model: str

    def collect(self) -> Iterator[Metric]:
        figures = self.clock.emulation.figures.histograms
        histograms = {
            name: (what, self._each([[found[name]] for found in figures])) for name, (what, _) in HISTOGRAMS.items()
        }
        yield from families(GaugeMetricFamily, "vllm", self._gauges())
        yield from families(CounterMetricFamily, "vllm", self._counters())
        yield from families(HistogramMetricFamily, "vllm", histograms)
        yield from families(GaugeMetricFamily, "vllm", {"cache_config_info": ("Of the KV cache.", self._settings())})
        yield from own_metrics(self.clock)

    def _gauges(self) -> Table:
        engines = self.clock.emulation.live.simulation.arrays.replicas
        waiting, held = engines["num_waiting"].tolist(), 1 - engines["num_free_blocks"] / engines["num_usable_blocks"]
        reasons = [{"capacity": count, "deferred": 0} for count in waiting]
        return {
            "num_requests_running": ("Requests that steps compute.", self._each(engines["num_running"].tolist())),
            "num_requests_waiting": ("Requests that wait to be scheduled.", self._each(waiting)),
            "kv_cache_usage_perc": ("Share of KV blocks that are held.", self._each(held.tolist())),
            "num_requests_waiting_by_reason": ("Waiting requests by reason.", self._by("reason", reasons)),
            "engine_sleep_state": ("An engine never sleeps here.", self._by("sleep_state", [_SLEEP] * len(engines))),
        }

    def _counters(self) -> Table:
        totals, figures = self.clock.emulation.live.simulation.totals, self.clock.emulation.figures
        sources = [
            {"local_compute": prompt - cached, "local_cache_hit": cached, "external_kv_transfer": 0}
            for prompt, cached in zip(figures.prompt_tokens, figures.cached_tokens, strict=True)
        ]
        reasons = [{reason: found[reason] for reason in _FINISHED} for found in figures.successes]
        return {
            "prefix_cache_queries": (
                "Tokens looked up in the prefix cache.",
                self._each(totals["queried_tokens"].tolist()),
            ),
            "prefix_cache_hits": ("Tokens found there.", self._each(totals["hit_tokens"].tolist())),
            "num_preemptions": ("Preemptions.", self._each(totals["preemptions"].tolist())),
            "prompt_tokens": ("Prompt tokens processed.", self._each(figures.prompt_tokens)),
            "prompt_tokens_cached": ("Prompt tokens that were cached.", self._each(figures.cached_tokens)),
            "generation_tokens": ("Generated tokens.", self._each(figures.tokens)),
            "prompt_tokens_by_source": ("Prompt tokens by source.", self._by("source", sources)),
            "request_success": ("Requests that were answered.", self._by("finished_reason", reasons)),
        }

    def _settings(self) -> Samples:
        plan = self.plan
        settings = {
            "block_size": plan.vllm_engine.block_size,
            "num_gpu_blocks": plan.num_gpu_blocks,
            "enable_prefix_caching": plan.vllm_engine.enable_prefix_caching,
            "gpu_memory_utilization": plan.budget.gpu_memory_utilization,
            "cache_dtype": plan.budget.kv_cache_dtype,
        }
        return [({**settings, "engine": engine}, 1) for engine in range(len(self.clock.emulation.figures.tokens))]

    def _each(self, values: Iterable[float | Sequence[Histogram]]) -> Samples:
        """One value for each engine."""
        return [({"model_name": self.model, "engine": engine}, value) for engine, value in enumerate(values)]

    def _by(self, label: str, values: Iterable[Mapping[str, float]]) -> Samples:
        """One value for each engine and each value of the last label."""
        return [
            ({"model_name": self.model, "engine": engine, label: name}, value)
            for engine, found in enumerate(values)
            for name, value in found.items()
        ]
