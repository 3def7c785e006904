"""`/metrics` in Prometheus' format, under SGLang's names.

Names, labels and buckets are those of SGLang 0.5.23 (`srt/observability/metrics_collector.py`). Its gauges change with
every prefill batch and every 40th decode batch; here they are of the moment, apart from the two that are rates.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headcount.endpoint.figures import Histogram
from headcount.endpoint.metrics.own import own_metrics
from headcount.endpoint.metrics.sglang_reports import (
    _ANSWERS,
    _CACHED,
    _E2ES,
    _ITLS,
    _PROMPTS,
    _QUEUES,
    _TPOTS,
    _TTFTS,
    Reports,
)

if TYPE_CHECKING:
    from headcount.endpoint.clock import Clock

_STREAMED: Final = {  # those with `is_streaming`
    "time_to_first_token_seconds": ("Time to the first token.", _TTFTS),
    "request_time_per_output_token_seconds": ("Mean time per output token of a request, after the first.", _TPOTS),
    "e2e_request_latency_seconds": ("Time from arrival to the last token.", _E2ES),
}
_WHOLE: Final = {
    "inter_token_latency_seconds": ("Time between two outputs of a request.", _ITLS),
    "prompt_tokens_histogram": ("Prompt tokens of a request.", _PROMPTS),
    "uncached_prompt_tokens_histogram": ("Prompt tokens that no prefix covered.", _CACHED),
    "generation_tokens_histogram": ("Generated tokens of a request.", _ANSWERS),
}


class SGLangMetrics(Collector):
    """Reads a running emulation whenever it is scraped. Figures have two series for each engine: whole, streamed."""

    def __init__(self, clock: "Clock", reports: Reports, model: str) -> None:
        self._clock, self._reports = clock, reports
        self._shared = {"model_name": model, "engine_type": "unified"}

    def collect(self) -> Iterator[Metric]:
        yield from self._gauges()
        yield from self._of_schedulers()
        yield from self._of_requests()
        yield from own_metrics(self._clock)

    @property
    def _num_engines(self) -> int:
        return len(self._clock.emulation.live.simulation.arrays.replicas)

    def _labels(self, engine: int) -> dict[str, str]:
        """Of a scheduler: several replicas are told apart as those of --dp-size are."""
        rank = {"dp_rank": str(engine)} if self._num_engines > 1 else {}
        return {**self._shared, "tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0", **rank}

    def _gauges(self) -> Iterator[Metric]:
        emulation = self._clock.emulation
        arrays = emulation.live.simulation.arrays
        engines, own, pool = arrays.replicas, arrays.sglang.engines, arrays.sglang.pools[0]
        page, pages = int(pool["page_size"]), engines["num_usable_blocks"]
        free, cached = engines["num_free_blocks"], engines["num_cached_free_blocks"]
        used = 1.0 - free / pages
        ratio = np.where(engines["is_laid_out"] == 1, own["ratio"], pool["init_ratio"])
        now_s = self._clock.simulated(self._clock.now())
        values = {
            "num_running_reqs": ("Running requests.", np.minimum(own["batch_size"], engines["num_running"])),
            "num_queue_reqs": ("Requests in the waiting queue.", engines["num_waiting"]),
            "gen_throughput": ("Generated tokens per second.", self._reports.throughput(now_s)),
            "cache_hit_rate": ("Share of the latest prompts' tokens that were cached.", self._reports.hit_rate),
            "token_usage": ("Share of the KV cache that requests hold.", used),
            "full_token_usage": ("The same of layers with full attention.", used),
            "num_used_tokens": ("Tokens of the KV cache that requests hold.", (pages - free) * page),
            "kv_used_tokens": ("Tokens of the KV cache that requests hold.", (pages - free) * page),
            "kv_available_tokens": ("Tokens of the KV cache that hold nothing.", (free - cached) * page),
            "kv_evictable_tokens": ("Tokens of the radix tree that may be evicted.", cached * page),
            "new_token_ratio": ("Share of an answer that memory is held back for.", ratio),
            "max_total_num_tokens": ("Tokens of the KV cache.", pages * page),
            "page_size": ("Tokens of a page.", np.full(len(engines), page)),
            "num_pages": ("Pages of the KV cache.", pages),
            "context_len": ("Longest context.", np.full(len(engines), int(pool["context_len"]))),
        }
        for name, (what, column) in values.items():
            family = GaugeMetricFamily(f"sglang:{name}", what, labels=tuple(self._labels(0)))
            for engine, value in enumerate(column.tolist()):
                family.add_metric(tuple(self._labels(engine).values()), value)
            yield family

    def _of_schedulers(self) -> Iterator[Metric]:
        totals, labels = self._clock.emulation.live.simulation.totals, tuple(self._labels(0))
        retracted = CounterMetricFamily("sglang:num_retracted_requests", "Retracted requests.", labels=labels)
        tokens = CounterMetricFamily("sglang:realtime_tokens", "Tokens processed, by mode.", labels=(*labels, "mode"))
        queue = HistogramMetricFamily("sglang:queue_time_seconds", "Time in the waiting queue.", labels=labels)
        for engine, total in enumerate(totals):
            values = tuple(self._labels(engine).values())
            retracted.add_metric(values, float(total["preemptions"]))
            decode = float(total["decode_sequences"])
            modes = {"prefill_compute": float(total["tokens"]) - decode, "prefill_cache": float(total["hit_tokens"])}
            for mode, count in {**modes, "decode": decode}.items():
                tokens.add_metric((*values, mode), count)
            _enter(queue, values, [each[_QUEUES] for each in self._series(engine)])
        yield from (retracted, tokens, queue)

    def _of_requests(self) -> Iterator[Metric]:
        labels, values = tuple(self._shared), tuple(self._shared.values())
        streamed = (*labels, "is_streaming")
        all_series = [each for engine in range(self._num_engines) for each in self._series(engine)]
        halves = {"false": all_series[0::2], "true": all_series[1::2]}
        for name, (what, counted) in _STREAMED.items():
            family = HistogramMetricFamily(f"sglang:{name}", what, labels=streamed)
            for half, series in halves.items():
                _enter(family, (*values, half), [each[counted] for each in series])
            yield family
        for name, (what, counted) in _WHOLE.items():
            family = HistogramMetricFamily(f"sglang:{name}", what, labels=labels)
            _enter(family, values, [each[counted] for each in all_series])
            yield family
        for name, what, counted in (
            ("prompt_tokens", "Prompt tokens of requests that were answered.", _PROMPTS),
            ("generation_tokens", "Generated tokens of requests that were answered.", _ANSWERS),
            ("num_requests", "Requests that were answered.", ""),
        ):
            counter = CounterMetricFamily(f"sglang:{name}", what, labels=streamed)
            for half, series in halves.items():
                total = sum(each[counted].sum if counted else each[_PROMPTS].counts.sum() for each in series)
                counter.add_metric((*values, half), float(total))
            yield counter
        yield self._cached(all_series)
        aborted = CounterMetricFamily("sglang:num_aborted_requests", "Requests whose client went.", labels=labels)
        aborted.add_metric(values, self._clock.emulation.num_aborted)
        yield aborted

    def _cached(self, all_series: Sequence[dict[str, Histogram]]) -> Metric:
        family = CounterMetricFamily(
            "sglang:cached_tokens", "Prompt tokens that were cached.", labels=(*self._shared, "cache_source")
        )
        cached = sum(each[_PROMPTS].sum - each[_CACHED].sum for each in all_series)
        family.add_metric((*self._shared.values(), "device"), cached)
        return family

    def _series(self, engine: int) -> Sequence[dict[str, Histogram]]:
        return self._clock.emulation.figures.histograms[2 * engine : 2 * engine + 2]


def _enter(family: HistogramMetricFamily, labels: Sequence[str], histograms: Sequence[Histogram]) -> None:
    """Add several histograms with the same buckets as one."""
    merged = Histogram(tuple(histograms[0].bounds.tolist()))
    for each in histograms:
        merged.counts += each.counts
        merged.sum += each.sum
    family.add_metric(labels, buckets=merged.samples(), sum_value=merged.sum)
