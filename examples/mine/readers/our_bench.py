"""Results of our own benchmark client: one JSON object with mean latencies in milliseconds."""

import json
from pathlib import Path
from typing import Any

from calibrate.measured_run import MeasuredRun

LOOKS_LIKE = "JSON with our_bench_version"


def recognizes(_path: Path, head: Any) -> bool:
    return isinstance(head, dict) and "our_bench_version" in head


def read(path: Path) -> list[MeasuredRun]:
    found = json.loads(path.read_text(encoding="utf-8"))
    run = MeasuredRun(
        source=path,
        tool="our_bench",
        load={"concurrency": found["clients"], "input_len": found["input_len"], "output_len": found["output_len"]},
        aggregates={"ttft_s.mean": found["ttft_ms"] / 1e3, "tpot_s.mean": found["tpot_ms"] / 1e3},
    )
    return [run]
