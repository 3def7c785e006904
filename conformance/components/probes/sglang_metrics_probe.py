"""What SGLang's own collectors register at `/metrics`; run by an interpreter that has it.

usage: python sglang_metrics_probe.py CASES.jsonl > METRICS.jsonl

A case is `{"name"}`. Out comes `{"name", "metrics"}`: by a metric's name its `{"type", "labels", "bounds"}`, bounds
being the upper ones of a histogram's buckets.
"""

import json
import sys

from prometheus_client import REGISTRY
from sglang.srt.observability import metrics_collector
from sglang_parts import settings

SCHEDULER = {"model_name": "model", "engine_type": "unified", "tp_rank": 0, "pp_rank": 0, "moe_ep_rank": 0}


def registered():
    published = settings(served_model_name="model")
    metrics_collector.SchedulerMetricsCollector(labels=SCHEDULER, server_args=None)
    metrics_collector.TokenizerMetricsCollector(labels=metrics_collector.tokenizer_metric_labels())
    published.restore()
    found = {}
    for metric in REGISTRY._collector_to_names:
        name = getattr(metric, "_name", "")
        if name.startswith("sglang:"):
            bounds = [float(bound) for bound in getattr(metric, "_upper_bounds", ())]
            found[name] = {
                "type": metric._type,
                "labels": sorted(metric._labelnames),
                "bounds": ["inf" if bound == float("inf") else bound for bound in bounds],
            }
    return found


if __name__ == "__main__":
    with open(sys.argv[1]) as lines:
        for case in map(json.loads, lines):
            print(json.dumps({"name": case["name"], "metrics": registered()}), flush=True)
