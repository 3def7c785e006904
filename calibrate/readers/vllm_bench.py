"""The result of `vllm bench serve --save-result`.

Keys as written by vllm/benchmarks/serve.py of 0.32.0 and of releases before it. Requests are in it with
`--save-detailed` only; `start_times` are the client's own clock, so that arrivals are known among themselves, and are
taken after a request has passed `--max-concurrency`. `itls` are gaps between streamed chunks, which hold several
tokens under speculative decoding or when the client lags. Token counts are the server's where its answers carry
`usage`, else the client's. With `--append-result` a file holds several runs.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.client_arrays import client_aggregates, client_rows, mean_lengths
from calibrate.readers.parsing.files import Head, count, json_objects, numbers
from calibrate.readers.parsing.server_metrics import python_value
from calibrate.readers.parsing.startup_log import OPTIONS

LOOKS_LIKE = "JSON with tokenizer_id, duration, completed"
_SHORT = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "quant": "quantization"}


def recognizes(path: Path, head: Head) -> bool:
    return isinstance(head, dict) and {"tokenizer_id", "duration", "completed"} <= head.keys()


def read(path: Path) -> list[MeasuredRun]:
    """One run per JSON object."""
    return [_run(path, run) for run in json_objects(path)]


def _run(path: Path, run: Mapping[str, Any]) -> MeasuredRun:
    if "total_input_sequences" in run or "total_output_tokens" not in run:
        raise ValueError(f"{path}: is a run of embeddings or cut short: no total_output_tokens; give one of generation")
    rows = client_rows(path, run)
    notes = [] if rows else ["the run was saved without --save-detailed: it has figures, but no requests"]
    if run.get("ramp_up_strategy"):
        notes.append(f"the rate was ramped up, {run['ramp_up_strategy']}ly: the load is not stationary")
    return MeasuredRun(
        source=path,
        tool="vllm bench serve",
        options=_options(run),
        load=_load(run),
        aggregates=client_aggregates(path, run),
        notes=tuple(notes),
        **(rows.parts() if rows else {"excluded": {"failed": failed} if (failed := count(run.get("failed"))) else {}}),
    )


def _options(run: Mapping[str, Any]) -> dict[str, Any]:
    """The model, and settings of the server that the user wrote down with `--metadata KEY=VALUE`, all as strings."""
    found = {}
    for key, value in run.items():
        name = _SHORT.get(key, key.replace("-", "_").lstrip("_"))
        if name in OPTIONS:
            found[name] = python_value(value) if isinstance(value, str) else value
    return found | ({"model": run["model_id"]} if run.get("model_id") else {})


def _load(run: Mapping[str, Any]) -> dict[str, float]:
    ramped = run.get("ramp_up_strategy") is not None
    asked = numbers(
        concurrency=run.get("max_concurrency"),
        rate=math.nan if ramped else run.get("request_rate"),
        burstiness=run.get("burstiness"),
        num_requests=run.get("num_prompts"),
    )
    return asked | mean_lengths(run)
