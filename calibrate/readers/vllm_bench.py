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

from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.client_arrays import client_aggregates, client_rows, client_run, mean_lengths
from calibrate.readers.parsing.engine_options import OPTIONS, engine_option
from calibrate.readers.parsing.files import Head, count, json_objects, numbers
from calibrate.readers.parsing.leaves import Leaves
from files.reading import InputError, shown
from files.schema import typed

LOOKS_LIKE = "JSON with tokenizer_id, duration, completed"
_SHORT = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "quant": "quantization"}


_RUN = client_run({"burstiness": float | str, "ramp_up_strategy": str}, "num_prompts")


def recognizes(path: Path, head: Head) -> bool:
    return isinstance(head, dict) and {"tokenizer_id", "duration", "completed"} <= head.keys()


def read(path: Path) -> list[MeasuredRun]:
    """One run per JSON object."""
    return [_run(path, place, found) for place, found in json_objects(path)]


def _run(path: Path, place: str, found: Mapping[str, object]) -> MeasuredRun:
    if "total_input_sequences" in found or "total_output_tokens" not in found:
        raise InputError(
            f"{shown(path)}: is a run of embeddings or cut short: no total_output_tokens; give one of generation"
        )
    run = typed(found, _RUN, path, place)
    rows = client_rows(path, place, run)
    notes = [] if rows else ["the run was saved without --save-detailed: it has figures, but no requests"]
    if run["ramp_up_strategy"]:
        notes.append(f"the rate was ramped up, {run['ramp_up_strategy']}ly: the load is not stationary")
    failed = count(run["failed"])
    return MeasuredRun(
        source=path,
        tool="vllm bench serve",
        options=_options(path, place, found),
        load=_load(run),
        aggregates=client_aggregates(path, place, run, found),
        notes=tuple(notes),
        **(rows.parts() if rows else {"excluded": {"failed": failed} if failed else {}}),
    )


def _options(path: Path, place: str, run: Mapping[str, object]) -> dict[str, object]:
    """The model, and settings of the server that the user wrote down with `--metadata KEY=VALUE`, all as strings."""
    names = {key: _SHORT.get(key, key.replace("-", "_").lstrip("_")) for key in run}
    names = {key: name for key, name in names.items() if name in OPTIONS}
    if run.get("model_id"):
        names["model_id"] = "model"
    at = f"{place}: " * bool(place)
    return {name: engine_option(name, run[key], path, f"{at}{key}") for key, name in names.items()}


def _load(run: Leaves) -> dict[str, float]:
    asked = numbers(
        concurrency=run["max_concurrency"],
        rate=math.nan if run["ramp_up_strategy"] is not None else run["request_rate"],
        burstiness=run["burstiness"],
        num_requests=run["num_prompts"],
    )
    return asked | mean_lengths(run)
