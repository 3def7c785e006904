"""`/metrics` in Prometheus' format, under SGLang's names.

Names, labels and buckets are those of SGLang 0.5.23 (`srt/observability/metrics_collector.py`). Its gauges change with
every prefill batch and every 40th decode batch; here they are of the moment, apart from the two that are rates.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headcount.endpoint.clock import Clock
from headcount.endpoint.figures import Histogram
from headcount.endpoint.metrics.own import Table, families, own_metrics
from headcount.endpoint.metrics.sglang_reports import (
    ANSWERS,
    CACHED,
    E2ES,
    ITLS,
    PROMPTS,
    QUEUES,
    TPOTS,
    TTFTS,
    Reports,
)

_STREAMED: Final = {  # those with `is_streaming`
    "time_to_first_token_seconds": ("Time to the first token.", TTFTS),
    "request_time_per_output_token_seconds": ("Mean time per output token of a request, after the first.", TPOTS),
    "e2e_request_latency_seconds": ("Time from arrival to the last token.", E2ES),
}
_WHOLE: Final = {
    "inter_token_latency_seconds": ("Time between two outputs of a request.", ITLS),
    "prompt_tokens_histogram": ("Prompt tokens of a request.", PROMPTS),
    "uncached_prompt_tokens_histogram": ("Prompt tokens that no prefix covered.", CACHED),
    "generation_tokens_histogram": ("Generated tokens of a request.", ANSWERS),
}
_Series = Sequence[dict[str, Histogram]]


@dataclass(frozen=True, eq=False)
class SGLangMetrics(Collector):
    """Reads a running emulation whenever it is scraped. Figures have two series for each engine: whole, streamed."""

    clock: Clock
    reports: Reports
    model: str

    def collect(self) -> Iterator[Metric]:
        all_series = self.clock.emulation.figures.histograms
        waited = {
            "queue_time_seconds": (
                "Time in the waiting queue.",
                [
                    (labels, [each[QUEUES] for each in all_series[2 * engine : 2 * engine + 2]])
                    for engine, labels in enumerate(self._schedulers)
                ],
            )
        }
        yield from families(GaugeMetricFamily, "sglang", self._gauges())
        yield from families(CounterMetricFamily, "sglang", self._of_schedulers())
        yield from families(HistogramMetricFamily, "sglang", waited)
        yield from families(HistogramMetricFamily, "sglang", self._times(all_series))
        yield from families(CounterMetricFamily, "sglang", self._of_requests(all_series))
        yield from own_metrics(self.clock)

    @property
    def _shared(self) -> dict[str, str]:
        return {"model_name": self.model, "engine_type": "unified"}

    @property
    def _schedulers(self) -> list[dict[str, object]]:
        """Labels of each scheduler: several replicas differ as those of --dp-size are."""
        count = len(self.clock.emulation.live.simulation.arrays.replicas)
        shared = {**self._shared, "tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}
        return [{**shared, **({"dp_rank": engine} if count > 1 else {})} for engine in range(count)]

    def _gauges(self) -> Table:
        arrays = self.clock.emulation.live.simulation.arrays
        engines, own, pool = arrays.replicas, arrays.sglang.engines, arrays.sglang.pools[0]
        page, pages = int(pool["page_size"]), engines["num_usable_blocks"]
        free, cached = engines["num_free_blocks"], engines["num_cached_free_blocks"]
        used, held = 1.0 - free / pages, (pages - free) * page
        ratio = np.where(engines["is_laid_out"] == 1, own["ratio"], pool["init_ratio"])
        now_s = self.clock.simulated(self.clock.now())
        values = {
            "num_running_reqs": ("Running requests.", np.minimum(own["batch_size"], engines["num_running"])),
            "num_queue_reqs": ("Requests in the waiting queue.", engines["num_waiting"]),
            "gen_throughput": ("Generated tokens per second.", self.reports.throughput(now_s)),
            "cache_hit_rate": ("Share of the latest prompts' tokens that were cached.", self.reports.hit_rate),
            "token_usage": ("Share of the KV cache that requests hold.", used),
            "full_token_usage": ("The same of layers with full attention.", used),
            "num_used_tokens": ("Tokens of the KV cache that requests hold.", held),
            "kv_used_tokens": ("Tokens of the KV cache that requests hold.", held),
            "kv_available_tokens": ("Tokens of the KV cache that hold nothing.", (free - cached) * page),
            "kv_evictable_tokens": ("Tokens of the radix tree that may be evicted.", cached * page),
            "new_token_ratio": ("Share of an answer that memory is held back for.", ratio),
            "max_total_num_tokens": ("Tokens of the KV cache.", pages * page),
            "page_size": ("Tokens of a page.", np.full(len(engines), page)),
            "num_pages": ("Pages of the KV cache.", pages),
            "context_len": ("Longest context.", np.full(len(engines), int(pool["context_len"]))),
        }
        if pool["kept_window"]:
            most = int(pool["num_window_pages"])
            free_pages = np.where(engines["is_laid_out"] == 1, own["num_free_window_pages"], most)
            in_windows = 1.0 - (free_pages + own["num_evictable_window_pages"]) / most
            values["token_usage"] = (values["token_usage"][0], np.maximum(used, in_windows))
            values["swa_token_usage"] = ("The same of layers with sliding windows.", in_windows)
        if pool["has_states"]:
            most = int(pool["num_state_slots"])
            free_slots = np.where(engines["is_laid_out"] == 1, own["num_free_states"], most)
            in_states = 1.0 - (free_slots + own["num_evictable_states"]) / most
            values["token_usage"] = (values["token_usage"][0], np.maximum(used, in_states))
            values["mamba_usage"] = ("The same of SSM or linear-attention states.", in_states)
        return {
            name: (what, list(zip(self._schedulers, column.tolist(), strict=True)))
            for name, (what, column) in values.items()
        }

    def _of_schedulers(self) -> Table:
        totals = self.clock.emulation.live.simulation.totals
        decode, names = totals["decode_sequences"], self._schedulers
        modes = {"prefill_compute": totals["tokens"] - decode, "prefill_cache": totals["hit_tokens"], "decode": decode}
        tokens = [
            ({**labels, "mode": mode}, float(column[engine]))
            for engine, labels in enumerate(names)
            for mode, column in modes.items()
        ]
        retracted = list(zip(names, totals["preemptions"].astype(float).tolist(), strict=True))
        return {
            "num_retracted_requests": ("Retracted requests.", retracted),
            "realtime_tokens": ("Tokens processed, by mode.", tokens),
        }

    def _halves(self, all_series: _Series) -> list[tuple[dict[str, str], _Series]]:
        """Whole answers and streamed ones, with their labels."""
        return [
            ({**self._shared, "is_streaming": is_on}, all_series[n::2]) for n, is_on in enumerate(("false", "true"))
        ]

    def _times(self, all_series: _Series) -> Table:
        streamed: Table = {
            name: (what, [(labels, [each[key] for each in half]) for labels, half in self._halves(all_series)])
            for name, (what, key) in _STREAMED.items()
        }
        whole: Table = {
            name: (what, [(self._shared, [each[key] for each in all_series])]) for name, (what, key) in _WHOLE.items()
        }
        return {**streamed, **whole}

    def _of_requests(self, all_series: _Series) -> Table:
        halves = [(labels, [each[PROMPTS] for each in half]) for labels, half in self._halves(all_series)]
        answers = [
            (labels, float(sum(each[ANSWERS].sum for each in half))) for labels, half in self._halves(all_series)
        ]
        prompts = [(labels, float(sum(each.sum for each in half))) for labels, half in halves]
        requests = [(labels, float(sum(each.counts.sum() for each in half))) for labels, half in halves]
        cached = sum(each[PROMPTS].sum - each[CACHED].sum for each in all_series)
        aborted = self.clock.emulation.num_aborted
        return {
            "prompt_tokens": ("Prompt tokens of requests that were answered.", prompts),
            "generation_tokens": ("Generated tokens of requests that were answered.", answers),
            "num_requests": ("Requests that were answered.", requests),
            "cached_tokens": (
                "Prompt tokens that were cached.",
                [({**self._shared, "cache_source": "device"}, cached)],
            ),
            "num_aborted_requests": ("Requests whose client went.", [(self._shared, aborted)]),
        }
