"""What vLLM's own logger registers at `/metrics`; run by an interpreter that has it.

usage: python metrics_probe.py CASES.jsonl > METRICS.jsonl

A case is `{"name", "config"}`, the config as in `config.json`. Out comes `{"name", "metrics"}`: by a metric's name its
`{"type", "labels", "bounds"}`, bounds being the upper ones of a histogram's buckets.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from prometheus_client import REGISTRY
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.metrics.loggers import PrometheusStatLogger


def registered(config):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config))
        made = EngineArgs(model=folder, skip_tokenizer_init=True, load_format="dummy").create_engine_config()
    made.cache_config.num_gpu_blocks = 100
    PrometheusStatLogger(made, [0]).log_engine_initialized()
    found = {}
    for family in REGISTRY.collect():
        if family.name.startswith("vllm:"):
            labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
            bounds = [sample.labels["le"] for sample in family.samples if "le" in sample.labels]
            found[family.name] = {"type": family.type, "labels": labels, "bounds": bounds}
    return found


if __name__ == "__main__":
    with open(sys.argv[1]) as lines:
        for case in map(json.loads, lines):
            print(json.dumps({"name": case["name"], "metrics": registered(case["config"])}), flush=True)
